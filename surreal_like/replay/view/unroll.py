"""Samples with time first, gathered from rows when they are drawn. Here: whole unrolls.

Row t holds the reward and the discount that led to it, and a sample of T steps has T + 1 rows.
Observations may be stacks of frames: a batch that travels holds single frames, those before its
first row included, and :class:`Stacker` makes the stacks where the batch is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.nest import Array
from surreal_like.data.batch import Columns
from surreal_like.data.frames import stack_rows, stack_size
from surreal_like.data.timestep import FIRST, LAST, Flags
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.storage import SENDER, ColumnStorage, Empty, Rows
from surreal_like.replay.view.n_step import View
from surreal_like.transform.reward import RewardTransform, make_reward_transform

_OF_STEPS = ("action", "extras", "version", SENDER)


class UnrollView(View):
    """Makes the first row of each whole unroll the start of a sample of its T steps.

    An unroll is one chunk, and may hold several episodes. The state of a recurrent network is a
    column.

    Args:
        steps: T.
        streams: N, the streams of a chunk.
        gamma: discount per step, multiplied with the environment's own.
        transform: changes single rewards.
        frame_stack: frames of an observation; with 1 it is the one of its row.
        prev_rewards: adds the rewards before all rows.
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
        self.length = self.rows_each = steps
        self.prev_rewards = prev_rewards
        self._gamma = np.float32(gamma)
        self._transform = transform or RewardTransform()
        self._frames = frame_stack - 1
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

    def versions(self, storage: ColumnStorage, numbers: Rows) -> Rows:
        """Returns the oldest version that acted in each sample, ``[B]`` int64."""
        rows = self.window(storage, numbers)[self._frames :]
        oldest: Rows = storage.take("version", rows).min(axis=0)
        return oldest

    def window(self, storage: ColumnStorage, numbers: Rows) -> Rows:
        """Returns positions of the rows that unrolls see, ``[k - 1 + T + 1, B]``."""
        rows: Rows = storage.locate(numbers) + self._places
        return rows

    def flag_first(self, step_type: Array, rows: Rows) -> Flags:
        """Flags rows ``[T + 1, B]`` that begin an episode, by their step types and positions."""
        flags: Flags = step_type == FIRST
        return flags

    def gather(
        self, storage: ColumnStorage, numbers: Rows, empty: Empty | None = None
    ) -> dict[str, Array]:
        """Returns the samples that start at some rows, side by side; see :meth:`View.gather`.

        Returns:
            Time first. ``obs`` (``obs/<path>``) and ``first`` bool (an episode begins there)
            ``[T + 1, B, ...]`` (with stacks of k the single frames ``[k - 1 + T + 1, B, ...]``, see
            :class:`Stacker`); ``actions``, ``extras/<name>`` and ``version`` ``[T, B, ...]``;
            ``rewards`` of the actions, ``discounts`` (gamma included), ``dones`` (1 where the step
            ends in a termination) and ``mask`` (0 at rows that no action was taken from: an episode
            had ended) float32 ``[T, B]``. With :attr:`prev_rewards`
            ``prev_rewards``, 0 where an episode begins, float32 ``[T + 1, B]``.
        """
        storage.require(numbers)
        seen = self.window(storage, numbers)
        rows = seen[self._frames :]
        after, acted = rows[1:], rows[:-1]
        step_type, discount = storage.take("step_type", rows), storage.take("discount", after)
        ended = step_type[1:] == LAST
        first = self.flag_first(step_type, rows)
        batch: dict[str, Array] = {
            "first": first,
            "rewards": self._transform(storage.take("reward", after)),
            "discounts": self._gamma * discount,
            "dones": (ended & (discount == 0.0)).astype(np.float32),
            "mask": (step_type[:-1] != LAST).astype(np.float32),
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
    """Makes the stacks of a batch of single frames with time first, in memory that is reused."""

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
