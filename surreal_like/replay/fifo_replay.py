"""The table of whole unrolls: each is learned from once, oldest first, or again beside new ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from session.config import Config
from session.errors import ConfigError
from session.nest import Array
from surreal_like.data.batch import Collate, split
from surreal_like.data.frames import stack_size
from surreal_like.errors import DataError
from surreal_like.experience.chunk import GRADIENT as _COLUMN
from surreal_like.experience.chunk import Chunk
from surreal_like.replay import settings
from surreal_like.replay.limiter import Limiter
from surreal_like.replay.select.age import AgeRule
from surreal_like.replay.select.fifo import FIFOSelector
from surreal_like.replay.select.selector import Sample
from surreal_like.replay.settings import plan_unrolls
from surreal_like.replay.storage import (
    LINK_BYTES,
    ColumnStorage,
    Empty,
    Manifest,
    Rows,
    parse_columns,
)
from surreal_like.replay.table import Table
from surreal_like.replay.view.n_step import Flags, View
from surreal_like.replay.view.sequence import Stacker, UnrollView
from surreal_like.transform.reward import make_reward_transform


class FIFOReplay(Table):
    """A queue of whole unrolls for on-policy learners, and those already learned from.

    An unroll has ``session_config.sender.flush_iteration`` steps (T) of all streams of one agent.
    ``learner_config.replay.batch_size`` counts streams, ``capacity`` rows. A full queue makes
    agents wait, or drops its oldest unrolls where ``when_full`` is ``drop_oldest``; unrolls that
    were acted with parameters more than ``evict_rule.max_version_lag`` versions old are never
    learned from. Lost unrolls are counted.

    ``replay_proportion`` of the streams of each batch are drawn from the newest
    ``replay_capacity`` rows that have been learned from; until there are enough of them, batches
    hold new unrolls only. ``max_version_lag`` does not apply to replayed unrolls, which are old by
    intention; ``age`` bounds them. ``replayed``, bool ``[B]`` in each batch, flags their streams.
    They count as ``replayed``, not as ``sampled`` once more.

    Raises:
        ConfigError: a batch is no whole number of unrolls, or there is no room for one.
    """

    overlap = 1
    consumes = True
    relabels = iterates = False
    selector: FIFOSelector
    # Columns of a row; None: those of the first chunk.
    _manifest: Manifest | None = None

    def make_parts(self) -> None:
        """Makes a view of sequences, and a queue of them."""
        replay = self.learner_config["replay"]
        self.make_view()
        plan = self._plan
        self.limiter = Limiter(1)
        self._drops_oldest = replay["when_full"] == "drop_oldest"
        # Room for whole unrolls, so that none is evicted in part. It grows when more wait at once,
        # because a queue is mostly much emptier than its bound.
        self.storage = ColumnStorage(self._rows_each, manifest=self._manifest)
        self.selector = FIFOSelector(
            plan.num_envs,
            versions=self.versions,
            newest_version=lambda: self.newest_version,
            replayed=(plan.again, plan.batch),
            keep=plan.ring,
            rule=AgeRule.of(replay),
            seed=settings.default_seed(self.session_config),
        )

    def make_view(self) -> None:
        """Makes the view, and the sizes of the queue."""
        configs = (self.learner_config, self.env_config, self.session_config)
        plan = self._plan = plan_unrolls(*configs)
        algo, frames = self.learner_config["algo"], stack_size(self.env_config)
        # Rows of an unroll, with the row after it and the frames before it.
        self._lead = (frames - 1) * plan.num_envs
        self._rows_each = self._lead + (plan.steps + 1) * plan.num_envs
        transform = make_reward_transform(algo)
        self.view = UnrollView(
            plan.steps, plan.num_envs, algo["gamma"], transform=transform, frame_stack=frames
        )

    def refusal(self, chunk: Chunk) -> str | None:
        """Refuses the last rows of an agent that ends: they are no whole unroll."""
        return "short unroll" if chunk.tail or not chunk.overlap else None

    def check_start(self, row_bytes: int) -> None:
        """Raises ConfigError if there is no room for a batch of such rows, or no message for it."""
        self._plan.within_bytes(self._rows_each * row_bytes)
        settings.require_messages(
            self.env_config,
            self.session_config,
            row_bytes=row_bytes - LINK_BYTES,
            rows=self._plan.batch * (self._plan.steps + 1) * self._plan.num_envs,
        )

    def _check_room(self) -> None:
        """Applies ``max_bytes`` by the size of the first unroll: all are equally large."""
        self._plan = self._plan.within_bytes(self._rows_each * self.storage.row_bytes)
        self.selector.keep = self._plan.ring

    def insert(self, experience: Chunk) -> None:
        """Inserts an unroll; raises as :meth:`Table.insert`."""
        self._make_room()
        super().insert(experience)
        if self._drops_oldest:
            self.limiter.evict(self.selector.keep_newest(self._plan.queue))

    def _make_room(self) -> None:
        """Makes sure that another unroll takes the room of one that is not needed any more.

        Those that wait are never lost, also beyond the bound when the run ends.
        """
        storage, plan, each = self.storage, self._plan, self._rows_each
        excess = max(self.selector.waiting - plan.queue + 1, 0) if self._drops_oldest else 0
        needed = self.selector.needed(excess)
        if len(needed) * each >= storage.capacity:
            most, twice = (plan.queue + plan.ring) * each, 2 * storage.capacity
            storage.grow(min(twice, most) if storage.capacity < most else twice)
        while (oldest := storage.next_number - storage.capacity + self._lead) in needed:
            storage.renew(each)
            self.selector.renumber(oldest, oldest + storage.capacity)

    def evict(self) -> int:
        """Removes unrolls that are too old to be learned from; returns how many rows these were."""
        lag, oldest = self._rule["max_version_lag"], self.since
        if lag:
            oldest = max(oldest, self.newest_version - lag)
        if not oldest:
            return 0
        gone = self.selector.drop_older(oldest)
        self.limiter.evict(gone)
        return gone * self._plan.steps

    def can_insert(self) -> bool:
        """True if the queue has room for another unroll, or makes room."""
        return self._drops_oldest or self.selector.waiting < self._plan.queue

    def can_sample(self, batch_size: int) -> bool:
        """True if there are unrolls of so many streams that are young enough."""
        self.evict()
        return len(self.selector) >= self.selector.fresh(batch_size)

    def needed_rows(self, batch_size: int) -> int:
        """Rows of the unrolls of a batch that must be new."""
        return self.selector.fresh(batch_size) * self._plan.steps

    def undo_sample(self) -> None:
        """Puts the unrolls of the newest batch back to the front of the queue."""
        self.selector.undo_sample()
        self.limiter.sample(-self._newest.fresh)
        self.limiter.evict(-self._newest.fresh)
        self._newest = Sample(self._newest.numbers[:0], {})

    def batches_at_once(self, asked: int) -> int:
        """One, because batches that wait in the learner grow older."""
        return 1

    def statistics(self) -> dict[str, float]:
        """Rows that wait, that may be replayed, and since the start; bytes of the storage.

        ``inserted = size + sampled + evicted``.
        """
        limiter, selector = self.limiter, self.selector
        samples = {
            "size": limiter.size,
            "sampleable": limiter.size,
            "replayable": selector.replayable,
            "inserted": limiter.inserted,
            "sampled": limiter.sampled,
            "replayed": selector.replayed,
            "evicted": limiter.inserted - limiter.sampled - limiter.size,
        }
        rows = {name: count * self._plan.steps for name, count in samples.items()}
        return {**rows, "size_bytes": self.storage.size_bytes}

    def state(self) -> dict[str, Any]:
        """Everything that is kept; see :meth:`Table.state`."""
        return {**super().state(), "unroll": self._unroll}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state` gave; a shorter queue accepts nothing until it has room.

        Unrolls that are longer or wider than those that come now are left out.

        Raises:
            ConfigError: unrolls of so many bytes must deadlock.
        """
        if state["unroll"] != self._unroll:
            self.newest_version = state["newest_version"]
            return
        self.storage.capacity = max(self.storage.capacity, state["storage"]["capacity"])
        super().restore(state)
        if self.storage.names:
            self._check_room()

    @property
    def _unroll(self) -> list[int]:
        return [self._plan.steps, self._plan.num_envs, self._rows_each]

    @classmethod
    def collate(cls, learner_config: Mapping[str, Any]) -> Collate:
        """Returns a function that makes the stacks of a batch, where observations are stacks."""
        return Stacker()


# Columns below `extras/`: the gradient, float32 [P]; the number of its rows with an action, int64.
GRADIENT = _COLUMN.removeprefix("extras/")
ROWS = "rows"
_ROWS = f"extras/{ROWS}"


class GradientView(View):
    """Gives rows as they are; each is a gradient."""

    def check(self, chunk: Chunk) -> None:
        """Raises DataError unless the chunk is one gradient, float32 ``[1, 1, P]`` and finite."""
        gradient = chunk.columns.get(_COLUMN)
        if gradient is None or chunk.shape != (1, 1) or chunk.overlap:
            raise DataError(
                f"chunk {list(chunk.shape)} from {chunk.sender}, expected one gradient in a column "
                f"{_COLUMN!r} [1, 1, P]: learner_config.gradients_at must be agent everywhere"
            )
        if gradient.dtype != np.float32 or gradient.ndim != 3:
            raise DataError(
                f"gradient from {chunk.sender}: {gradient.dtype} {list(gradient.shape)}, expected "
                "float32 [1, 1, P]"
            )
        if not np.isfinite(gradient).all():
            raise DataError(f"gradient from {chunk.sender}: holds a NaN or an infinity")

    def ready(self, storage: ColumnStorage, numbers: Rows, step_type: Array) -> tuple[Flags, Rows]:
        """Flags the new row."""
        return np.ones(numbers.shape, np.bool_), np.zeros(0, np.int64)

    def ready_rows(self, storage: ColumnStorage) -> Flags:
        """Flags all rows."""
        return np.ones(len(storage), np.bool_)

    def versions(self, storage: ColumnStorage, numbers: Rows) -> Rows:
        """Returns the versions of the rows."""
        versions: Rows = storage.take("version", storage.locate(numbers))
        return versions

    def gather(
        self, storage: ColumnStorage, numbers: Rows, empty: Empty | None = None
    ) -> dict[str, Array]:
        """Returns ``version`` and all ``extras/...``, ``[B, ...]``.

        Raises:
            DataError: a row has been evicted.
        """
        storage.require(numbers)
        rows = storage.locate(numbers)
        return {
            name: storage.take(name, rows, empty if name == _COLUMN else None)
            for name in storage.names
            if name == "version" or name.startswith("extras/")
        }


class GradientReplay(FIFOReplay):
    """A queue of gradients, in place of the unrolls that agents have made them of.

    ``learner_config.replay.batch_size``, ``capacity`` and all counts are of gradients; none is
    given again. Otherwise it is a FIFOReplay.

    Raises:
        ConfigError: a share of a batch is to be replayed, or there is no room for a batch.
    """

    def make_view(self) -> None:
        if share := self.learner_config["replay"]["replay_proportion"]:
            raise ConfigError(
                f"learner_config.replay.replay_proportion is {share:g}, but gradients that agents "
                "have made (learner_config.gradients_at) are used once: set it to 0"
            )
        # As unrolls of one step of one stream.
        self._env = Config({"num_envs": 1})
        self._session = Config(
            {
                "sender": {"flush_iteration": 1},
                "max_message_bytes": self.session_config["max_message_bytes"],
            }
        )
        self._plan = plan_unrolls(self.learner_config, self._env, self._session)
        self._lead, self._rows_each = 0, 1
        # Else the first gradient, which may be wrong, would decide about all.
        self._manifest = parse_columns(self.learner_config["gradient_columns"]) or None
        self.view = GradientView()

    @classmethod
    def gives(cls) -> str:
        return "gradients"

    def refusal(self, chunk: Chunk) -> str | None:
        """Refuses gradients of no row with an action: an agent ended as an unroll began."""
        rows = chunk.columns.get(_ROWS)
        return "empty unroll" if rows is not None and not rows.any() else None

    def check_start(self, row_bytes: int) -> None:
        self._plan.within_bytes(row_bytes)
        settings.require_messages(
            self._env, self._session, row_bytes=row_bytes - LINK_BYTES, rows=self._plan.batch
        )

    @classmethod
    def collate(cls, learner_config: Mapping[str, Any]) -> Collate:
        """Returns the function that makes batches."""
        return split
