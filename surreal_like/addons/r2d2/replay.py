"""The replay of sequences, and its view.

Observations may be stacks of frames, as those of :class:`UnrollView`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.errors import ConfigError
from session.nest import Array
from surreal_like.addons.episodes.episode_index import EpisodeIndex, predecessors
from surreal_like.data.frames import stack_size
from surreal_like.data.timestep import FIRST, LAST, Flags
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.kinds import PrioritizedReplay
from surreal_like.replay.storage import ColumnStorage, Empty, Rows, spans
from surreal_like.replay.view.n_step import NStepView, View
from surreal_like.replay.view.unroll import UnrollView
from surreal_like.transform.reward import RewardTransform, make_reward_transform


class SequenceReplay(PrioritizedReplay):
    """:class:`PrioritizedReplay` of sequences, for recurrent Q-learning.

    ``learner_config.replay.sequence`` has their length, burn-in and period. ``batch_size``,
    ``min_size`` and ``samples_per_insert`` count sequences, ``capacity`` rows. A batch is that of
    :class:`SequenceView`, with ``weights`` float32 and ``indices`` int64 ``[B]``; the priority of a
    sequence is the learner's (:func:`surreal_like.addons.r2d2.r2d2.sequence_priority`). With
    ``priority.alpha`` 0 sequences are drawn uniformly.

    Raises:
        ConfigError: a number of ``sequence`` or ``priority`` is out of its range.
    """

    relabels = reads_values = False
    view: SequenceView

    @classmethod
    def gives(cls) -> str:
        return "sequences"

    @classmethod
    def steps_of_sample(cls, learner_config: Mapping[str, Any]) -> tuple[int, int]:
        sequence = learner_config["replay"]["sequence"]
        return sequence["burn_in"], sequence["length"]

    @classmethod
    def make_view(cls, learner_config: Config, env_config: Config, shape: tuple[int, int]) -> View:
        """Makes the view of ``learner_config.replay.sequence``."""
        return make_sequence_view(learner_config, env_config)


class SequenceView(UnrollView):
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
        super().__init__(
            length,
            1,
            gamma,
            transform=transform,
            frame_stack=frame_stack,
            prev_rewards=prev_rewards,
        )
        self.period = period or length
        if self.period > length:
            raise ConfigError(
                f"replay.sequence.period is {self.period}, but length is {length}: steps between "
                "two sequences would never be learned from; lower the period"
            )
        self.n = -(-length // self.period)
        self.burn_in = burn_in
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

    def refusal(self, chunk: Chunk) -> str | None:
        """Refuses nothing."""
        return None

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

    def flag_first(self, step_type: Array, rows: Rows) -> Flags:
        """Flags rows that begin an episode: of the copies of a first row only the row itself."""
        first = super().flag_first(step_type, rows)
        first[: self.burn_in] &= rows[: self.burn_in] != rows[1 : self.burn_in + 1]
        return first

    def gather(
        self, storage: ColumnStorage, numbers: Rows, empty: Empty | None = None
    ) -> dict[str, Array]:
        """Returns sequences of T = ``burn_in`` + ``length`` steps, with a mask of 0 in the burn-in.

        Otherwise as :meth:`UnrollView.gather`.
        """
        batch = super().gather(storage, numbers, empty)
        batch["mask"][: self.burn_in] = 0.0
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
