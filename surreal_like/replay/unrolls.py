"""Whole unrolls of one replay shard: their sizes, and the storage that holds them."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from session.config import Config
from session.errors import ConfigError
from surreal_like.data.columns import Manifest
from surreal_like.data.frames import stack_size
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.limiter import Limiter, Queue
from surreal_like.replay.select.age import AgeRule
from surreal_like.replay.settings import SHARE, require_messages, shard_of
from surreal_like.replay.storage import LINK_BYTES, ColumnStorage, Rows

_ROUNDING = 0.01  # of an unroll: a share such as 0.333 is meant as a third
_BATCH = "learner_config.replay.batch_size"


@dataclass(slots=True)
class UnrollPlan:
    """Sizes of one shard, in unrolls.

    Attributes:
        steps: T.
        num_envs: N, the streams of an unroll.
        batch: unrolls in a batch.
        again: replayed unrolls among these.
        queue: unrolls that the queue has room for.
        ring: unrolls that are kept to be replayed.
        max_bytes: bound on the memory of both, 0 for none.
        lead: rows before each unroll, the frames of its first stacks.
        after: rows of each stream behind its T steps.
        drops_oldest: whether a full queue drops its oldest unroll; otherwise agents wait.
        max_message_bytes: bound on a message, 0 for none.
    """

    steps: int
    num_envs: int
    batch: int
    again: int
    queue: int
    ring: int
    max_bytes: int
    lead: int = 0
    after: int = 1
    drops_oldest: bool = False
    max_message_bytes: int = 0

    @property
    def unit(self) -> int:
        """Rows for which a sample counts in the statistics."""
        return self.steps

    @property
    def capacity(self) -> int:
        """Most rows that lie in the queue and the ring, lead-in included."""
        return (self.queue + self.ring) * self.rows_each

    @property
    def rows_each(self) -> int:
        """Rows of an unroll, with its lead-in and the rows behind it."""
        return self.lead + (self.steps + self.after) * self.num_envs

    @property
    def shape(self) -> dict[str, Any]:
        """Part of a snapshot that must be equal for it to be restored."""
        return {"unroll": [self.steps, self.num_envs, self.rows_each]}

    def make_limiter(self) -> Limiter:
        """Makes the limiter of a queue."""
        return Queue(lambda: math.inf if self.drops_oldest else self.queue * self.num_envs)

    def check_start(self, row_bytes: int, batches: int) -> None:
        """Raises ConfigError if there is no room for a batch of such rows, or no message for it.

        Args:
            row_bytes: bytes of a row, links included.
            batches: most batches of one answer.
        """
        self.within_bytes(self.rows_each * row_bytes)
        answer = batches * self.batch * (self.rows_each - self.lead)
        size = self.steps, self.num_envs, row_bytes - LINK_BYTES
        require_messages(self.max_message_bytes, *size, answer)

    def fit(self, row_bytes: int) -> None:
        """Applies ``max_bytes`` by the size of the first unroll: all are equally large."""
        smaller = self.within_bytes(self.rows_each * row_bytes)
        self.queue, self.ring = smaller.queue, smaller.ring

    def within_bytes(self, unroll_bytes: int) -> UnrollPlan:
        """Returns the same plan, scaled down in proportion where ``max_bytes`` requires it.

        Raises:
            ConfigError: no batch has room.
        """
        wanted = self.queue + self.ring
        room = self.max_bytes // max(unroll_bytes, 1) if self.max_bytes else wanted
        if wanted <= room:
            return self
        queue = room * self.queue // wanted
        smaller = replace(self, queue=queue, ring=room - queue if self.ring else 0)
        if smaller.queue < self.batch or smaller.ring < self.again:
            raise ConfigError(
                f"learner_config.replay.max_bytes leaves {self.max_bytes} bytes to a shard, that is"
                f" {smaller.queue} unrolls in the queue and {smaller.ring} to be replayed, of "
                f"{self.steps} steps x {self.num_envs} streams = {unroll_bytes} bytes each, but "
                f"one batch takes {self.batch} from the queue and {self.again} of the others: "
                "sampling would never start; raise max_bytes or lower batch_size"
            )
        return smaller


def plan_unrolls(learner_config: Config, env_config: Config, session_config: Config) -> UnrollPlan:
    """Returns the plan of one shard.

    Raises:
        ConfigError: a batch is no whole number of unrolls, or never fits; a setting is another
            replay's.
    """
    num_envs, steps = env_config["num_envs"], session_config["sender"]["flush_iteration"]
    lead = (stack_size(env_config) - 1) * num_envs
    return make_plan(learner_config, session_config, steps, num_envs, lead=lead)


def make_plan(
    learner_config: Config, session_config: Config, steps: int, num_envs: int, **others: Any
) -> UnrollPlan:
    """Returns the plan of one shard of unrolls of some steps and streams; see `plan_unrolls`.

    Args:
        learner_config, session_config: the sections of the experiment.
        steps, num_envs: size of an unroll.
        others: further fields of the plan.
    """
    replay = learner_config["replay"]
    _require_own_settings(replay, learner_config["algo"]["n_step"])
    batch, rest = divmod(replay["batch_size"], num_envs)
    if rest:
        raise ConfigError(
            f"{_BATCH} is {replay['batch_size']} streams, no multiple of env_config.num_envs "
            f"{num_envs}: batches are made of whole unrolls"
        )
    share = replay["replay_proportion"]
    capacity = shard_of(replay["capacity"], replay)
    ring = shard_of(replay["replay_capacity"], replay) if share else 0
    again = _count_replayed(share, batch, num_envs)
    rows = steps * num_envs
    plan = UnrollPlan(
        steps,
        num_envs,
        batch,
        again,
        capacity // rows,
        ring // rows,
        shard_of(replay["max_bytes"], replay),
        drops_oldest=replay["when_full"] == "drop_oldest",
        max_message_bytes=session_config["max_message_bytes"],
        **others,
    )
    _require_room(plan, "capacity", capacity, batch, "sampling would never start")
    _require_room(plan, "replay_capacity", ring, again, "nothing would ever be replayed")
    return plan


def _require_own_settings(replay: Mapping[str, Any], n_step: int) -> None:
    if n_step != 1:
        raise ConfigError(
            f"learner_config.algo.n_step is {n_step}, but FIFOReplay gives whole unrolls, of which "
            "the algorithm makes its own returns: set it to 1"
        )
    if replay["samples_per_insert"]:
        raise ConfigError(
            f"learner_config.replay.samples_per_insert is {replay['samples_per_insert']:g}, but "
            f"FIFOReplay gives each row once: set it to 0; {SHARE} gives rows again"
        )
    if AgeRule.of(replay).matters and not replay["replay_proportion"]:
        raise ConfigError(
            "learner_config.replay.age says which unrolls FIFOReplay gives again, but "
            f"{SHARE} is 0: set that, or evict_rule.max_version_lag for the queue"
        )


def _count_replayed(share: float, batch: int, num_envs: int) -> int:
    wanted = share * batch
    again = round(wanted)
    if abs(wanted - again) > _ROUNDING or (share and not 0 < again < batch):
        shares = ", ".join(f"{count / batch:.4g}" for count in range(min(batch, 9)))
        raise ConfigError(
            f"{SHARE} is {share:g}, but {share:g} x {batch} unrolls of a batch ({_BATCH} "
            f"{batch * num_envs} / env_config.num_envs {num_envs}) = {wanted:g}, expected a whole "
            f"number below {batch}: possible are {shares}"
        )
    return again


def _require_room(plan: UnrollPlan, name: str, rows: int, unrolls: int, else_: str) -> None:
    needed = unrolls * plan.steps * plan.num_envs
    if needed > rows:
        raise ConfigError(
            f"learner_config.replay.{name} leaves {rows} rows to a shard, but one batch takes "
            f"{unrolls * plan.num_envs} streams x {plan.steps} steps = {needed} rows of them: "
            f"{else_}; raise {name} or lower batch_size"
        )


class BlockStorage(ColumnStorage):
    """Whole unrolls, each in a block of rows of its own, which is used again once it is free.

    Rows have no links: those of a stream are N apart, and the lead-in frames of an unroll are rows
    before its first one that hold observations only. So it needs no other chunk to be sampled.
    Room for unrolls is doubled when none is free, because most are learned from soon.

    Args:
        block: rows of an unroll, its lead-in included.
        lead: rows of the lead-in.
        most: returns the most rows to make room for, unless all of them are needed.
        needed: returns the first rows, behind their lead-in, of the unrolls that must stay.
        manifest: columns of a row; None: those of the first chunk.
    """

    def __init__(
        self,
        block: int,
        lead: int = 0,
        *,
        most: Callable[[], int] = lambda: 0,
        needed: Callable[[], Container[int]] = frozenset,
        manifest: Manifest | None = None,
    ) -> None:
        super().__init__(block, manifest=manifest)
        self._block, self._lead, self._most, self._needed = block, lead, most, needed
        self._free: list[int] = []

    def insert(self, chunk: Chunk) -> Rows:
        """Copies an unroll in; see :meth:`ColumnStorage.insert`."""
        rows, streams = self._admit(chunk)
        block = self._take_block()
        first = block + self._lead
        self.next_number = max(self.next_number, block + self._block)
        if self._lead:
            self._copy(chunk.lead_in, block, self._lead)
        self._copy(chunk.columns, first, rows)
        return np.arange(first, first + rows).reshape(-1, streams)

    def _take_block(self) -> int:
        """Returns the first row of a free block."""
        if not self._free:
            needed = self._needed()
            self._free = [block for block in self._blocks() if block + self._lead not in needed]
        if not self._free:
            before, most, twice = self.capacity, self._most(), 2 * self.capacity
            saved = self.state()
            self.capacity = min(twice, most) if before < most else twice
            super().restore(saved)
            self._free = [block for block in self._blocks() if block >= self.oldest + before]
        return self._free.pop()

    def _blocks(self) -> Iterable[int]:
        """First rows of all blocks, the last one first."""
        return range(self.oldest + self.capacity - self._block, self.oldest - 1, -self._block)

    def restore(self, state: Mapping[str, Any]) -> None:
        self.capacity, self._free = max(self.capacity, state["capacity"]), []
        super().restore(state)
