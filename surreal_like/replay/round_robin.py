"""Whose turn it is among several, in proportion to their weights."""

from __future__ import annotations

from collections.abc import Sequence


class WeightedRoundRobin:
    """Takes one of several at a time, each as often as its weight says.

    Everyone is given its share of each turn and whoever has most pays for it, so that the turns of
    each are never far from what its weight asks for, and two runs take the same turns.

    Args:
        count: how many there are.
        in_a_row: turns that each takes behind one another.
    """

    def __init__(self, count: int, *, in_a_row: int = 1) -> None:
        self._credit = [0.0] * count
        self._in_a_row = in_a_row
        self._chosen = self._left = 0

    def choose(self, weights: Sequence[float]) -> int | None:
        """Whose turn it is, None if all weights are 0.

        Args:
            weights: one for each, 0 or above; with 0 it has no turn and is owed none later.
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
