"""Training iterations: replay collects rows, then gives batches of them, in turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.errors import ConfigError
from surreal_like.replay.select.age import AgeRule
from surreal_like.replay.select.selector import Flags, Sample, Selector
from surreal_like.replay.storage import Rows

_KEY = "learner_config.replay.iteration"


class Iteration:
    """Decides whether rows go in or batches go out; uses no clock and no socket.

    It collects until enough rows have been inserted since the last training, and something can be
    sampled; then it trains: nothing goes in until the last batch has gone out.

    Args:
        collect: rows to insert before each training.
        first: rows to insert in addition before the first one.
        updates: batches of a training; with ``whole`` passes over all sampleable rows.
        whole: a training consists of such passes.
        clear: its rows are removed after it.

    Attributes:
        first: rows to insert in addition before the first training, if none has ended.
        number: trainings that have ended.
        training: False while it collects.
    """

    def __init__(
        self,
        collect: int,
        *,
        first: int = 0,
        updates: int = 1,
        whole: bool = False,
        clear: bool = False,
    ) -> None:
        self.whole, self.clear = whole, clear
        self.number = 0
        self.training = False
        self._collect, self.first, self._updates = collect, first, updates
        self._inserted = 0
        self._sizes: deque[int] = deque()

    @staticmethod
    def sizes(rows: int, batch_size: int) -> list[int]:
        """Returns the sizes of the batches of one pass: about ``batch_size``, almost equal."""
        if not rows:
            return []
        each, larger = divmod(rows, max(1, rows // batch_size))
        count = max(1, rows // batch_size)
        return [each + 1] * larger + [each] * (count - larger)

    @property
    def due(self) -> int:
        """Rows to insert before the next training."""
        return self._collect + (0 if self.number else self.first)

    @property
    def over(self) -> bool:
        """True if the last batch of a training has gone out."""
        return self.training and not self._sizes

    def can_insert(self, sampleable: int) -> bool:
        """True if another chunk may be inserted, while so many samples are possible."""
        return not self.training and (self._inserted < self.due or not sampleable)

    def can_sample(self, sampleable: int) -> bool:
        """True if the next batch may go out."""
        return self.training or (self._inserted >= self.due and sampleable > 0)

    def insert(self, rows: int) -> None:
        """Counts inserted rows."""
        self._inserted += rows

    def begin(self, sampleable: int, batch_size: int) -> None:
        """Begins a training, with so many possible samples."""
        one_pass = self.sizes(sampleable, batch_size) if self.whole else [batch_size]
        self._sizes.extend(one_pass * self._updates)
        self.training = True

    def take(self) -> int:
        """Returns the size of the next batch."""
        return self._sizes.popleft()

    def end(self) -> None:
        """Ends a training: collects anew."""
        self.number += 1
        self._inserted, self.training = 0, False

    def state(self) -> dict[str, Any]:
        """The counts, as plain values."""
        return {
            "number": self.number,
            "training": self.training,
            "inserted": self._inserted,
            "sizes": [*self._sizes],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state` gave."""
        self.number, self.training = state["number"], state["training"]
        self._inserted, self._sizes = state["inserted"], deque(state["sizes"])


def make_iteration(
    learner_config: Config, env_config: Config, session_config: Config, *, waiting: int
) -> Iteration | None:
    """Makes the iteration of ``learner_config.replay.iteration``; None where it is off.

    Args:
        learner_config, env_config, session_config: of the experiment.
        waiting: rows that cannot be sampled at any time.

    Raises:
        ConfigError: it does not go with other settings.
    """
    replay = learner_config["replay"]
    how = replay["iteration"]
    length, each = how["unroll_length"], session_config["sender"]["flush_iteration"]
    if not length:
        return None
    is_on = f"{_KEY}.unroll_length is {length}, but"
    if replay["replay_shards"] > 1:
        raise ConfigError(
            f"{is_on} replay_shards is {replay['replay_shards']}: iterations need one shard; set "
            "replay_shards to 1"
        )
    if replay["samples_per_insert"]:
        raise ConfigError(
            f"{is_on} samples_per_insert is {replay['samples_per_insert']:g}: an iteration itself "
            "says how much is learned; set samples_per_insert to 0"
        )
    if length % each:
        raise ConfigError(
            f"{is_on} session_config.sender.flush_iteration is {each}: agents send rows in chunks "
            f"of {each} steps; set one to a multiple of the other"
        )
    if how["clear_replay_buffer"] and not how["whole_replay_buffer_training"]:
        raise ConfigError(
            f"{_KEY}.clear_replay_buffer is true, but whole_replay_buffer_training is false: rows "
            "would go that were never learned from; set both to true"
        )
    streams = session_config["agent"]["num"] * env_config["num_envs"]
    if not streams:
        raise ConfigError(f"{is_on} session_config.agent.num is 0: there is nothing to wait for")
    first = how["initial_collect_steps"]
    needed = length * streams + first + waiting
    if needed > replay["capacity"]:
        raise ConfigError(
            f"{is_on} {length} x {streams} environments + initial_collect_steps {first} + "
            f"{waiting} rows that wait for others = {needed} rows are more than replay.capacity "
            f"{replay['capacity']}: raise the capacity"
        )
    if AgeRule.of(replay).matters:
        raise ConfigError(
            f"{is_on} learner_config.replay.age has a rule: an iteration learns from all rows "
            "alike; set both of its numbers to 0"
        )
    return Iteration(
        length * streams,
        first=first,
        updates=how["num_updates_per_train_iter"],
        whole=how["whole_replay_buffer_training"],
        clear=how["clear_replay_buffer"],
    )


def steps_together(
    learner_config: Config, env_config: Config, session_config: Config
) -> tuple[int, int]:
    """Returns the steps of each environment before a training, 0 without iterations.

    The second number is the additional steps of each environment before the first training.
    """
    how = learner_config["replay"]["iteration"]
    streams = session_config["agent"]["num"] * env_config["num_envs"]
    return how["unroll_length"], how["initial_collect_steps"] // max(1, streams)


class EpochSelector(Selector):
    """Gives batches of the sizes of an iteration.

    With ``whole`` a batch is the next part of all sampleable rows in a random order, another one in
    each pass; weights are 1. Otherwise the other selector draws.

    Args:
        drawing: keeps the set of sampleable rows.
        iteration: decides the sizes.
        seed: of the generator.
    """

    def __init__(self, drawing: Selector, iteration: Iteration, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self._drawing, self._iteration = drawing, iteration
        # What is left of the present pass.
        self._order: Rows = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._drawing)

    @property
    def mass(self) -> float:
        """That of the other selector."""
        return self._drawing.mass

    def mark(self, first: int, ready: Flags) -> None:
        self._drawing.mark(first, ready)

    def mark_with(
        self, first: int, ready: Flags, earlier: Rows, priorities: npt.NDArray[np.float32]
    ) -> None:
        self._drawing.mark_with(first, ready, earlier, priorities)

    def mark_earlier(self, numbers: Rows) -> None:
        self._drawing.mark_earlier(numbers)

    def unmark(self, numbers: Rows) -> int:
        return self._drawing.unmark(numbers)

    def evict(self, oldest: int) -> int:
        return self._drawing.evict(oldest)

    def listed(self) -> Rows:
        return self._drawing.listed()

    def sample(self, batch_size: int) -> Sample:
        """Draws the next batch of the training; the first one begins it."""
        if not self._iteration.training:
            self._iteration.begin(len(self), batch_size)
        size = self._iteration.take()
        if not self._iteration.whole:
            return self._drawing.sample(size)
        if not len(self._order):
            self._order = self._generator.permutation(self.listed())
        numbers, self._order = self._order[:size], self._order[size:]
        return Sample(numbers, {"weights": np.ones(len(numbers), np.float32)})

    def update(self, numbers: Rows, priorities: npt.NDArray[np.float32]) -> None:
        """Sets priorities of rows, where the other selector has any."""
        self._drawing.update(numbers, priorities)

    def reseed(self, seed: int) -> None:
        """Starts new random generators."""
        super().reseed(seed)
        self._drawing.reseed(seed)

    def statistics(self) -> dict[str, float]:
        """Those of the other selector."""
        return self._drawing.statistics()

    def state(self) -> dict[str, Any]:
        """The state of the other selector, the order that is left, and the generator of orders."""
        generator = self._generator.bit_generator.state
        return {**self._drawing.state(), "order": self._order, "of_orders": generator}

    def restore(self, state: Mapping[str, Any], oldest: int, ready: Flags) -> None:
        """Restores what :meth:`state` gave, with flags of all rows from ``oldest`` on."""
        self._drawing.restore(state, oldest, ready)
        if "order" in state:
            self._order = np.asarray(state["order"], np.int64)
            self._generator.bit_generator.state = state["of_orders"]
