"""Declares R2D2: its algorithm, its replay, and their settings."""

from __future__ import annotations

from session.addons import AddOn
from surreal_like.algorithm.catalog import CORES, Registration

_ROOM = "surreal_like.addons.r2d2"
ADD_ON = AddOn(
    keys={
        "learner_config.replay.priority.eta": f"{_ROOM}.defaults:ETA",
        "learner_config.replay.sequence": f"{_ROOM}.defaults:SEQUENCE",
    },
    algorithms={
        "r2d2": Registration(
            f"{_ROOM}.r2d2:R2D2",
            ("discrete",),
            "sequences",
            memory=CORES,
            replays=("SequenceReplay",),
        )
    },
    replays={"SequenceReplay": f"{_ROOM}.replay:SequenceReplay"},
    needs=("episodes",),
    files=("configs/memory_r2d2.yaml",),
)
