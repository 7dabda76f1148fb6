"""Repeats the updates of a recorded run from its rows, and compares every hash."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from session.checkpoint import read_state
from session.config import Config
from session.config.named_code import with_kept_plan
from session.config.sections import sections_of
from session.errors import CheckpointError, DecodeError, UsageError, describe
from session.folder import RunFolder
from surreal_like.addons.recording.check import refuse_unrepeatable
from surreal_like.addons.recording.flight import (
    BATCHES,
    HASH,
    START,
    Taken,
    batches_of,
    checksum_of,
    folder_of,
    hash_of,
    machine,
    mark_of,
    read_start,
)
from surreal_like.addons.recording.reader import Shard, StoredRecord
from surreal_like.addons.recording.segments import Damage, Head, Kind, Segment
from surreal_like.addons.recording.shard_rows import Gone, ShardRows, ShardUnrolls
from surreal_like.data.batch import Batch, Sampled, make_batch
from surreal_like.data.policy_names import PolicyId
from surreal_like.dataflow.flow import NOT_READY, Signal
from surreal_like.experiment.find import choose_policy, learners_of
from surreal_like.learner.device_prefetch import DeviceTransfer, transfer_columns
from surreal_like.learner.learner import Learner
from surreal_like.learner.run_link import LearnerLink
from surreal_like.policies.config import policy_config
from surreal_like.replay.replay import load_replay_class
from surreal_like.replay.table import Table

Report = Callable[[str], object]


@dataclass
class Rerun:
    """Outcome of a rerun.

    Attributes:
        updates: updates that were repeated.
        starts: times that the learner had begun; it repeats updates after a kill.
        first, last: iterations at which it began and ended.
        proven: iteration up to which marks or hashes were equal.
        compared: hashes that were equal, after the first state.
        differs: iterations between which the first difference lies; None: there is none.
        problems: what could not be repeated, and why.
    """

    updates: int = 0
    starts: int = 0
    first: int = 0
    last: int = 0
    proven: int = 0
    compared: int = 0
    differs: tuple[int, int] | None = None
    problems: list[str] = field(default_factory=list)


# Whole states that are compared for each line that says how far the rerun is.
_STATES_PER_LINE = 10
_SCHEMAS = {Kind.START: START, Kind.BATCHES: BATCHES, Kind.HASH: HASH}


class _Step(NamedTuple):
    """One moment of a journal.

    Attributes:
        kind: what it is.
        number: iteration of the learner.
        content: the fields, or a :class:`Taken`.
        time: wall clock, in seconds.
    """

    kind: Kind
    number: int
    content: Any
    time: float


def _read(segment: Segment, head: Head, shards: int) -> Iterator[_Step]:
    """Yields the steps of one record of a journal of a run with so many shards.

    Raises:
        UsageError: it is damaged.
    """
    message = segment.read(head)
    if isinstance(message, Damage):
        raise UsageError(f"{message}: the updates after it cannot be repeated")
    where = f"{segment.path}: record of update {head.number:,}"
    if complaint := _SCHEMAS[head.kind].complaint(message):
        raise UsageError(f"{where}: {complaint}")
    if head.kind is not Kind.BATCHES:
        yield _Step(head.kind, head.number, message.fields, head.time)
        return
    try:
        for taken in batches_of(message):
            if taken.shards >= shards:
                raise DecodeError(f"shard {taken.shards:,} of a run with {shards:,} shards")
            yield _Step(head.kind, taken.iterations, taken, head.time)
    except DecodeError as error:
        raise UsageError(f"{where}: {error}") from None


class _RecordedLink(LearnerLink):
    """Gives a learner recorded batches, and publishes nothing."""

    def __init__(self) -> None:
        self._batch: Batch | None = None
        self._env_steps = 0
        self.count_steps = lambda: self._env_steps

    def give(self, batch: Batch, env_steps: int) -> None:
        """Sets the next batch, and the environment steps at which it was taken."""
        self._batch, self._env_steps = batch, env_steps

    def next_batch(self) -> Batch | Signal:
        batch, self._batch = self._batch, None
        return NOT_READY if batch is None else batch

    def pulse(self) -> None:
        """Reports nothing."""

    def send_priorities(self, sampled: Sampled, priorities: torch.Tensor) -> None:
        """Sends nothing: the draws are recorded, too."""


class Repeater:
    """Repeats the updates of one policy of a run.

    Args:
        run: the run folder.
        policy: name of the policy; None: the only one.

    Attributes:
        learner: learner that is repeated.
        on_update: called after each update.

    Raises:
        UsageError: the run has no such journal, or cannot be repeated; says why.
    """

    def __init__(self, run: RunFolder, policy: str | None = None) -> None:
        config = with_kept_plan(run.read_config(), run)
        run.find_modules(config.session_config.import_path)
        self._run, self._policy = run, choose_policy(config, policy, run)
        self._config = config
        own = policy_config(config, self._policy)
        refuse_unrepeatable(own)
        place = folder_of(run.recording, self._policy)
        self._journal = Shard(place)
        if not self._journal.segments:
            raise UsageError(
                f"{run} has no journal of its learner: train with session_config.record.what=all "
                "and session_config.flight.keep=all"
            )
        self._place = place
        self.learner: Learner = learners_of(config, run)[self._policy]
        self.on_update: Callable[[], object] = lambda: None
        self._transfer = DeviceTransfer(self.learner.device)
        self._link = _RecordedLink()
        self.learner.link = self._link
        self._shards = self._open_shards(own)

    def _open_shards(self, own: Config) -> list[ShardRows]:
        kind = load_replay_class(own.learner_config)
        shards = []
        for number in range(own.learner_config.replay.replay_shards):
            name = PolicyId(self._policy).shard(number)
            table = kind(**sections_of(own))
            assert isinstance(table, Table)  # others were refused
            rows = ShardUnrolls if table.consumes else ShardRows
            shards.append(rows(Shard(self._run.recording / name), table, own.learner_config))
        return shards

    def run(
        self,
        begin: int | None = None,
        until: int | None = None,
        report: Report = lambda line: None,
        *,
        goes_on: bool = False,
    ) -> Rerun:
        """Repeats updates, and compares marks and hashes on the way.

        Where rows are missing, it goes on from the next state that is kept: where a learner began,
        or a checkpoint of the run.

        Args:
            begin: it begins at the newest state that is kept up to this iteration; None: the first.
            until: last iteration; None: that of the journal.
            report: gets a line for what cannot be repeated, and for each tenth equal hash.
            goes_on: True to repeat also what follows the first difference.

        Raises:
            UsageError: there are no such updates, or no state is kept from which it could begin.
        """
        found, learner = Rerun(), self.learner
        checkpoints = self._find_checkpoints()
        first = self._choose_first(begin, until, checkpoints)
        begun = False
        for kind, number, content, at in self._steps():
            if until is not None and number > until:
                break
            state = self._state_at(kind, number, content, at, checkpoints)
            starts = kind is Kind.START and begun
            if state is not None and (starts or (not begun and number >= first)):
                self._begin(state, found, report, begin)
                begun = True
            if kind is Kind.START:
                self._compare_machines(content, report)
                continue
            if not begun:
                continue
            if not self._is_equal(kind, content):
                found.differs = found.differs or (found.proven, number)
                if not goes_on:
                    break
            elif kind is Kind.HASH or content.marks:
                self._note_equal(kind, number, found, report)
            if kind is Kind.HASH or number == until:
                continue
            try:
                self._update(content, report)
                found.updates += 1
                found.last = learner.iteration
                self.on_update()
            except Gone as error:
                found.problems.append(f"update {number + 1:,} cannot be repeated: {error}")
                report(found.problems[-1])
                begun = False
        if not found.updates and not found.problems and not found.differs:
            kept = ", ".join(f"{each:,}" for each in sorted({*checkpoints, *self._starts()}))
            raise UsageError(f"no update could be repeated: states are kept of update {kept}")
        return found

    def _begin(self, state: Path, found: Rerun, report: Report, first: int | None) -> None:
        """Reads a kept state; ``first``: the iteration that was asked for."""
        read_start(self.learner, state)
        iteration = self.learner.iteration
        found.first = found.first if found.updates else iteration
        found.starts += 1
        found.proven = iteration
        if iteration or first:
            report(f"begins with the state after update {iteration:,}")

    def _is_equal(self, kind: Kind, content: Any) -> bool:
        """Returns False if a hash, or the mark of a batch, is another one in the journal."""
        if kind is Kind.HASH:
            return bool(hash_of(self.learner) == content["hash"])
        return not content.marks or content.marks == mark_of(self.learner)

    def _note_equal(self, kind: Kind, number: int, found: Rerun, report: Report) -> None:
        found.proven = number
        if kind is Kind.HASH and number > found.first:
            found.compared += 1
            if found.compared % _STATES_PER_LINE == 0:
                report(f"equal up to update {number:,}")

    def _find_checkpoints(self) -> dict[int, tuple[float, Path]]:
        """Returns iteration -> time and folder of the checkpoints of the run."""
        place = self._run.checkpoints / PolicyId(self._policy).checkpoints
        found = {}
        for path in place.glob("*"):
            if path.name.isascii() and path.name.isdecimal():
                with suppress(CheckpointError):
                    found[int(path.name)] = read_state(path)["time"], path
        return found

    def _starts(self) -> list[int]:
        return [head.number for _, head in self._list_records() if head.kind is Kind.START]

    def _choose_first(
        self, begin: int | None, until: int | None, checkpoints: Mapping[int, Any]
    ) -> int:
        """Returns the iteration of the state at which a rerun begins."""
        newest = deque(self._list_records(), 1)
        last = max((step.number for each in newest for step in self._read(each)), default=0)
        for name, given in (("--from", begin), ("--until", until)):
            if given is not None and not 0 <= given <= last:
                raise UsageError(f"{name} {given:,}: the journal ends at update {last:,}")
        if until is not None and until <= (begin or 0):
            raise UsageError(f"--until {until:,}: it must be larger than --from {begin or 0:,}")
        if begin is None:
            return 0
        kept = [each for each in (*self._starts(), *checkpoints) if each <= begin]
        return max(kept, default=0)

    def _state_at(
        self,
        kind: Kind,
        number: int,
        content: Any,
        at: float,
        checkpoints: Mapping[int, tuple[float, Path]],
    ) -> Path | None:
        """Returns the folder of a kept state in which the learner was before a step, or None."""
        if kind is Kind.START:
            return self._place / Path(content["content"]).name
        if kind is Kind.BATCHES and number in checkpoints:
            # One of this number may have been saved later, after the learner had gone back.
            time, path = checkpoints[number]
            return path if time <= at else None
        return None

    def _compare_machines(self, then: Mapping[str, Any], report: Report) -> None:
        torch.set_num_threads(then["threads"])
        for name, here in machine().items():
            if here != then[name]:
                report(f"{name} was {then[name]} in the run, and is {here} here")

    def _list_records(self) -> Iterator[StoredRecord]:
        """Yields the records of the journal, as they are stored."""
        for segment in self._journal.segments:
            for head in segment.heads:
                if head.kind in _SCHEMAS:
                    yield StoredRecord(segment, head)

    def _steps(self) -> Iterator[_Step]:
        """Yields what the journal holds."""
        for each in self._list_records():
            yield from self._read(each)

    def _read(self, stored: StoredRecord) -> Iterator[_Step]:
        return _read(*stored, len(self._shards))

    def _update(self, taken: Taken, report: Report) -> None:
        """Learns from a batch as the run did."""
        learner = self.learner
        columns = self._shards[taken.shards].draw(taken)
        sampled = Sampled(columns, taken.shards, taken.incarnations, {}, None, taken.returns)
        if checksum_of(columns) != taken.checksums:
            raise Gone("its rows are not those that were learned from: a segment was changed")
        batch = make_batch(self._transfer(transfer_columns(columns)))
        batch.origin = sampled
        # A checkpoint has the steps of the run, which may be more.
        learner.env_steps = 0
        self._link.give(batch, taken.env_steps)
        try:
            learner.flow.pull()
        except Exception as error:  # noqa: BLE001 - the run has set the batch aside, and gone on
            report(f"the batch after update {learner.iteration:,} is set aside: {describe(error)}")
            learner.pop_updates()
            return
        learner.iteration += len(learner.pop_updates())
