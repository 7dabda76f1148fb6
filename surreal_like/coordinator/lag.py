"""Measures the policy lag of the rows of batches, and the latency of each stage on their way."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_HISTORY = 2000

# Stages of traced experience, each between two stamps.
_WAY = (
    ("collect", "first", "cut"),
    ("step", "first", "stepped"),
    ("act", "stepped", "cut"),
    ("wait_to_send", "cut", "sent"),
    ("to_replay", "sent", "inserted"),
    ("in_replay", "inserted", "sampled"),
    ("to_learner", "sampled", "taken"),
    # A request and its answer, of which replay has used a part.
    ("request", "requested", "received"),
    ("answer", "asked", "answered"),
)


@dataclass(slots=True)
class _Sums:
    """Sums of the lag of some rows."""

    rows: int = 0
    versions: float = 0.0
    updates: float = 0.0
    max_versions: int = 0

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(
            self.rows + other.rows,
            self.versions + other.versions,
            self.updates + other.updates,
            max(self.max_versions, other.max_versions),
        )

    def summary(self) -> dict[str, float | None]:
        if not self.rows:
            return {"mean_versions": None, "max_versions": None, "mean_updates": None}
        return {
            "mean_versions": self.versions / self.rows,
            "max_versions": self.max_versions,
            "mean_updates": self.updates / self.rows,
        }


class Lag:
    """Policy lag in versions and in updates, and mean durations of the stages of experience.

    Args:
        whole: lag of the run, to which batches of one of its policies count, too.
    """

    def __init__(self, whole: Lag | None = None) -> None:
        self._whole = whole
        self._versions: list[int] = []
        self._iterations: list[int] = []
        self._before = _Sums()
        self._recent = _Sums()
        self._way: dict[str, list[float]] = {}

    def add_publication(self, version: int, iteration: int) -> None:
        """Records the number of updates of a version; does nothing if it knows the version."""
        if self._versions and version == self._versions[-1]:
            return
        self._versions.append(version)
        self._iterations.append(iteration)
        if len(self._versions) > 2 * _HISTORY:
            del self._versions[:_HISTORY], self._iterations[:_HISTORY]

    def add_batch(self, versions: npt.NDArray[np.int64], iteration: int) -> None:
        """Adds the versions, of any shape, of the parameters that acted in a batch's rows."""
        # No parameters of this run have acted in recorded rows: their version is 0.
        versions = versions[versions > 0]
        if not self._versions or not versions.size:
            return
        newest = self._versions[-1]
        mean, oldest = float(versions.mean()), int(versions.min())
        # After a restart the learner may get rows of versions that it does not know yet.
        batch = _Sums(
            versions.size,
            max(0.0, newest - mean) * versions.size,
            max(0.0, iteration - self._updates_of(mean)) * versions.size,
            max(0, newest - oldest),
        )
        self._recent += batch
        if self._whole is not None:
            self._whole._recent += batch

    def _updates_of(self, version: float) -> float:
        """Returns the number of updates of a version, interpolated between known versions."""
        at = bisect_left(self._versions, version)
        if at == 0 or at == len(self._versions):
            return self._iterations[min(at, len(self._versions) - 1)]
        low, high = self._versions[at - 1], self._versions[at]
        share = (version - low) / (high - low)
        return self._iterations[at - 1] * (1 - share) + self._iterations[at] * share

    def add_stamps(self, stamps: Mapping[str, float]) -> None:
        """Adds the stamps of one traced batch and of the chunk of its rows."""
        for name, begin, end in _WAY:
            if begin in stamps and end in stamps:
                total = self._way.setdefault(name, [0.0, 0])
                total[0] += max(0.0, stamps[end] - stamps[begin])
                total[1] += 1

    def summary(self) -> dict[str, float | None]:
        """Returns ``mean_versions``, ``max_versions``, ``mean_updates`` over the whole run."""
        return (self._before + self._recent).summary()

    def pop_recent(self) -> dict[str, float | None]:
        """Returns the same over the batches since the last call."""
        recent, self._recent = self._recent, _Sums()
        self._before += recent
        return recent.summary()

    def latency(self) -> dict[str, float]:
        """Returns stage -> mean seconds, of the traced experience."""
        return {f"{name}_seconds": total / count for name, (total, count) in self._way.items()}

    def state(self) -> dict[str, Any]:
        """Returns plain data for a file."""
        every = self._before + self._recent
        sums = [every.rows, every.versions, every.updates, every.max_versions]
        return {"sums": sums, "latency": self._way}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a result of :meth:`state`."""
        self._before = _Sums(*state["sums"])
        self._way = {name: list(total) for name, total in state["latency"].items()}
