"""State shared by the agent and the sender of one component."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from session.process.context import Context, run_generation
from surreal_like.data.policy_names import DEFAULT_POLICY
from surreal_like.experience.chunk import Chunk


@dataclass(slots=True)
class ActorState:
    """Data exchanged between agent and sender.

    Args:
        version: version of the parameters that the agent acts with.
        account: returns the sender's account, for the parameter server; None without a sender.
        postprocess: the agent's own last change of each chunk; None: there is none.
        pack: makes of each unroll the chunk that is sent; None: the unroll itself.
        generation: generation of the settings with which the agent was built.
        metrics: newest value of each of the agent's own metrics; added to episodes that end.
    """

    version: int = 0
    generation: int = 0
    account: Callable[[], Mapping[str, Any]] | None = None
    postprocess: Callable[[Chunk], Chunk] | None = None
    pack: Callable[[Chunk], Chunk] | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


def acting_of(context: Context, policy: str = DEFAULT_POLICY) -> ActorState:
    """Returns the state of a policy in this component; creates it on first use.

    It is an attribute of the context, because in a script agent and sender have no reference to
    each other.
    """
    states: dict[str, ActorState] = vars(context).setdefault("acting", {})
    if policy not in states:
        states[policy] = ActorState(generation=run_generation(context.config))
    return states[policy]
