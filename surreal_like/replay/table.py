"""Table: one replay, made of view, selector, limiter and storage."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.addons.hooks import VIEW
from session.config import Config
from session.nest import Array
from surreal_like.data.batch import Collate, split
from surreal_like.data.columns import Manifest, recorded_columns
from surreal_like.errors import unwritten
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.row_accounts import UNLEARNED
from surreal_like.replay.kept_memory import Zeros
from surreal_like.replay.limiter import Turns
from surreal_like.replay.replay import Replay
from surreal_like.replay.select.age import AgeRule, Versions
from surreal_like.replay.select.selector import Sample, Selector
from surreal_like.replay.settings import RowPlan, default_seed, may_have_guests
from surreal_like.replay.storage import FENCED, NO_SENDER, SENDER, ColumnStorage, Rows
from surreal_like.replay.unrolls import UnrollPlan
from surreal_like.replay.view.n_step import View, make_n_step_view
from surreal_like.replay.view.unroll import Stacker

_NONE: Rows = np.zeros(0, np.int64)


class Table(Replay):
    """Keeps the newest rows in columns; a kind of replay is a choice of parts.

    A kind overrides :meth:`make_selector`, and where it needs others :meth:`make_view`,
    :meth:`make_plan` and :meth:`make_storage`.

    Attributes:
        view: makes the batch of the chosen rows and their neighbours.
        plan: sizes of this shard.
        limiter: decides when rows may go in and out.
        selector: chooses among the sampleable rows.
        storage: the rows, one column each.

    Raises:
        ConfigError: the settings must deadlock, or are another replay's.
    """

    relabels = iterates = True

    def __init__(
        self, *, learner_config: Config, env_config: Config, session_config: Config
    ) -> None:
        super().__init__(
            learner_config=learner_config, env_config=env_config, session_config=session_config
        )
        replay, seed = learner_config["replay"], default_seed(session_config)
        self.view = self._choose_view(seed)
        self.plan = self.make_plan()
        self.limiter = self.plan.make_limiter()
        self._names_senders = self.gives() != "gradients" and may_have_guests(session_config)
        self.storage = self.make_storage()
        self.selector = self.make_selector(self.plan.capacity, seed)
        self._lag: int = replay["evict_rule"]["max_version_lag"]
        self._minds_versions = self.consumes or bool(self._lag) or AgeRule.of(replay).matters
        self._newest = Sample(_NONE, {})
        # Removed from a queue, or from a training, by a roll-back.
        self._rolled_back = 0
        # Samples that a queue has removed since the start of this process, by fate.
        self._gone = dict.fromkeys(UNLEARNED, 0)

    # -- the parts of a kind ---------------------------------------------------------------------

    @classmethod
    def make_view(cls, learner_config: Config, env_config: Config, shape: tuple[int, int]) -> View:
        """Makes the view: here of transitions over n steps.

        Args:
            learner_config, env_config: configs of the experiment.
            shape: steps and streams of a whole chunk.
        """
        return make_n_step_view(learner_config, env_config)

    def _choose_view(self, seed: int) -> View:
        """Returns the view of an add-on if the settings ask for it, else that of this kind."""
        other: View | None = next(filter(None, (make(self, seed) for make in VIEW)), None)
        shape = self.session_config["sender"]["flush_iteration"], self.env_config["num_envs"]
        return other or self.make_view(self.learner_config, self.env_config, shape)

    def make_plan(self) -> RowPlan | UnrollPlan:
        """Makes the sizes of this shard: here in rows."""
        return RowPlan(self.learner_config, self.env_config, self.session_config, self.view)

    def make_storage(self) -> ColumnStorage:
        """Makes the storage: here a ring of rows."""
        return ColumnStorage(self.plan.capacity, self.plan.max_bytes, self.columns)

    @property
    def columns(self) -> Manifest | None:
        """Columns of the rows that are kept; None: those of the first chunk."""
        recorded = recorded_columns(self.learner_config)
        if recorded is None or not self._names_senders:
            return recorded
        return {**recorded, SENDER: (np.dtype(np.int32), ())}

    def make_selector(self, capacity: int, seed: int) -> Selector:
        """Makes the selector of this kind, for at most ``capacity`` rows."""
        raise unwritten(self, "make_selector(capacity, seed)", "your_own_replay.md")

    def versions(self, numbers: Rows) -> Versions:
        """Returns the oldest version that acted in each sample, by its first row, ``[B]`` int64."""
        return self.view.versions(self.storage, numbers)

    # -- rows in ---------------------------------------------------------------------------------

    def check_start(self, row_bytes: int) -> None:
        batches = self.session_config["learner"]["batches_per_request"]
        self.plan.check_start(row_bytes, self.batches_at_once(batches))

    def refusal(self, chunk: Chunk) -> str | None:
        return self.view.refusal(chunk)

    def insert(self, experience: Chunk) -> None:
        """Inserts a chunk; the oldest rows make room for it.

        Raises:
            DataError: its columns are not those that are kept here; nothing is changed then.
            ConfigError: chunks of this size, or rows of this size, must deadlock.
        """
        chunk, storage = experience, self.storage
        if self._names_senders:
            senders = np.full(chunk.columns["step_type"].shape, chunk.account, np.int32)
            chunk.columns = {**chunk.columns, SENDER: senders}
        self.view.check(chunk)
        opening = not storage.next_number
        losing = _NONE
        if self.view.lead:
            losing = self.view.find_losing(storage, storage.oldest_after(chunk))
        numbers = storage.insert(chunk)
        steps, streams = numbers.shape
        self.limiter.expect(chunk_rows=(steps + self.view.n - 1) * streams)
        if opening:
            self.plan.fit(storage.row_bytes)
        self._clear(losing)
        ready, earlier = self.view.ready(storage, numbers, chunk.columns["step_type"])
        before = len(self.selector)
        self.selector.add(numbers, ready, earlier)
        self.limiter.insert(len(self.selector) - before, steps * streams)
        self.limiter.require_start(storage.next_number, storage.capacity)
        # A guest may say that it has a version which is not published yet.
        if self._minds_versions and not chunk.joined:
            self.newest_version = max(self.newest_version, int(chunk.columns["version"].max()))

    def on_learner(self, *, iteration: int = 0, **progress: Any) -> None:
        super().on_learner(iteration=iteration, **progress)
        if iteration and self.learner_config["algo"].get("synchronous", False):
            # In a run that has learned before, agents do not send the rows for the first training.
            self.limiter.first = 0

    def can_insert(self) -> bool:
        """True if the limiter allows another chunk, or if no row can be drawn without it."""
        return self.limiter.can_insert() or not self.selector.drawable

    # -- rows that go ----------------------------------------------------------------------------

    def evict(self) -> int:
        """Removes from a queue what is too old; returns how many rows.

        Those are samples older than ``learner_config.replay.evict_rule`` allows, or of before a
        trial took over another.
        """
        if not self.consumes:
            return 0
        total, oldest = 0, self.newest_version - self._lag if self._lag else 0
        for fate, version in (("taken_over", self.since), ("too_old", oldest)):
            gone = self.selector.drop_older(version) if version > 0 else 0
            self.limiter.evict(gone)
            self._gone[fate] += gone
            total += gone
        return total * self.plan.unit

    def _remove_before(self, oldest: int) -> None:
        losing = self.view.find_losing(self.storage, oldest)
        self.storage.evict(oldest)
        self._clear(losing)

    def _clear(self, losing: Rows) -> None:
        """Removes evicted rows, and rows that need them for their stacks, from the selector."""
        oldest = self.storage.oldest
        gone = self.selector.evict(oldest)
        self._gone["overflowed"] += gone
        if len(losing):
            gone += self.selector.unmark(losing)
        self.limiter.evict(gone)

    def fence(self, accounts: Collection[int]) -> None:
        if self._names_senders and len(self.storage):
            gone = self.selector.unmark(self.storage.fence(accounts))
            self.limiter.evict(gone)
            self._gone["fenced"] += gone

    def forget_senders(self) -> None:
        if self._names_senders and self.storage.names:
            self.storage.forget_senders()

    def roll_back(self, end: int) -> int:
        if self.keeps:
            gone = self.storage.cut(end)
            self._recall(self.counts())
            return gone
        storage = self.storage
        gone = len(self.selector) if self.consumes else len(storage)
        self.limiter.evict(self.selector.unmark(np.arange(storage.oldest, storage.next_number)))
        self.limiter.abandon()
        if not self.consumes:
            self._remove_before(storage.next_number)
        self._rolled_back += gone
        return gone * self.plan.unit

    # -- batches out -----------------------------------------------------------------------------

    def sample(self, batch_size: int) -> Sample:
        """Returns numbers of rows where samples start, and further columns such as weights.

        Raises:
            SurrealError: no row can be sampled now.
        """
        sample = self._newest = self.limiter.draw(self.selector, batch_size)
        fresh = sample.fresh
        self.limiter.sample(fresh)
        if self.consumes:
            self.limiter.evict(fresh)
        return sample

    def aggregate_batch(self, sample: Sample) -> dict[str, Array]:
        """Returns the samples as columns; see ``gather`` of the view, and :class:`Sample`.

        Raises:
            DataError: a row has been evicted since.
        """
        batch = {**self.view.gather(self.storage, sample.numbers, self.empty), **sample.columns}
        self.last = self.limiter.over
        if self.last and self.limiter.end_training():
            # Rows that lack successors, and what these need, stay: their turn comes next time.
            self.limiter.evict(self.selector.unmark(self.selector.list_rows()))
            self._remove_before(self.view.needed_from(self.storage))
        return batch

    def undo_sample(self) -> None:
        """Puts the newest sample back where each is given only once."""
        self.selector.undo_sample()
        if self.consumes:
            self.limiter.sample(-self._newest.fresh)
            self.limiter.evict(-self._newest.fresh)
            self._newest = Sample(_NONE, {})

    def batches_at_once(self, asked: int) -> int:
        """One where time comes first in a batch, its size varies, or batches that wait grow old."""
        alike = self.gives() == "rows" and self.limiter.over is None
        return asked if alike else 1

    def rows_in(self, batch_size: int) -> int:
        return self._newest.fresh * self.view.rows_each

    @property
    def mass(self) -> float:
        """Sum of the weights with which rows are drawn."""
        return self.selector.mass

    def start_sample_condition(self) -> bool:
        """True if the shard's part of ``learner_config.replay.min_size`` can be sampled."""
        return self.limiter.size >= self.limiter.min_size

    def can_sample(self, batch_size: int) -> bool:
        """True if there is enough to sample from and the limiter allows so many rows."""
        if self.consumes:
            self.evict()
        self.limiter.expect(request_rows=batch_size)
        enough = self.start_sample_condition() and self.selector.drawable > 0
        return enough and self.limiter.can_sample(self.selector.fresh(batch_size))

    def needed_rows(self, batch_size: int) -> int:
        """Rows that a request waits for; 0 if it waits for none."""
        return self.limiter.needed(self.selector.fresh(batch_size)) * self.plan.unit

    def update_priorities(self, indices: npt.NDArray[Any], priorities: npt.NDArray[Any]) -> None:
        self.selector.update(indices, np.asarray(priorities, np.float32))

    @classmethod
    def collate(cls, learner_config: Mapping[str, Any]) -> Collate:
        """Returns the function that makes batches; with time first it makes stacks of frames."""
        return Stacker() if cls.gives() in ("sequences", "unrolls") else split

    # -- numbers and saving ----------------------------------------------------------------------

    @property
    def keeps(self) -> bool:
        """True where rows are sampled again and again: a queue and a training are soon over."""
        return not self.consumes and not isinstance(self.limiter, Turns)

    def keep_in(self, zeros: Zeros) -> None:
        self.storage.zeros = zeros
        self.selector.keep_in(zeros)
        self.limiter.keep_in(zeros)

    def counts(self) -> dict[str, Any]:
        return {
            "storage": self.storage.counts(),
            "selector": self.selector.counts(),
            "limiter": self.limiter.state(),
            "newest_version": self.newest_version,
        }

    def adopt(self, counts: Mapping[str, Any]) -> None:
        self.storage.adopt(counts["storage"])
        self._recall(counts)
        self.limiter.adopt({**counts["limiter"], "size": len(self.selector)})

    def _recall(self, counts: Mapping[str, Any]) -> None:
        """Makes all parts anew of what :meth:`counts` gave and of what the arrays hold."""
        storage = self.storage
        numbers = np.arange(storage.oldest, storage.next_number)
        parts = {
            "view": self.view.recall(storage),
            "selector": self.selector.recall(counts["selector"], numbers),
        }
        self._restore_parts({**counts, **parts})

    def reseed(self, seed: int) -> None:
        """Draws rows with another seed from now on."""
        for part in (self.selector, self.limiter, self.view):
            part.reseed(seed)

    def statistics(self) -> dict[str, float]:
        """Rows: kept, sampleable, and since the start inserted, sampled, evicted; bytes.

        In a queue ``inserted = size + sampled + evicted``. The selector adds its own numbers; as
        all that count samples they are multiplied by ``plan.unit``, the rows of a sample. Those of
        the view are not.
        """
        storage, limiter, sampleable = self.storage, self.limiter, len(self.selector)
        if self.consumes:
            size, inserted = sampleable, limiter.inserted
            evicted = inserted - limiter.sampled - size
        else:
            size, inserted, evicted = len(storage), storage.next_number, storage.oldest
        evicted -= self._rolled_back
        counts = {
            "size": size,
            "sampleable": sampleable,
            "inserted": inserted,
            "sampled": limiter.sampled,
            "evicted": evicted,
            **self.selector.statistics(),
        }
        rows = {name: count * self.plan.unit for name, count in counts.items()}
        return {**rows, "size_bytes": storage.size_bytes, **self.view.statistics()}

    def count_unlearned(self) -> dict[str, int]:
        if not self.consumes:
            return {}
        samples = {**self._gone, "waiting": len(self.selector)}
        return {name: count * self.plan.unit for name, count in samples.items()}

    def state(self) -> dict[str, Any]:
        """Everything that is kept.

        The arrays are views on the ring: write or copy them before the next insert.
        """
        state = {
            "storage": self.storage.state(),
            "selector": self.selector.state(),
            "limiter": self.limiter.state(),
            "view": self.view.state(),
            "newest_version": self.newest_version,
            **self.plan.shape,
        }
        if isinstance(self.limiter, Turns):
            ready = self.storage.oldest + np.flatnonzero(self.view.ready_rows(self.storage))
            state["learned"] = np.setdiff1d(ready, self.selector.list_rows())
            state["iteration"] = self.limiter.turn_state()
            state["selector"] |= self.limiter.order_state()
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state` gave, also with another capacity or another n.

        A shorter queue accepts nothing until it has room. Unrolls that are longer or wider than
        those that come now are left out.

        Raises:
            ConfigError: rows of so many bytes must deadlock.
        """
        if any(state.get(name) != here for name, here in self.plan.shape.items()):
            self.newest_version = state["newest_version"]
            return
        saved = dict(state["storage"])
        saved["columns"] = self._set_senders(saved["columns"])
        self.storage.restore(saved)
        self._restore_parts(state)

    def _set_senders(self, columns: Mapping[str, Array]) -> Mapping[str, Array]:
        """Adds the column of senders to a snapshot, or removes it: a setting may have changed."""
        others = {name: column for name, column in columns.items() if name != SENDER}
        if not others or not self._names_senders:
            return others
        rows = len(next(iter(others.values())))
        return {SENDER: np.full(rows, NO_SENDER, np.int32), **columns}

    def _restore_parts(self, state: Mapping[str, Any]) -> None:
        """Restores all but the storage."""
        self.newest_version, storage = state["newest_version"], self.storage
        self.view.restore(state["view"], storage)
        ready = self.view.ready_rows(storage)
        if self._names_senders and len(storage):
            ready = ready & (np.concatenate(storage.read(SENDER)) != FENCED)
        self.selector.restore(state["selector"], storage.oldest, ready)
        self.limiter.restore({**state["limiter"], "size": len(self.selector)})
        if isinstance(self.limiter, Turns) and "iteration" in state:
            self.limiter.restore_turn(state["iteration"], state["selector"])
            learned = np.asarray(state["learned"], np.int64)
            self.limiter.evict(self.selector.unmark(learned[learned >= storage.oldest]))
        if storage.names:
            self.plan.fit(storage.row_bytes)
