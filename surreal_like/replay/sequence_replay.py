"""The table of sequences of episodes, drawn again and again by their priorities."""

from __future__ import annotations

from typing import Any

from session.errors import ConfigError
from surreal_like.data.batch import Collate
from surreal_like.data.frames import stack_size
from surreal_like.replay.prioritized_replay import PrioritizedReplay
from surreal_like.replay.selector import Sample
from surreal_like.replay.sequence_view import SequenceView, Stacker
from surreal_like.transform.reward import make_reward_transform


class SequenceReplay(PrioritizedReplay):
    """:class:`PrioritizedReplay` of sequences, for recurrent Q-learning.

    ``learner_config.replay.sequence`` has their length, burn-in and period. ``batch_size``,
    ``min_size`` and ``samples_per_insert`` count sequences, ``capacity`` rows. A batch is that of
    :class:`SequenceView`, with ``weights`` float32 and ``indices`` int64 ``[B]``; the priority of a
    sequence is the learner's (:func:`surreal_like.loss.sequence.sequence_priority`). With
    ``priority.alpha`` 0 sequences are drawn uniformly.

    Raises:
        ConfigError: a number of ``sequence`` or ``priority`` is out of its range.
    """

    relabels = reads_values = False
    view: SequenceView

    @classmethod
    def gives(cls) -> str:
        """Returns the content of a batch."""
        return "sequences"

    def make_view(self) -> None:
        """Makes the view of ``learner_config.replay.sequence``."""
        algo, replay = self.learner_config["algo"], self.learner_config["replay"]
        sequence = replay["sequence"]
        rows = sequence["burn_in"] + sequence["length"]
        if rows > replay["capacity"]:
            raise ConfigError(
                f"learner_config.replay.sequence has burn_in + length = {rows} rows, more than "
                f"learner_config.replay.capacity {replay['capacity']}: lower one or raise the other"
            )
        self.view = SequenceView(
            sequence["length"],
            algo["gamma"],
            burn_in=sequence["burn_in"],
            period=sequence["period"],
            transform=make_reward_transform(algo),
            frame_stack=stack_size(self.env_config),
        )

    def _require_room(self, rows: int, why: str = "") -> None:
        """Raises ConfigError if ``min_size`` sequences can never start in so many rows."""
        period, least = self.view.period, self.limiter.min_size
        room = rows - self._waiting_rows
        if least > room // period:
            raise ConfigError(
                f"min_size is {least} sequences, but {rows} rows of capacity{why and f' ({why})'} -"
                f" {self._waiting_rows} rows that wait for others ({self._waiting_words}) = {room},"
                f" in which {max(room // period, 0)} start, one each {period} rows: sampling would "
                "never start; lower min_size or raise the capacity"
            )

    def aggregate_batch(self, sample: Sample) -> dict[str, Any]:
        """Returns the sequences side by side; see :meth:`Table.aggregate_batch`."""
        return {**super().aggregate_batch(sample), "indices": sample.numbers}

    def batches_at_once(self, asked: int) -> int:
        """One, because time comes first in a batch."""
        return 1

    @classmethod
    def collate(cls, learner_config: Any) -> Collate:
        """Returns a function that makes the stacks of a batch, where observations are stacks."""
        return Stacker()
