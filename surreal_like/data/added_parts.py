"""Parts that observations of several agents get in addition: `state` and `agent_id`.

`state` is the state of the whole environment. Its spec has `critic_only: true`: only value
functions see it, so that a policy acts without it. `agent_id` is a one-hot of the agent among those
of its policy; policies see it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surreal_like.data.spec import is_leaf

STATE = "state"
AGENT_ID = "agent_id"

Spec = Mapping[str, Any]


def state_part(spec: Spec) -> dict[str, Any]:
    """Returns the spec of the part `state`, from that of the state."""
    return {**spec, "critic_only": True}


def agent_id_part(agents: Sequence[str]) -> dict[str, Any]:
    """Returns the spec of the part `agent_id` for a policy of these agents."""
    return {"type": "int8", "dim": [len(agents)]}


def critic_parts(obs_spec: Spec) -> tuple[str, ...]:
    """Returns the names of the parts that only value functions see."""
    if is_leaf(obs_spec):
        return ()
    return tuple(name for name, part in obs_spec.items() if part.get("critic_only") is True)


def policy_spec(obs_spec: Spec) -> Spec:
    """Returns the spec of the parts that a policy sees; the same object if these are all."""
    hidden = critic_parts(obs_spec)
    return {k: x for k, x in obs_spec.items() if k not in hidden} if hidden else obs_spec
