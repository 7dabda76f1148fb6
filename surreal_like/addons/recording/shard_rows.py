"""The rows of a recorded shard, as it had them when it drew a batch."""

from __future__ import annotations

from session.config import Config
from session.errors import DecodeError
from session.wire import Message
from surreal_like.addons.recording.flight import Taken
from surreal_like.addons.recording.reader import Shard, StoredRecord, chunk_of
from surreal_like.addons.recording.segments import Damage, Head, Kind, Segment
from surreal_like.data.batch import Columns
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.replay import to_columns
from surreal_like.replay.table import Table


class Gone(Exception):
    """The rows of a batch cannot be had again; says why."""


def _read(segment: Segment, head: Head) -> Message:
    message = segment.read(head)
    if isinstance(message, Damage):
        raise Gone(str(message))
    return message


def _chunk_of(message: Message, head: Head) -> Chunk:
    try:
        return chunk_of(message)
    except DecodeError as error:
        raise Gone(f"the chunk of row {head.number:,} is wrong: {error}") from None


class ShardRows:
    """The rows of a shard as it had them when it drew each batch.

    Args:
        shard: the shard, as recorded.
        table: an empty replay of its kind.
        learner_config: that of the experiment.
    """

    def __init__(self, shard: Shard, table: Table, learner_config: Config) -> None:
        self._shard, self._table = shard, table
        self._collate = table.collate(learner_config)
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

    def draw(self, taken: Taken) -> Columns:
        """Returns the columns of a batch.

        Raises:
            Gone: its rows are not in the recording.
        """
        place = taken.incarnations, taken.cuts, taken.rows
        while (self._incarnation, self._cuts, self._number) != place:
            self._step()
        return next(iter(self._collate(self._gather(taken), 1)))

    def _gather(self, taken: Taken) -> Columns:
        numbers, table = taken.indices, self._table
        oldest = int(numbers.min(initial=table.storage.next_number))
        if oldest < table.storage.oldest:
            raise Gone(f"row {oldest:,} of {self._shard.name} has made room for newer ones")
        columns = to_columns(dict(table.view.gather(table.storage, numbers)))
        return {**columns, "weights": taken.weights, "indices": numbers}

    def _step(self) -> None:
        """Takes the next record."""
        name = self._shard.name
        try:
            segment, head = next(self._records)
        except StopIteration:
            raise Gone(f"the recording of {name} ends at row {self._number:,}") from None
        message = _read(segment, head)
        if head.kind is Kind.CHUNK:
            chunk = _chunk_of(message, head)
            if head.number != self._number:
                missing = f"rows {self._number:,} to {head.number:,}"
                raise Gone(f"{missing} of {self._shard.name} are missing")
            self._insert(chunk, StoredRecord(segment, head))
            self._number += chunk.size
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

    def _insert(self, chunk: Chunk, stored: StoredRecord) -> None:
        self._table.insert_chunk(chunk)


class ShardUnrolls(ShardRows):
    """The unrolls of a shard, each of which is sampled without the others; see `ShardRows`."""

    def __init__(self, shard: Shard, table: Table, learner_config: Config) -> None:
        super().__init__(shard, table, learner_config)
        self._streams: int = table.env_config["num_envs"]
        # Rows that were inserted before it -> record of its chunk, and the number of its part.
        self._unrolls: dict[int, tuple[StoredRecord, int]] = {}

    def _insert(self, chunk: Chunk, stored: StoredRecord) -> None:
        number = self._number
        for part, unroll in enumerate(chunk.parts(self._streams)):
            self._unrolls[number] = stored, part
            number += unroll.size

    def _gather(self, taken: Taken) -> Columns:
        table, unrolls = self._table, dict[StoredRecord, list[Chunk]]()
        for number in taken.indices.tolist():
            if number not in self._unrolls:
                raise Gone(f"the unroll at row {number:,} of {self._shard.name} is missing")
            stored, part = self._unrolls[number]
            if stored not in unrolls:
                # Read once, and for this batch only: an unroll of each stream lies in it.
                chunk = _chunk_of(_read(*stored), stored.head)
                unrolls[stored] = list(chunk.parts(self._streams))
            table.insert_chunk(unrolls[stored][part])
        numbers = table.selector.list_rows()
        columns = to_columns(dict(table.view.gather(table.storage, numbers)))
        table.selector.unmark(numbers)
        return {**columns, "replayed": taken.replayed}
