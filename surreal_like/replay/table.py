"""Table: one replay, made of storage, selector, limiter and view."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.config import Config
from surreal_like.errors import unwritten
from surreal_like.experience.chunk import Chunk
from surreal_like.replay import settings
from surreal_like.replay.base import Replay
from surreal_like.replay.iteration import EpochSelector, Iteration, make_iteration
from surreal_like.replay.limiter import Limiter
from surreal_like.replay.select.age import AgeRule, Versions
from surreal_like.replay.select.selector import Sample, Selector
from surreal_like.replay.storage import LINK_BYTES, ColumnStorage, Rows
from surreal_like.replay.view.hindsight import make_hindsight_view
from surreal_like.replay.view.n_step import View

_NONE: Rows = np.zeros(0, np.int64)


class Table(Replay):
    """Keeps the newest rows in columns; a kind of replay is a choice of parts.

    Capacity, minimum size and bounds in ``learner_config.replay`` are those of the experiment; one
    shard has its part of each.

    Attributes:
        storage: the rows, one column each.
        selector: chooses among the sampleable rows; :meth:`make_selector` is what a kind overrides.
        limiter: decides when rows may go in and out.
        turns: decides it where rows are collected and learned from in turns; else None.
        view: makes the batch of the chosen rows and their neighbours.

    Raises:
        ConfigError: the settings must deadlock, or are another replay's.
    """

    relabels = iterates = True
    turns: Iteration | None = None

    def __init__(
        self, *, learner_config: Config, env_config: Config, session_config: Config
    ) -> None:
        super().__init__(
            learner_config=learner_config, env_config=env_config, session_config=session_config
        )
        replay = learner_config["replay"]
        self.make_parts()
        self._rule = dict(replay["evict_rule"])
        self._rule["max_rows"] = settings.shard_of(self._rule["max_rows"], learner_config)
        lag = bool(self._rule["max_version_lag"])
        self._minds_versions = self.consumes or lag or AgeRule.of(replay).matters
        self._ages: deque[tuple[int, float]] = deque()  # (row after a chunk, time of its insert)
        self._newest = Sample(_NONE, {})

    def make_parts(self) -> None:
        """Makes the four parts; here those of a table of rows."""
        configs = (self.learner_config, self.env_config, self.session_config)
        replay = self.learner_config["replay"]
        self.make_view()
        view = self.view
        capacity = settings.shard_of(replay["capacity"], self.learner_config)
        self._waiting_rows = settings.waiting_rows(*configs, n=view.waiting)
        self._waiting_words = settings.waiting_words(*configs[1:], n=view.waiting)
        self.turns = make_iteration(*configs, waiting=self._waiting_rows)
        limits = settings.limits(*configs, n=view.n)
        if self.turns is not None:
            limits["min_size"] = 1
        self.limiter: Limiter = Limiter(**limits)
        self._capacity = capacity
        self._max_bytes = settings.shard_of(replay["max_bytes"], self.learner_config)
        settings.require_none_replayed(self.learner_config)
        self._require_room(capacity)
        self.storage = ColumnStorage(capacity, self._max_bytes)
        seed = settings.default_seed(self.session_config)
        self.selector = self.make_selector(capacity, seed)
        if self.turns is not None:
            self.selector = EpochSelector(self.selector, self.turns, seed=seed)

    def make_view(self) -> None:
        """Makes the view: here of transitions over n steps, with goals in hindsight if wanted."""
        configs = self.learner_config, self.env_config
        self.view: View = settings.make_view(*configs)
        if self.learner_config["replay"]["hindsight"]["proportion"]:
            self.view = make_hindsight_view(
                *configs,
                seed=settings.default_seed(self.session_config),
                event=lambda kind, detail: self.log.event(kind, detail),
            )

    def make_selector(self, capacity: int, seed: int) -> Selector:
        """Makes the selector of this kind, for at most ``capacity`` rows."""
        raise unwritten(self, "make_selector(capacity, seed)", "your_own_replay.md")

    def versions(self, numbers: Rows) -> Versions:
        """Returns the oldest version that acted in each sample, by its first row, ``[B]`` int64."""
        return self.view.versions(self.storage, numbers)

    def check_start(self, row_bytes: int) -> None:
        """Raises ConfigError if rows of so many bytes must deadlock."""
        rows, why = self._room(row_bytes)
        self._require_room(rows, why)
        settings.require_eviction(self.learner_config, self.session_config)
        kept = self._rule["max_rows"]
        if kept and self.session_config["replay"]["evict_interval"]:
            self._require_room(kept, "evict_rule.max_rows")
        settings.require_room_for_a_chunk(rows, self.env_config, self.session_config, why)
        batches = self.session_config["learner"]["batches_per_request"]
        settings.require_messages(
            self.env_config,
            self.session_config,
            row_bytes=row_bytes - LINK_BYTES,
            rows=self.learner_config["replay"]["batch_size"]
            * self.batches_at_once(batches)
            * self.view.rows_each,
        )

    def _require_room(self, rows: int, why: str = "") -> None:
        waiting = self._waiting_words
        self.limiter.require_room(rows, self._waiting_rows, why, waiting=waiting)

    def _room(self, row_bytes: int) -> tuple[int, str]:
        """Returns the rows that fit, and the arithmetic if that is not the capacity."""
        rows = self._max_bytes // row_bytes if self._max_bytes else self._capacity
        if rows >= self._capacity:
            return self._capacity, ""
        return rows, f"{self._max_bytes} bytes of max_bytes / {row_bytes} bytes of a row"

    def _check_room(self) -> None:
        """Raises ConfigError if rows are too large; the first chunk shows how large they are."""
        rows, why = self._room(self.storage.row_bytes)
        self._require_room(rows, why)

    def insert(self, experience: Chunk) -> None:
        """Inserts a chunk; the oldest rows make room for it.

        Raises:
            DataError: its columns are not those that are kept here; nothing is changed then.
            ConfigError: chunks of this size, or rows of this size, must deadlock.
        """
        chunk, storage = experience, self.storage
        self.view.check(chunk)
        opening = not storage.next_number
        losing = _NONE
        if self.view.lead:
            losing = self.view.losing(storage, storage.oldest_after(chunk))
        numbers = storage.insert(chunk)
        steps, streams = numbers.shape
        self.limiter.expect(chunk_rows=(steps + self.view.n - 1) * streams)
        if opening:
            self._check_room()
        self._clear(losing)
        ready, earlier = self.view.ready(storage, numbers, chunk.columns["step_type"])
        before = len(self.selector)
        self.mark(numbers, ready, earlier)
        self.limiter.insert(len(self.selector) - before)
        self.limiter.require_start(storage.next_number, storage.capacity)
        if self.turns is not None:
            self.turns.insert(steps * streams)
        if self._rule["max_age_seconds"]:
            self._ages.append((storage.next_number, self.clock.now()))
        if self._minds_versions:
            self.newest_version = max(self.newest_version, int(chunk.columns["version"].max()))

    def on_learner(self, *, iteration: int = 0, **progress: Any) -> None:
        """Stores the progress of the learner; see :meth:`Replay.on_learner`."""
        super().on_learner(iteration=iteration, **progress)
        synchronous = self.learner_config["algo"].get("synchronous", False)
        if iteration and synchronous and self.turns is not None:
            # In a run that has learned before, agents do not send the rows for the first training.
            self.turns.first = 0

    def mark(self, numbers: Rows, ready: npt.NDArray[np.bool_], earlier: Rows) -> None:
        """Adds new rows ``[T, N]`` to the selector, with flags, and earlier rows now sampleable."""
        self.selector.mark(int(numbers[0, 0]), ready)
        self.selector.mark_earlier(earlier)

    def _clear(self, losing: Rows) -> None:
        """Removes evicted rows, and rows that need them for their stacks, from the selector."""
        oldest = self.storage.oldest
        gone = self.selector.evict(oldest)
        if len(losing):
            gone += self.selector.unmark(losing)
        self.limiter.evict(gone)
        while self._ages and self._ages[0][0] <= oldest:
            self._ages.popleft()

    def sample(self, batch_size: int) -> Sample:
        """Returns numbers of rows where samples start, and further columns such as weights.

        Raises:
            SurrealError: no row can be sampled now.
        """
        before = len(self.selector)
        sample = self._newest = self.selector.sample(batch_size)
        self.limiter.sample(sample.fresh)
        self.limiter.evict(before - len(self.selector))  # those that are given only once
        return sample

    def aggregate_batch(self, sample: Sample) -> dict[str, npt.NDArray[Any]]:
        """Returns the samples as columns; see ``gather`` of the view, and :class:`Sample`.

        Raises:
            DataError: a row has been evicted since.
        """
        batch = {**self.view.gather(self.storage, sample.numbers, self.empty), **sample.columns}
        if self.turns is not None:
            self.last = self.turns.over
            if self.last:
                self._end_training(self.turns)
        return batch

    def _end_training(self, iteration: Iteration) -> None:
        """Collects again; removes the rows that were learned from, if that is wanted."""
        iteration.end()
        if not iteration.clear:
            return
        # Rows that lack successors, and what these need, stay: their turn comes next time.
        self.limiter.evict(self.selector.unmark(self.selector.listed()))
        oldest = self.view.needed_from(self.storage)
        losing = self.view.losing(self.storage, oldest)
        self.storage.evict(oldest)
        self._clear(losing)

    def batches_at_once(self, asked: int) -> int:
        """One in training iterations, whose batches have several sizes."""
        return asked if self.turns is None else 1

    def rows_in(self, batch_size: int) -> int:
        """Returns how many rows of the newest batch count as sampled."""
        return self._newest.fresh * self.view.rows_each

    @property
    def mass(self) -> float:
        """Sum of the weights with which rows are drawn."""
        return self.selector.mass

    def start_sample_condition(self) -> bool:
        """True if the shard's part of ``learner_config.replay.min_size`` can be sampled."""
        return self.limiter.size >= self.limiter.min_size

    def evict(self) -> int:
        """Removes old rows by ``learner_config.replay.evict_rule``; returns how many.

        The first row that is young enough becomes the oldest; all rows after it stay, whatever
        their age.
        """
        storage = self.storage
        if self.turns is not None and self.turns.training:
            return 0
        oldest = storage.oldest
        if self._rule["max_rows"]:
            oldest = max(oldest, storage.next_number - self._rule["max_rows"])
        if self._rule["max_age_seconds"]:
            oldest = max(oldest, self._first_young())
        if self._rule["max_version_lag"]:
            oldest = max(oldest, self._first_recent())
        losing = self.view.losing(storage, oldest)
        gone = storage.evict(oldest)
        self._clear(losing)
        return gone

    def _first_young(self) -> int:
        limit = self.clock.now() - self._rule["max_age_seconds"]
        first = self.storage.oldest
        for end, inserted_at in self._ages:
            if inserted_at >= limit:
                break
            first = end
        return first

    def _first_recent(self) -> int:
        limit = self.newest_version - self._rule["max_version_lag"]
        first = self.storage.oldest
        for versions in self.storage.read("version"):
            recent = versions >= limit
            if recent.any():
                return first + int(recent.argmax())
            first += len(versions)
        return first

    def can_insert(self) -> bool:
        """True if the limiter allows another chunk, or if no row can be drawn without it."""
        if self.turns is not None:
            return self.turns.can_insert(len(self.selector))
        return self.limiter.can_insert() or not self.selector.drawable

    def can_sample(self, batch_size: int) -> bool:
        """True if there is enough to sample from and the limiter allows so many rows."""
        if self.turns is not None:
            return self.turns.can_sample(len(self.selector))
        self.limiter.expect(request_rows=batch_size)
        enough = self.start_sample_condition() and self.selector.drawable > 0
        return enough and self.limiter.can_sample(self.selector.fresh(batch_size))

    def needed_rows(self, batch_size: int) -> int:
        """Minimum size while there are fewer sampleable rows, else 0."""
        limiter = self.limiter
        return limiter.min_size if limiter.size < limiter.min_size else 0

    def update_priorities(self, indices: npt.NDArray[Any], priorities: npt.NDArray[Any]) -> None:
        """Sets new priorities, ``[B]`` and 0 or above, of the rows ``indices``, ``[B]`` int64.

        Raises:
            SurrealError: a priority is negative or not a number; nothing is changed then.
        """
        self.selector.update(indices, np.asarray(priorities, np.float32))

    def reseed(self, seed: int) -> None:
        """Draws rows with another seed from now on."""
        self.selector.reseed(seed)
        self.view.reseed(seed)

    def statistics(self) -> dict[str, float]:
        """Rows: kept, sampleable, and since the start inserted, sampled, evicted; bytes.

        The selector and the view add their own numbers.
        """
        return {
            "size": len(self.storage),
            "sampleable": len(self.selector),
            "inserted": self.storage.next_number,
            "sampled": self.limiter.sampled,
            "evicted": self.storage.oldest,
            "size_bytes": self.storage.size_bytes,
            **self.selector.statistics(),
            **self.view.statistics(),
        }

    def state(self) -> dict[str, Any]:
        """Everything that is kept.

        The arrays are views on the ring: write or copy them before the next insert.
        """
        now = self.clock.now()
        phase: dict[str, Any] = {}
        if self.turns is not None:
            ready = self.storage.oldest + np.flatnonzero(self.view.ready_rows(self.storage))
            learned = np.setdiff1d(ready, self.selector.listed())
            phase = {"iteration": self.turns.state(), "learned": learned}
        return {
            **phase,
            "storage": self.storage.state(),
            "selector": self.selector.state(),
            "limiter": self.limiter.state(),
            "view": self.view.state(),
            "ages": [[end, now - inserted_at] for end, inserted_at in self._ages],
            "newest_version": self.newest_version,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state` gave, also with another capacity or another n."""
        storage = self.storage
        storage.restore(state["storage"])
        self.view.restore(state["view"], storage)
        ready = self.view.ready_rows(storage)
        self.selector.restore(state["selector"], storage.oldest, ready)
        if self.turns is not None and "iteration" in state:
            self.turns.restore(state["iteration"])
            learned = np.asarray(state["learned"], np.int64)
            self.selector.unmark(learned[learned >= storage.oldest])
        self.limiter.restore({**state["limiter"], "size": len(self.selector)})
        now = self.clock.now()
        self._ages = deque((end, now - age) for end, age in state["ages"])
        self.newest_version = state["newest_version"]
