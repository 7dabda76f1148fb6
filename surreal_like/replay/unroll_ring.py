"""Ring of unrolls that have been learned from, to be drawn again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from surreal_like.replay.age_selector import AgeRule, Versions
from surreal_like.replay.unroll_queue import Unroll, pack


class UnrollRing:
    """The newest unrolls, from which distinct ones are drawn by an AgeRule.

    Args:
        places: most unrolls to keep; the oldest are removed.
        rule: weights by age; by default all are equal.
        seed: of the generator.
    """

    def __init__(self, places: int, rule: AgeRule | None = None, *, seed: int = 0) -> None:
        self._rule = AgeRule() if rule is None else rule
        self._unrolls: deque[Unroll] = deque(maxlen=places)
        self._generator = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self._unrolls)

    def bound(self, places: int) -> None:
        """Changes the number of unrolls to keep."""
        self._unrolls = deque(self._unrolls, maxlen=places)

    def add(self, unrolls: Iterable[Unroll]) -> None:
        """Adds unrolls; the oldest make room for them."""
        self._unrolls.extend(unroll._replace(replayed=True) for unroll in unrolls)

    def undo_sample(self, count: int) -> None:
        """Removes the newest ``count`` unrolls, as far as they are here."""
        for _ in range(min(count, len(self._unrolls))):
            self._unrolls.pop()

    def drawable(self, newest_version: int) -> int:
        """Number of unrolls that are young enough."""
        if not self._rule.max_versions:
            return len(self._unrolls)
        oldest = newest_version - self._rule.max_versions
        return sum(unroll.version >= oldest for unroll in self._unrolls)

    def draw(self, count: int, newest_version: int) -> list[Unroll]:
        """Draws distinct unrolls, one after the other, each by its weight among those left.

        Args:
            count: at most :meth:`drawable`.
            newest_version: from which ages are counted.
        """
        if not count:
            return []
        weights = self._rule.log_weights(self._versions(), newest_version)
        # The largest log weights with Gumbel noise are such a draw (Kool and others 2019,
        # "Stochastic beams and where to find them", section 2.3).
        keys = weights + self._generator.gumbel(size=len(weights))
        chosen = np.argpartition(-keys, count - 1)[:count]
        return [self._unrolls[place] for place in chosen]

    def _versions(self) -> Versions:
        return np.fromiter((unroll.version for unroll in self._unrolls), np.int64, len(self))

    def reseed(self, seed: int) -> None:
        """Starts a new random generator."""
        self._generator = np.random.default_rng(seed)

    def state(self) -> dict[str, Any]:
        """All unrolls, the oldest first, and the generator."""
        return {
            "unrolls": pack(self._unrolls),
            "generator": self._generator.bit_generator.state,
        }

    def restore(self, unrolls: Iterable[Unroll], generator: Mapping[str, Any]) -> None:
        """Replaces all unrolls by these, the newest where room is short, and draws as before."""
        self._unrolls.clear()
        self.add(unrolls)
        self._generator.bit_generator.state = dict(generator)
