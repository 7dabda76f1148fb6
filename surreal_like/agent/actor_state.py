"""What the agent and the sender of one component tell each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from session.context import Context


@dataclass(slots=True)
class ActorState:
    """Shared by whoever acts and whoever sends what came of it.

    Args:
        version: of the parameters that are acted with.
        account: gives the sender's account, for the parameter server; None without a sender.
        metrics: the agent's own numbers, the newest of each; they travel with episodes that end.
    """

    version: int = 0
    account: Callable[[], Mapping[str, Any]] | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


def acting_of(context: Context) -> ActorState:
    """The one of this component.

    It hangs on the context because in a script neither of the two is told of the other.
    """
    acting: ActorState = vars(context).setdefault("acting", ActorState())
    return acting
