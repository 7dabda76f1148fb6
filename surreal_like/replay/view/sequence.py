"""Sequences of rows in order of time, gathered from rows when they are sampled.

Row t holds the reward and the discount that led to it, and a sequence of T steps has T + 1 rows.
Observations may be stacks of frames: a batch that travels holds single frames, those before its
first row included, and :class:`Stacker` makes the stacks where the batch is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.errors import ConfigError
from session.nest import Array
from surreal_like.data.batch import Columns
from surreal_like.data.frames import stack_rows, stack_size
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.storage import SENDER, ColumnStorage, Empty, Rows, spans
from surreal_like.replay.view.episode_index import EpisodeIndex, predecessors
from surreal_like.replay.view.n_step import FIRST, LAST, Flags, NStepView, View
from surreal_like.transform.reward import RewardTransform, make_reward_transform

_OF_STEPS = ("action", "extras", "version", SENDER)


class SequenceView(View):
    """Makes every ``period``-th row of an episode the start of a sequence within this episode.

    A sequence that starts at step s of its episode has the rows s - burn_in to s + length. Rows
    outside the episode are padding: copies of the nearest row in it. It can be sampled when row
    s + length or LAST has come, and as long as all of its rows are here. LAST starts none.

    A sequence is known by row s, so any selector may choose among them. The state of a recurrent
    network is a column; its value at row 0 is that before the first row that is no padding.

    Args:
        length: learned steps.
        gamma: discount per step, multiplied with the environment's own.
        burn_in: steps before, in which only the state of the network is computed.
        period: steps between two starts, 1 to ``length``; 0: ``length``.
        transform: changes single rewards.
        frame_stack: frames of an observation; with 1 it is the one of its row.
        prev_rewards: adds the rewards before all rows.

    Raises:
        ConfigError: there would be steps between the sequences.
    """

    def __init__(
        self,
        length: int,
        gamma: float,
        *,
        burn_in: int = 0,
        period: int = 0,
        transform: RewardTransform | None = None,
        frame_stack: int = 1,
        prev_rewards: bool = False,
    ) -> None:
        self.prev_rewards = prev_rewards
        self.period = period or length
        if self.period > length:
            raise ConfigError(
                f"replay.sequence.period is {self.period}, but length is {length}: steps between "
                "two sequences would never be learned from; lower the period"
            )
        self.length = self.rows_each = length
        self.n = -(-length // self.period)
        self.burn_in = burn_in
        self._gamma = np.float32(gamma)
        self._transform = transform or RewardTransform()
        self._frames = frame_stack - 1
        before = burn_in + frame_stack
        self._rows = NStepView(length, gamma, frame_stack=before)
        self.lead = before - 1
        self._offsets = np.arange(1 - before, length + 1)[:, None]
        self._index: EpisodeIndex | None = None
        self._step: npt.NDArray[np.int32] = np.zeros(0, np.int32)  # in the episode, of each slot

    @property
    def waiting(self) -> int:
        """Rows of one stream that lack later or older rows at any time."""
        return self._rows.waiting

    def check(self, chunk: Chunk) -> None:
        """Raises DataError for an unroll."""
        self._rows.check(chunk)

    def find_losing(self, storage: ColumnStorage, oldest: int) -> Rows:
        return self._rows.find_losing(storage, oldest)

    def ready(self, storage: ColumnStorage, numbers: Rows, step_type: Array) -> tuple[Flags, Rows]:
        """Finds the starts that an insert has made sampleable; counts the steps of episodes."""
        if not len(self._step):
            self._step = storage.zeros("steps", (storage.capacity,), np.int32)
        if self._index is None:
            self._index = EpisodeIndex(storage.capacity)
        self._index.insert(storage, numbers, step_type)
        steps = self._count(storage, numbers, step_type)
        flat = steps.reshape(-1)
        for slots, part in spans(int(numbers[0, 0]), len(flat), len(self._step)):
            self._step[slots] = flat[part]
        flags, earlier = self._rows.ready(storage, numbers, step_type)
        starts = self._step[earlier % len(self._step)] % self.period == 0
        return flags & (steps % self.period == 0), earlier[starts]

    def _count(self, storage: ColumnStorage, numbers: Rows, step_type: Array) -> Rows:
        """Returns the steps of new rows in their episodes; an episode that was cut begins anew."""
        before, continues = predecessors(storage, numbers[0])
        begins = np.ones(numbers.shape, np.bool_)
        begins[1:] = (step_type[:-1] == LAST) | (step_type[1:] == FIRST)
        time = np.arange(len(numbers))[:, None]
        steps: Rows = time - np.maximum.accumulate(np.where(begins, time, 0), axis=0)
        continues &= step_type[0] != FIRST
        counted = np.where(continues, self._step[before % len(self._step)] + 1, 0)
        steps += _flag_until_first(begins) * counted
        return steps

    def ready_rows(self, storage: ColumnStorage) -> Flags:
        numbers = np.arange(storage.oldest, storage.next_number)
        ready = self._rows.ready_rows(storage)
        if len(numbers):
            ready &= self._step[numbers % len(self._step)] % self.period == 0
        return ready

    def needed_from(self, storage: ColumnStorage) -> int:
        return self._rows.needed_from(storage)

    def versions(self, storage: ColumnStorage, numbers: Rows) -> Rows:
        """Returns the oldest version that acted in each sequence, ``[B]`` int64."""
        rows = self.window(storage, numbers)[self._frames :]
        oldest: Rows = storage.take("version", rows).min(axis=0)
        return oldest

    def window(self, storage: ColumnStorage, numbers: Rows) -> Rows:
        """Returns positions of the rows that sequences see, ``[k - 1 + L + 1, B]``.

        k is the size of a stack of frames, L is ``burn_in + length``.
        """
        index = self._index
        if index is None:
            index = EpisodeIndex.of(storage)  # of rows that did not come through `ready`
        index.evict(storage.oldest)
        episodes, places = index.place(numbers)
        seen = np.clip(places + self._offsets, 0, index.last(episodes))
        rows = index.row(np.broadcast_to(episodes, seen.shape).reshape(-1), seen.reshape(-1))
        return storage.locate(rows).reshape(seen.shape)

    def gather(
        self, storage: ColumnStorage, numbers: Rows, empty: Empty | None = None
    ) -> dict[str, Array]:
        """Returns the sequences that start at some rows, side by side; see :meth:`View.gather`.

        Returns:
            Time first, T = L. ``obs`` (``obs/<path>``) and ``first`` bool (an episode begins there)
            ``[T + 1, B, ...]`` (with stacks of k the single frames ``[k - 1 + T + 1, B, ...]``, see
            :class:`Stacker`); ``actions``, ``extras/<name>`` and ``version`` ``[T, B, ...]``;
            ``rewards`` of the actions, ``discounts`` (gamma included), ``dones`` (1 where the step
            ends in a termination) and ``mask`` (0 in the burn-in, and at rows that no action was
            taken from: an episode had ended) float32 ``[T, B]``. With :attr:`prev_rewards`
            ``prev_rewards``, 0 where an episode begins, float32 ``[T + 1, B]``.
        """
        storage.require(numbers)
        seen = self.window(storage, numbers)
        rows = seen[self._frames :]
        after, acted = rows[1:], rows[:-1]
        step_type, discount = storage.take("step_type", rows), storage.take("discount", after)
        ended = step_type[1:] == LAST
        first = step_type == FIRST
        # Of the copies of a first row only the last one, the row itself, begins the episode.
        first[: self.burn_in] &= rows[: self.burn_in] != rows[1 : self.burn_in + 1]
        mask = (step_type[:-1] != LAST).astype(np.float32)
        mask[: self.burn_in] = 0.0
        batch: dict[str, Array] = {
            "first": first,
            "rewards": self._transform(storage.take("reward", after)),
            "discounts": self._gamma * discount,
            "dones": (ended & (discount == 0.0)).astype(np.float32),
            "mask": mask,
        }
        if self.prev_rewards:
            rewards = self._transform(storage.take("reward", rows))
            batch["prev_rewards"] = np.where(first, np.float32(0.0), rewards)
        for name in storage.names:
            kind, slash, path = name.partition("/")
            if kind == "obs":
                batch[name] = storage.take(name, seen, empty)
            elif kind in _OF_STEPS:
                name_here = f"actions{slash}{path}" if kind == "action" else name
                batch[name_here] = storage.take(name, acted)
        return batch

    def state(self) -> dict[str, Any]:
        """The steps of all slots, as far as the ring was filled."""
        return {"steps": self._step}

    def restore(self, state: Mapping[str, Any], storage: ColumnStorage) -> None:
        numbers = np.arange(storage.oldest, storage.next_number)
        if not len(numbers):
            self._index = None
            return
        self._step = self.recall(storage)["steps"]
        saved = np.asarray(state["steps"], np.int32)
        self._step[numbers % storage.capacity] = saved[numbers % len(saved)]
        self._index = EpisodeIndex.of(storage)

    def recall(self, storage: ColumnStorage) -> dict[str, Any]:
        if len(self._step) != storage.capacity:
            self._step = storage.zeros("steps", (storage.capacity,), np.int32)
        return {"steps": self._step}


def _flag_until_first(flags: Flags) -> Flags:
    """True before the first True of each column, after row 0, which does not count."""
    found = flags.copy()
    found[0] = False
    return ~np.logical_or.accumulate(found, axis=0)


class UnrollView(SequenceView):
    """Makes the first row of each whole unroll the start of the sequence of its T steps.

    An unroll is one chunk, and may hold several episodes.

    Args:
        steps: T.
        streams: N, the streams of a chunk.
        gamma, transform, frame_stack, prev_rewards: see :class:`SequenceView`.
    """

    def __init__(
        self,
        steps: int,
        streams: int,
        gamma: float,
        *,
        transform: RewardTransform | None = None,
        frame_stack: int = 1,
        prev_rewards: bool = False,
    ) -> None:
        super().__init__(
            steps, gamma, transform=transform, frame_stack=frame_stack, prev_rewards=prev_rewards
        )
        self.n, self.lead, self.period = 1, 0, 1
        self._streams = streams
        # The rows of a stream are N apart: no link need be read.
        self._places = np.arange(1 - frame_stack, steps + 1)[:, None] * streams

    def refusal(self, chunk: Chunk) -> str | None:
        """Refuses the last rows of an agent that ends: they are no whole unroll."""
        return "short unroll" if chunk.tail or not chunk.overlap else None

    def check(self, chunk: Chunk) -> None:
        """Raises DataError unless the chunk is an unroll of T steps, with the frames before it."""
        rows, streams = chunk.shape
        if rows - 1 != self.length or streams % self._streams:
            raise DataError(
                f"unroll of {rows - 1} steps x {streams} streams, expected "
                f"{self.length} x {self._streams}"
            )
        observed = [name for name in chunk.columns if name.partition("/")[0] == "obs"]
        found = {name: len(lead) for name, lead in chunk.lead_in.items()}
        if found != dict.fromkeys(observed if self._frames else (), self._frames):
            raise DataError(
                f"unroll from {chunk.sender}: lead-in frames {found or 'none'}, expected "
                f"{self._frames} of {', '.join(observed)}: env_config.frame_stack must be the same "
                "everywhere"
            )

    def find_losing(self, storage: ColumnStorage, oldest: int) -> Rows:
        """Returns nothing: unrolls are evicted as a whole."""
        return np.zeros(0, np.int64)

    def ready(self, storage: ColumnStorage, numbers: Rows, step_type: Array) -> tuple[Flags, Rows]:
        """Flags the first rows of a new unroll, ``[T + 1, N]``; no earlier row was waiting."""
        flags = np.zeros(numbers.shape, np.bool_)
        flags[0] = True
        return flags, np.zeros(0, np.int64)

    def ready_rows(self, storage: ColumnStorage) -> Flags:
        """Flags the first rows of the stored unrolls, ``[rows]``, the oldest first."""
        # An unroll has T + 1 rows of each stream behind its frames of lead-in, and none is in part.
        each = len(self._places) * self._streams
        place = np.arange(len(storage)) % each - self._frames * self._streams
        flags: Flags = (place >= 0) & (place < self._streams)
        return flags

    def window(self, storage: ColumnStorage, numbers: Rows) -> Rows:
        """Returns positions of the rows that unrolls see, ``[k - 1 + T + 1, B]``."""
        rows: Rows = storage.locate(numbers) + self._places
        return rows

    def state(self) -> dict[str, Any]:
        """Returns nothing: unrolls need no count of steps."""
        return {}

    def restore(self, state: Mapping[str, Any], storage: ColumnStorage) -> None:
        """Restores nothing."""


def make_sequence_view(learner_config: Config, env_config: Config) -> SequenceView:
    """Makes the view of ``learner_config.replay.sequence``.

    Raises:
        ConfigError: a sequence is longer than the replay, or there would be steps between two.
    """
    algo, replay = learner_config["algo"], learner_config["replay"]
    sequence = replay["sequence"]
    rows = sequence["burn_in"] + sequence["length"]
    if rows > replay["capacity"]:
        raise ConfigError(
            f"learner_config.replay.sequence has burn_in + length = {rows} rows, more than "
            f"learner_config.replay.capacity {replay['capacity']}: lower one or raise the other"
        )
    return SequenceView(
        sequence["length"],
        algo["gamma"],
        burn_in=sequence["burn_in"],
        period=sequence["period"],
        transform=make_reward_transform(algo),
        frame_stack=stack_size(env_config),
        prev_rewards=bool(learner_config["model"].get("memory_inputs")),
    )


def make_unroll_view(
    learner_config: Config, env_config: Config, shape: tuple[int, int]
) -> UnrollView:
    """Makes the view of unrolls of T steps of N streams, ``shape``."""
    algo = learner_config["algo"]
    return UnrollView(
        *shape,
        algo["gamma"],
        transform=make_reward_transform(algo),
        frame_stack=stack_size(env_config),
        prev_rewards=bool(learner_config["model"].get("memory_inputs")),
    )


class Stacker:
    """Makes the stacks of a batch of sequences of single frames, in memory that is reused."""

    def __init__(self) -> None:
        self._stacks: dict[str, Array] = {}

    def __call__(self, columns: Mapping[str, Array], batches: int) -> Iterator[Columns]:
        """Yields the one batch of a reply, valid until the next call; see :data:`Collate`."""
        batch, first = dict(columns), columns["first"]
        for name, column in columns.items():
            if name.partition("/")[0] == "obs" and len(column) > len(first):
                batch[name] = self._fill(name, column, first)
        yield batch

    def _fill(self, name: str, frames: Array, first: npt.NDArray[np.bool_]) -> Array:
        """Returns the stacks ``[T + 1, B, k, ...]``; ``first`` flags where episodes begin."""
        (rows, width), trailing = first.shape, frames.shape[2:]
        size = len(frames) - rows + 1
        shape = (rows, width, size, *trailing)
        stacks = self._stacks.get(name)
        if stacks is None or stacks.shape != shape or stacks.dtype != frames.dtype:
            stacks = self._stacks[name] = np.empty(shape, frames.dtype)
        places = (stack_rows(first, size) + (size - 1)) * width + np.arange(width)[:, None]
        # With a mode that checks indices numpy would fill a copy first.
        return frames.reshape(-1, *trailing).take(places, axis=0, out=stacks, mode="clip")
