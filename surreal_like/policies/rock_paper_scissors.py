"""Fixed policies for rock, paper, scissors: opponents that a policy learns to exploit.

For ``pettingzoo:classic/rps-v2``; they are written as ``fixed:
surreal_like.policies.rock_paper_scissors:Rock``. An observation is the last move of the other
player, and 3 before the first round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from surreal_like.agent.agent import Agent

ROCK, MOVES = 0, 3
Moves = npt.NDArray[np.int64]


class _Player(Agent):
    """Keeps a move for each stream."""

    def __init__(self, **sections: Any) -> None:
        super().__init__(**sections)
        self._move: dict[int, int] = {}

    def act(self, obs: Any) -> Moves:
        seen = obs.numpy().reshape(len(self.streams))
        moves = [
            self._first() if first else self._next(self._move[stream], int(other))
            for stream, first, other in zip(self.streams.tolist(), self.first, seen, strict=True)
        ]
        self._move.update(zip(self.streams.tolist(), moves, strict=True))
        return np.array(moves, np.int64)

    def _first(self) -> int:
        return int(self.rng.integers(MOVES))

    def _next(self, own: int, other: int) -> int:
        """Returns the next move.

        Args:
            own: last move of this player.
            other: last move of the other player.
        """
        raise NotImplementedError

    def module_dict(self) -> Mapping[str, Any]:
        return {}


class Rock(_Player):
    """Always plays rock."""

    def _first(self) -> int:
        return ROCK

    def _next(self, own: int, other: int) -> int:
        return own


class AlwaysSame(_Player):
    """Always plays the move that it has drawn for the episode."""

    def _next(self, own: int, other: int) -> int:
        return own


class Round(_Player):
    """Plays rock, paper and scissors in turn."""

    def _first(self) -> int:
        return ROCK

    def _next(self, own: int, other: int) -> int:
        return (own + 1) % MOVES


class BeatLast(_Player):
    """Plays the move that beats the last one of the other player."""

    def _next(self, own: int, other: int) -> int:
        return (other + 1) % MOVES
