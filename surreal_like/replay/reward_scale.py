"""Normalizes rewards by the running deviation of discounted returns.

Replay counts the returns of all rows that it inserts, each once; the learner divides. Only the
scale changes: without the mean, tasks whose episodes end would be other tasks.

The counts of all shards, and of a shard before its restart, are added and kept in checkpoints. They
are not published: agents and evaluations report raw rewards. The first batches are not scaled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from session.config import Config
from surreal_like.data.timestep import FIRST, LAST
from surreal_like.transform.reward import RewardTransform, make_reward_transform

if TYPE_CHECKING:
    from surreal_like.experience.chunk import Chunk

_EPSILON = 1e-8
# Maximum streams of a sender without an end: those left in the middle of an episode never end.
_OPEN = 1 << 16


class Moments(NamedTuple):
    """Number, mean, and sum of squared distances from it, of some numbers."""

    number: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, x: npt.NDArray[np.float64]) -> Moments:
        """Returns the moments of numbers ``[M]``."""
        if not len(x):
            return cls()
        mean = float(x.mean())
        return cls(float(len(x)), mean, float(np.square(x - mean).sum()))

    def merge(self, other: Moments) -> Moments:
        """Returns the moments of the numbers of both: Chan et al. 1979."""
        total = self.number + other.number
        if not total:
            return self
        apart, share = other.mean - self.mean, other.number / total
        squares = self.squares + other.squares + apart * apart * self.number * share
        return Moments(total, self.mean + apart * share, squares)

    @property
    def deviation(self) -> float:
        """Standard deviation; 1 of fewer than two numbers, and of numbers that are all equal."""
        if self.number < 2 or not self.squares:
            return 1.0
        return math.sqrt(self.squares / self.number + _EPSILON)


class ReturnCounter:
    """Counts the discounted returns of streams: at each step gamma times the last, plus the reward.

    A return begins at 0 with its episode, as in VecNormalize of stable-baselines3.

    Args:
        gamma: discount of a step.
        transform: changes single rewards before they are counted.

    Attributes:
        moments: moments of all returns so far; rows that episodes begin with have none.
    """

    def __init__(self, gamma: float, transform: RewardTransform) -> None:
        self.moments = Moments()
        self._gamma = gamma
        self._transform = transform
        # Sender -> its incarnation, and the newest return of each of its streams.
        self._senders: dict[str, tuple[int, dict[int, float]]] = {}

    def add(self, chunk: Chunk) -> None:
        """Counts the rows of a chunk; those of a sender come in the order of their steps."""
        known = self._senders.get(chunk.sender)
        if known is None or known[0] != chunk.incarnation:
            known = self._senders[chunk.sender] = chunk.incarnation, {}
        newest = known[1]
        # The first row of an unroll was counted with the unroll before, unless an episode begins.
        step_type = chunk.columns["step_type"][chunk.overlap :]
        if not len(step_type):
            return
        rewards = self._transform(chunk.columns["reward"][chunk.overlap :].copy())
        returns = rewards.astype(np.float64)
        last = np.array([newest.get(stream, 0.0) for stream in chunk.streams])
        for t, begins in enumerate(step_type == FIRST):
            last = returns[t] = (self._gamma * last + returns[t]) * ~begins
        self.moments = self.moments.merge(Moments.of(returns[step_type != FIRST]))
        for stream, value, ended in zip(chunk.streams, last, step_type[-1] == LAST, strict=True):
            newest.pop(stream, None)
            if not ended:
                newest[stream] = float(value)
        for stream in list(itertools.islice(newest, max(0, len(newest) - _OPEN))):
            del newest[stream]

    def forget(self, sender: str, incarnation: int) -> None:
        """Forgets the streams of an incarnation that is closed."""
        if self._senders.get(sender, (-1, {}))[0] == incarnation:
            del self._senders[sender]


def make_return_counter(algo: Config) -> ReturnCounter | None:
    """Returns what counts returns with `algo.normalize_rewards`; None without."""
    if not algo.get("normalize_rewards", False):
        return None
    return ReturnCounter(algo.gamma, make_reward_transform(algo))


class RewardScale:
    """Merges the counts of all shards; gives the deviation before the newest reply.

    Each shard sends all that it has counted since its start, so a lost reply or a restored learner
    loses no row and counts none twice.
    """

    def __init__(self) -> None:
        # Shard with incarnation -> its counts, without those of the newest reply.
        self._known: dict[str, Moments] = {}
        self._newest: tuple[str, Moments] | None = None

    def add(self, shard: str, moments: Sequence[float]) -> None:
        """Adds what a shard has sent with a batch; all batches of one reply have the same.

        Args:
            shard: name of the shard with its incarnation.
            moments: fields of its `Moments`.
        """
        given = shard, Moments(*moments)
        if self._newest is not None and given != self._newest:
            self._known[self._newest[0]] = self._newest[1]
        self._newest = given

    @property
    def deviation(self) -> float:
        """Deviation of all returns that were known before the newest reply."""
        total = Moments()
        for moments in self._known.values():
            total = total.merge(moments)
        return total.deviation

    def state_dict(self) -> dict[str, Any]:
        """Returns the counts of all shards, those of earlier incarnations too."""
        known = {shard: list(moments) for shard, moments in self._known.items()}
        newest = self._newest and [self._newest[0], list(self._newest[1])]
        return {"known": known, "newest": newest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state_dict`."""
        self._known = {shard: Moments(*each) for shard, each in state["known"].items()}
        newest = state["newest"]
        self._newest = None if newest is None else (newest[0], Moments(*newest[1]))
