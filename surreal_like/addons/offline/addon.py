"""Declares the algorithms that learn from recorded rows."""

from __future__ import annotations

from session.addons import AddOn
from surreal_like.algorithm.catalog import EVERY_ACTION, Registration

_ROOM = "surreal_like.addons.offline"
ADD_ON = AddOn(
    algorithms={
        "bc": Registration(f"{_ROOM}.bc:BC", EVERY_ACTION, "rows"),
        "iql": Registration(f"{_ROOM}.iql:IQL", ("continuous",), "rows", bounded=True),
    },
    elsewhere={"behaviorcloning": "bc", "behaviourcloning": "bc"},
)
