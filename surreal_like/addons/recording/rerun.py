"""Repeats the updates of a recorded run from its rows, and compares every hash."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from session.checkpoint import read_state
from session.config import Config
from session.config.named_code import with_kept_plan
from session.config.sections import sections_of
from session.errors import CheckpointError, DecodeError, UsageError
from session.folder import RunFolder
from session.wire import Message
from surreal_like.addons.recording.check import refuse_unrepeatable
from surreal_like.addons.recording.flight import (
    BATCH,
    HASH,
    START,
    checksum_of,
    folder_of,
    hash_of,
    machine,
    read_start,
)
from surreal_like.addons.recording.reader import Shard
from surreal_like.addons.recording.segments import Damage, Head, Kind
from surreal_like.data.batch import Batch, Columns, Sampled, make_batch
from surreal_like.data.policy_names import PolicyId
from surreal_like.dataflow.flow import NOT_READY, Signal
from surreal_like.experience.chunk import CHUNK, Chunk
from surreal_like.experiment.find import choose_policy, learners_of
from surreal_like.learner.device_prefetch import DeviceTransfer, transfer_columns
from surreal_like.learner.learner import Learner
from surreal_like.learner.run_link import LearnerLink
from surreal_like.policies.config import policy_config
from surreal_like.replay.replay import load_replay_class, to_columns
from surreal_like.replay.table import Table

Report = Callable[[str], object]


class Gone(Exception):
    """The rows of a batch cannot be had again; says why."""


class ShardRows:
    """The rows of a shard as it had them when it drew each batch.

    Args:
        shard: its segments.
        table: an empty replay of its kind.
    """

    def __init__(self, shard: Shard, table: Table) -> None:
        self._shard, self._table = shard, table
        self._records = iter(
            (segment, head)
            for segment in shard.segments
            for head in segment.heads
            if head.kind is not Kind.ABOUT
        )
        self._incarnation = self._cuts = 0
        # Earlier rows may have made room for these.
        first = shard.segments[0]
        self._number = first.heads[0].number
        if self._number:
            self._incarnation = shard.abouts[0].sender.incarnation
            state = table.state()
            state["storage"] |= {"oldest": self._number, "next_number": self._number}
            table.restore(state)

    def draw(self, incarnation: int, place: tuple[int, int], message: Message) -> Columns:
        """Returns the columns of a batch.

        Args:
            incarnation: of the shard that drew it.
            place: number of the next row, and of cuts before it, at the draw.
            message: message of the batch.

        Raises:
            Gone: its rows are not in the recording.
        """
        while (self._incarnation, self._cuts, self._number) != (incarnation, place[1], place[0]):
            self._step()
        numbers, table = message.arrays["indices"], self._table
        oldest = int(numbers.min(initial=table.storage.next_number))
        if oldest < table.storage.oldest:
            raise Gone(f"row {oldest:,} of {self._shard.name} has made room for newer ones")
        columns = to_columns(dict(table.view.gather(table.storage, numbers)))
        weights = message.arrays.get("weights", np.ones(len(numbers), np.float32))
        return {**columns, "weights": weights, "indices": numbers}

    def _step(self) -> None:
        """Takes the next record."""
        name = self._shard.name
        try:
            segment, head = next(self._records)
        except StopIteration:
            raise Gone(f"the recording of {name} ends at row {self._number:,}") from None
        message = segment.read(head)
        if isinstance(message, Damage):
            raise Gone(str(message))
        if head.kind is Kind.CHUNK:
            self._insert(message, head.number)
        elif head.kind is Kind.CUT:
            self._table.roll_back(head.number)
            self._number, self._cuts = head.number, self._cuts + 1
        else:
            if head.kind is Kind.BEGIN and (self._incarnation or head.number):
                raise Gone(f"{name} began anew at row {head.number:,}, with rows of a snapshot")
            if head.kind is Kind.GO_ON:
                self._table.roll_back(head.number)
            self._incarnation, self._number = message.sender.incarnation, head.number
            self._cuts = 0

    def _insert(self, message: Message, number: int) -> None:
        try:
            if reason := CHUNK.complaint(message):
                raise DecodeError(reason)
            chunk = Chunk.from_message(message)
        except DecodeError as error:
            raise Gone(f"the chunk of row {number:,} is wrong: {error}") from None
        if number != self._number:
            raise Gone(f"rows {self._number:,} to {number:,} of {self._shard.name} are missing")
        self._table.insert_chunk(chunk)
        self._number += chunk.size


@dataclass
class Rerun:
    """Outcome of a rerun.

    Attributes:
        updates: updates that were repeated.
        first, last: iterations at which it began and ended.
        compared: hashes that were equal.
        differs: iterations between which the first difference lies; None: there is none.
        problems: what could not be repeated, and why.
    """

    updates: int = 0
    first: int = 0
    last: int = 0
    compared: int = 0
    differs: tuple[int, int] | None = None
    problems: list[str] = field(default_factory=list)


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
        refuse_unrepeatable(config)
        place = folder_of(run.recording, self._policy)
        self._journal = Shard(place)
        if not self._journal.segments:
            raise UsageError(
                f"{run} has no journal of its learner: train with session_config.record.what=all "
                "and session_config.flight.keep=all"
            )
        self._place = place
        torch.set_num_threads(config.session_config.learner.threads)
        self.learner: Learner = learners_of(config, run)[self._policy]
        self.on_update: Callable[[], object] = lambda: None
        self._transfer = DeviceTransfer(self.learner.device)
        self._link = _RecordedLink()
        self.learner.link = self._link
        self._shards = self._open_shards(policy_config(config, self._policy))

    def _open_shards(self, own: Config) -> list[ShardRows]:
        kind = load_replay_class(own.learner_config)
        shards = []
        for number in range(own.learner_config.replay.replay_shards):
            name = PolicyId(self._policy).shard(number)
            table = kind(**sections_of(own))
            assert isinstance(table, Table)  # others were refused
            shards.append(ShardRows(Shard(self._run.recording / name), table))
        return shards

    def run(
        self,
        begin: int | None = None,
        until: int | None = None,
        report: Report = lambda line: None,
    ) -> Rerun:
        """Repeats updates, and compares the hashes on the way.

        Where rows are missing, it goes on from the next state that is kept: where a learner began,
        or a checkpoint of the run.

        Args:
            begin: it begins at the newest state that is kept up to this iteration; None: the first.
            until: last iteration; None: that of the journal.
            report: gets a line for what cannot be repeated.

        Raises:
            UsageError: no state is kept from which it could begin.
        """
        found, learner = Rerun(), self.learner
        checkpoints = self._find_checkpoints()
        first = self._choose_first(begin, checkpoints)
        begun, since = False, 0
        for head, message in self._records():
            if until is not None and head.number >= until + (head.kind is not Kind.BATCH):
                break
            state = self._state_at(head, message, checkpoints)
            starts = head.kind is Kind.START and begun
            if state is not None and (starts or (not begun and head.number >= first)):
                self._load(state, message, report)
                found.first = found.first if found.updates else learner.iteration
                begun, since = True, learner.iteration
            if not begun or head.kind is Kind.START:
                continue
            if head.kind is Kind.HASH:
                if hash_of(learner) != message.fields["hash"]:
                    found.differs = since, head.number
                    break
                found.compared += 1
                since = head.number
                continue
            try:
                self._update(message)
                self.on_update()
                found.updates += 1
                found.last = learner.iteration
            except Gone as error:
                found.problems.append(f"update {head.number + 1:,} cannot be repeated: {error}")
                report(found.problems[-1])
                begun = False
        if not found.updates and not found.problems:
            raise UsageError("no update could be repeated: no state before it is kept")
        return found

    def _find_checkpoints(self) -> dict[int, tuple[float, Path]]:
        """Returns iteration -> time and folder of the checkpoints of the run."""
        place = self._run.checkpoints / PolicyId(self._policy).checkpoints
        found = {}
        for path in place.glob("*"):
            if path.name.isdigit():
                with suppress(CheckpointError):
                    found[int(path.name)] = read_state(path)["time"], path
        return found

    def _choose_first(self, begin: int | None, checkpoints: Mapping[int, Any]) -> int:
        """Returns the iteration of the state at which a rerun begins."""
        if begin is None:
            return 0
        starts = [head.number for head, _ in self._records() if head.kind is Kind.START]
        kept = [each for each in (*starts, *checkpoints) if each <= begin]
        return max(kept, default=0)

    def _state_at(
        self, head: Head, message: Message, checkpoints: Mapping[int, tuple[float, Path]]
    ) -> Path | None:
        """Returns the folder of a kept state in which the learner was before a record."""
        if head.kind is Kind.START:
            return self._place / Path(message.fields["content"]).name
        if head.kind is Kind.BATCH and head.number in checkpoints:
            # One of this number may have been saved later, after the learner had gone back.
            time, path = checkpoints[head.number]
            return path if time <= head.time else None
        return None

    def _load(self, state: Path, message: Message, report: Report) -> None:
        here = machine()
        for name, then in message.fields.items():
            if name in here and here[name] != then:
                report(f"{name} was {then} in the run, and is {here[name]} here")
        read_start(self.learner, state)

    def _records(self) -> Iterator[tuple[Head, Message]]:
        schemas = {Kind.START: START, Kind.BATCH: BATCH, Kind.HASH: HASH}
        for segment in self._journal.segments:
            for head in segment.heads:
                if head.kind not in schemas:
                    continue
                message = segment.read(head)
                if isinstance(message, Damage):
                    raise UsageError(f"{message}: the updates after it cannot be repeated")
                if complaint := schemas[head.kind].complaint(message):
                    raise UsageError(f"{segment.path}: update {head.number:,}: {complaint}")
                yield head, message

    def _update(self, message: Message) -> None:
        """Learns from a batch as the run did."""
        learner, fields = self.learner, message.fields
        rows = self._shards[fields["shard"]]
        place = fields["place"][0], fields["place"][1]
        columns = rows.draw(fields["incarnation"], place, message)
        sampled = Sampled(
            columns, fields["shard"], fields["incarnation"], {}, None, fields["returns"]
        )
        if checksum_of(columns) != fields["checksum"]:
            raise Gone("its rows are not those that were learned from: a segment was changed")
        batch = make_batch(self._transfer(transfer_columns(columns)))
        batch.origin = sampled
        # A checkpoint has the steps of the run, which may be more.
        learner.env_steps = 0
        self._link.give(batch, fields["env_steps"])
        try:
            learner.flow.pull()
        except Exception:  # noqa: BLE001 - the run has set the batch aside, and gone on
            learner.pop_updates()
            return
        learner.iteration += len(learner.pop_updates())
