"""Views on stored rows: samples are made when they are drawn. Here: n-step transitions.

Row t holds the reward and the discount that led to it, so the transition that starts at t is
``R = sum_{k=1..m} gamma^(k-1) (prod_{i<k} discount_{t+i}) reward_{t+k}`` with ``m = min(n, steps
to LAST)``, bootstrapped from the observation m rows on with ``gamma^m prod_{i<=m} discount_{t+i}``
(Sutton and Barto 2018, section 7.1, with the discount as a signal of the environment).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.nest import Array
from surreal_like.data.frames import stack_size
from surreal_like.data.timestep import FIRST, LAST, Flags
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.storage import SENDER, ColumnStorage, Empty, Rows
from surreal_like.transform.reward import RewardTransform, make_reward_transform

Floats = npt.NDArray[np.float32]

# Positions of rows -> reward and discount that led to each, and whether its episode ends there.
Outcome = Callable[[Rows], tuple[Floats, Floats, Flags]]


class Transitions(NamedTuple):
    """End and n-step sum of each transition, each ``[B]``.

    Attributes:
        ends: positions of the rows whose observations are bootstrapped.
        rewards: n-step sums, float32.
        discounts: factors of the bootstrap values, gamma included, float32.
        ended: the episode ends there.
        terminated: it ends there in a termination, not in a truncation.
    """

    ends: Rows
    rewards: Floats
    discounts: Floats
    ended: Flags
    terminated: Flags


class View(ABC):
    """Says at which rows samples start, and gathers the samples that start at some rows.

    Attributes:
        n: rows of one stream that a chunk of one step can make sampleable.
        rows_each: rows that count in one sample.
        period: rows of an episode of which one starts a sample.
        lead: rows before a row that its sample may need, and that may be evicted before it.
    """

    n = rows_each = period = 1
    lead = 0

    @abstractmethod
    def check(self, chunk: Chunk) -> None:
        """Raises DataError for a chunk of which this view cannot make samples."""

    def refusal(self, chunk: Chunk) -> str | None:
        """Returns why a valid chunk is not stored, in a word or two; None if it is stored."""
        return None

    @property
    def waiting(self) -> int:
        """Rows of one stream that lack later or older rows at any time, and cannot be sampled."""
        return self.n + self.lead

    def find_losing(self, storage: ColumnStorage, oldest: int) -> Rows:
        """Numbers of rows that would stay unsampleable if ``oldest`` were the oldest row.

        Call this before the eviction.
        """
        return np.zeros(0, np.int64)

    @abstractmethod
    def ready(self, storage: ColumnStorage, numbers: Rows, step_type: Array) -> tuple[Flags, Rows]:
        """Finds the rows that an insert has made sampleable.

        Args:
            storage: holds the new rows already.
            numbers: numbers of the new rows, ``[T, N]``.
            step_type: step types of the new rows, ``[T, N]``.

        Returns:
            Flags of the new rows ``[T, N]``, and the numbers of earlier rows that the new ones
            have completed.
        """

    @abstractmethod
    def ready_rows(self, storage: ColumnStorage) -> Flags:
        """Flags the sampleable rows, ``[rows]``, the oldest first; for a restored ring."""

    def needed_from(self, storage: ColumnStorage) -> int:
        """Returns the oldest row that samples yet to come may need; the next number if none."""
        return storage.next_number

    @abstractmethod
    def versions(self, storage: ColumnStorage, numbers: Rows) -> Rows:
        """Returns the oldest version that acted in each sample, ``[B]`` int64."""

    @abstractmethod
    def gather(
        self, storage: ColumnStorage, numbers: Rows, empty: Empty | None = None
    ) -> dict[str, Array]:
        """Returns the samples that start at sampleable rows, as the columns of a batch.

        Args:
            storage: holds the rows.
            numbers: numbers of the first rows, ``[B]``.
            empty: creates the arrays of observations.

        Raises:
            DataError: a row has been evicted.
        """

    def reseed(self, seed: int) -> None:  # noqa: B027 - most views draw nothing
        """Starts a new random generator."""

    def statistics(self) -> dict[str, float]:
        """Returns numbers for metrics, in addition to those of every replay."""
        return {}

    def state(self) -> dict[str, Any]:
        """Returns what :meth:`restore` needs beside the rows."""
        return {}

    def restore(  # noqa: B027 - most views keep nothing
        self, state: Mapping[str, Any], storage: ColumnStorage
    ) -> None:
        """Restores what :meth:`state` gave, with the restored rows."""

    def recall(self, storage: ColumnStorage) -> dict[str, Any]:
        """Returns the state of rows that a former process has left, from arrays of the storage."""
        return {}


class NStepView(View):
    """Makes a row the start of a transition over n steps, fewer where the episode ends before.

    An observation may be a stack of the newest k of the row's episode, the oldest first; at the
    beginning of an episode the first one is repeated. A row whose stack needs rows that have been
    evicted, or that never came, has no stack.

    A row is sampleable when n successors or a LAST before that have come, and it has its stack; a
    LAST row starts no transition.

    Args:
        n: steps, at least 1.
        gamma: discount per step, multiplied with the environment's own.
        transform: changes single rewards.
        frame_stack: k; with 1 an observation is the one of its row.
    """

    def __init__(
        self,
        n: int,
        gamma: float,
        *,
        transform: RewardTransform | None = None,
        frame_stack: int = 1,
    ) -> None:
        self.n = n
        self._gamma = np.float32(gamma)
        self._transform = transform or RewardTransform()
        self.lead = frame_stack - 1

    def check(self, chunk: Chunk) -> None:
        """Raises DataError for an unroll."""
        if chunk.overlap:
            raise DataError(f"chunk from {chunk.sender}: an unroll, whose last row comes twice")

    def find_losing(self, storage: ColumnStorage, oldest: int) -> Rows:
        """Returns the next k - 1 rows of each stream that is cut there, within its episode."""
        if not self.lead or not len(storage):
            return np.zeros(0, np.int64)
        at = storage.find_torn(oldest)
        at = at[storage.take("step_type", at) != FIRST]
        found = [at]
        for _ in range(1, self.lead):
            # The links to these rows are kept by the rows to be evicted.
            distance = storage.distance(at)
            going = (distance > 0) & (storage.take("step_type", at) != LAST)
            at = (at + distance)[going]
            found.append(at)
        return storage.number(np.concatenate(found))

    def _flag_stacked(self, storage: ColumnStorage, positions: Rows) -> Flags:
        """True where all rows of a row's stack exist; positions of any shape."""
        found = np.ones(positions.shape, np.bool_)
        at = positions
        for _ in range(self.lead):
            within = storage.take("step_type", at) != FIRST
            before, there = storage.step_back(at)
            found &= there | ~within
            at = np.where(within & there, before, at)
        return found

    def _stack(self, storage: ColumnStorage, positions: Rows) -> Rows:
        """Returns the positions of the rows in the stacks of rows that have one.

        Args:
            storage: holds the rows.
            positions: ``[B]``.

        Returns:
            ``[B, k]``; with k = 1 ``positions`` itself.
        """
        if not self.lead:
            return positions
        stacked = np.empty((len(positions), self.lead + 1), np.int64)
        stacked[:, -1] = at = positions
        for place in range(self.lead - 1, -1, -1):
            within = storage.take("step_type", at) != FIRST
            at = np.where(within, storage.step_back(at)[0], at)
            stacked[:, place] = at
        return stacked

    def ready(self, storage: ColumnStorage, numbers: Rows, step_type: Array) -> tuple[Flags, Rows]:
        last = step_type == LAST
        flags = ~last
        steps = len(last)
        ended = last[-1].copy()
        flags[-1] = False
        for t in range(steps - 2, max(steps - self.n, 0) - 1, -1):
            flags[t] &= ended  # fewer than n successors: only if LAST is among them
            ended |= last[t]
        if self.lead:  # further on, the rows of a stack are all new
            begin = storage.locate(numbers[: self.lead])
            flags[: self.lead] &= self._flag_stacked(storage, begin)
        return flags, self._find_completed(storage, numbers[0], last)

    def _find_completed(self, storage: ColumnStorage, first: Rows, last: Flags) -> Rows:
        """Finds the rows before the new ones that the new ones have completed.

        Goes back n rows before the new ones, or to a LAST: rows before a LAST were complete when it
        came.
        """
        found = []
        streams = np.arange(len(first))
        position = storage.locate(first)
        for needed in range(self.n, 0, -1):
            position, going = storage.step_back(position)
            position, streams = _keep(going, position, streams)
            going = storage.take("step_type", position) != LAST
            position, streams = _keep(going, position, streams)
            if not len(position):
                break
            enough = needed <= len(last)
            found.append(position if enough else position[last[:, streams].any(axis=0)])
        if not found:
            return np.zeros(0, np.int64)
        rows = np.concatenate(found)
        return storage.number(rows[self._flag_stacked(storage, rows)] if self.lead else rows)

    def ready_rows(self, storage: ColumnStorage) -> Flags:
        if not len(storage):
            return np.zeros(0, np.bool_)
        start = storage.locate(np.arange(storage.oldest, storage.next_number))
        ends = storage.take("step_type", start) == LAST
        flags: Flags = ~ends & ~self._flag_lacking(storage, start)
        return flags & self._flag_stacked(storage, start)

    def _flag_lacking(self, storage: ColumnStorage, end: Rows) -> Flags:
        """True at positions of rows that lack successors; LAST needs none."""
        going: Flags = storage.take("step_type", end) != LAST
        lacking = np.zeros(len(end), np.bool_)
        for _ in range(self.n):
            distance = storage.distance(end)
            lacking |= going & (distance == 0)
            end = end + distance * going
            going &= storage.take("step_type", end) != LAST
        return lacking

    def needed_from(self, storage: ColumnStorage) -> int:
        if not len(storage):
            return storage.next_number
        rows = storage.locate(np.arange(storage.oldest, storage.next_number))
        rows = rows[self._flag_lacking(storage, rows)]
        rows = rows[self._flag_stacked(storage, rows)]
        needed = storage.number(self._stack(storage, rows))
        return int(needed.min(initial=storage.next_number))

    def versions(self, storage: ColumnStorage, numbers: Rows) -> Rows:
        """Returns the versions that acted at the rows."""
        return storage.take("version", storage.locate(numbers))

    def gather(
        self, storage: ColumnStorage, numbers: Rows, empty: Empty | None = None
    ) -> dict[str, Array]:
        """Returns the transitions that start at sampleable rows; see :meth:`View.gather`.

        Returns:
            ``[B, ...]`` each: ``obs``, ``actions``, ``obs_next`` (for nests ``obs/<path>``, and so
            on; stacks ``[B, k, ...]``) and ``extras/<name>`` in the dtypes of their columns;
            ``rewards``, ``discounts`` (of the bootstrap value, gamma included) and ``dones`` (1
            where it ends in a termination) float32; ``version`` int64.
        """
        storage.require(numbers)
        return self._columns(storage, numbers, self.transitions(storage, numbers), empty)

    def _columns(
        self, storage: ColumnStorage, numbers: Rows, found: Transitions, empty: Empty | None
    ) -> dict[str, Array]:
        start = storage.locate(numbers)
        end, rewards, discounts, _, terminated = found
        batch: dict[str, Array] = {"rewards": rewards, "discounts": discounts}
        batch["dones"] = terminated.astype(np.float32)
        seen, seen_next = (self._stack(storage, rows) for rows in (start, end))
        for name in storage.names:
            kind, slash, path = name.partition("/")
            if kind == "obs":
                batch[name] = storage.take(name, seen, empty)
                batch[f"obs_next{slash}{path}"] = storage.take(name, seen_next, empty)
            elif kind == "action":
                batch[f"actions{slash}{path}"] = storage.take(name, start)
            elif kind in ("extras", "version", SENDER):
                batch[name] = storage.take(name, start)
        return batch

    def transitions(self, storage: ColumnStorage, numbers: Rows) -> Transitions:
        """Returns ends and n-step sums of the transitions that start at sampleable rows."""
        return self._sum(storage, numbers, partial(stored_outcome, storage))

    def _sum(self, storage: ColumnStorage, numbers: Rows, outcome: Outcome) -> Transitions:
        start = storage.locate(numbers)
        end = start + storage.distance(start)
        reward, discount, last = outcome(end)
        rewards = self._transform(reward)
        discounts = self._gamma * discount
        going = ~last
        for _ in range(1, self.n):
            end = end + storage.distance(end) * going
            reward, discount, last = outcome(end)
            rewards = rewards + discounts * self._transform(reward) * going
            discounts = np.where(going, discounts * self._gamma * discount, discounts)
            going &= ~last
        ended = ~going
        return Transitions(end, rewards, discounts, ended, ended & (discount == 0.0))


def make_n_step_view(learner_config: Config, env_config: Config) -> NStepView:
    """Makes the view of ``learner_config.algo``, on stacks by ``env_config.frame_stack``."""
    algo = learner_config["algo"]
    return NStepView(
        algo["n_step"],
        algo["gamma"],
        transform=make_reward_transform(algo),
        frame_stack=stack_size(env_config),
    )


def stored_outcome(storage: ColumnStorage, end: Rows) -> tuple[Floats, Floats, Flags]:
    """Returns rewards, discounts and ends of episodes of the rows at positions, copied."""
    last = storage.take("step_type", end) == LAST
    return storage.take("reward", end), storage.take("discount", end), last


def _keep(flags: Flags, *arrays: Rows) -> tuple[Rows, ...]:
    if np.count_nonzero(flags) == len(flags):
        return arrays
    return tuple(array[flags] for array in arrays)
