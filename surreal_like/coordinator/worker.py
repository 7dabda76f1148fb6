"""Interface of what learns, as the coordinator of the run sees it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from session.config import Config
from surreal_like.coordinator.control import Flat


class Worker(Protocol):
    """Interface of the side that learns, for the coordinator.

    Attributes:
        iteration: number of updates of the current weights.
        version: newest publication.
        env_steps: environment steps of the whole run, as the coordinator counts them.
        best_return: of the best stored parameters, None if there are none.
        flat_bytes: size of all parameters, in bytes.
        shards: number of replay shards.
        refused: the reason for which replay refuses requests for batches; empty: it does not.
        own_metrics: newest value of each of the learner's own metrics.
    """

    env_steps: int

    @property
    def iteration(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def best_return(self) -> float | None: ...
    @property
    def flat_bytes(self) -> int: ...
    @property
    def shards(self) -> int: ...
    @property
    def refused(self) -> str: ...
    @property
    def own_metrics(self) -> Mapping[str, float]: ...

    def counts(self) -> Mapping[str, Mapping[str, Any]]:
        """Returns the newest counts of every replay shard."""

    def plan_counts(self) -> dict[str, Any]:
        """Returns the counts of the plan since the learner was built."""

    def pop_finished(self) -> list[dict[str, Any]]:
        """Returns summaries of the episodes that have ended since the last call."""

    def status(self) -> dict[str, float]:
        """Returns rates and queue lengths."""

    def publish(self, reason: str, *, final: bool = False) -> None:
        """Publishes the current weights."""

    def ask_counts(self) -> None:
        """Requests the counts of every replay shard; :meth:`counts` returns them later."""

    def drain(self) -> None:
        """Asks every replay shard to accept all experience from now on."""

    def load(self, config: Config) -> Mapping[str, Any]:
        """Goes on with other settings from a donor's checkpoint; returns the state of that."""

    def save(self, run_id: str, state: Mapping[str, Any]) -> Path | None:
        """Writes a checkpoint with the coordinator's state; None if the disk failed."""

    def save_best(self, flat: Flat, score: Mapping[str, Any]) -> None:
        """Stores the best parameters."""
