"""Weighted round robin."""

from __future__ import annotations

from collections.abc import Sequence


class WeightedRoundRobin:
    """Weighted round robin by credits; deterministic.

    In each turn every entry earns its share of the weights as credit; the entry with the most
    credit is chosen and pays 1. So the turns of each entry stay close to its share.

    Args:
        count: number of entries.
        in_a_row: consecutive turns of a chosen entry.
    """

    def __init__(self, count: int, *, in_a_row: int = 1) -> None:
        self._credit = [0.0] * count
        self._in_a_row = in_a_row
        self._chosen = self._left = 0

    def choose(self, weights: Sequence[float]) -> int | None:
        """Returns the index of the next entry, None if all weights are 0.

        Args:
            weights: one per entry, 0 or above; with 0 an entry gets no turn and loses its credit.
        """
        if self._left and weights[self._chosen]:
            self._left -= 1
            return self._chosen
        total = sum(weights)
        if not total:
            return None
        for index, weight in enumerate(weights):
            self._credit[index] = self._credit[index] + weight / total if weight else 0.0
        chosen = max(
            (index for index, weight in enumerate(weights) if weight),
            key=lambda index: self._credit[index],
        )
        self._credit[chosen] -= 1.0
        self._chosen, self._left = chosen, self._in_a_row - 1
        return chosen
