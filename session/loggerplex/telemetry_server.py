"""Base of both telemetry servers: receives records, rejects invalid ones, detects the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from session.errors import SurrealError
from session.loggerplex.append_file import AppendFile
from session.nest import Array
from session.process.component import is_client
from session.process.context import Context
from session.process.periodic import Every, Rate
from session.process.service import IDLE_SECONDS, QuietPeriod, Service
from session.wire import Identity, Message
from session.wire.connection_limits import Bucket
from session.wire.one_way_sockets import Socket
from session.wire.schema import Count, Kinds, ListOf, Schema, Type, quote

_RECORDS_PER_TICK = 1000
_WRITE_SECONDS = 0.2
# Limits per sender, so that none can fill the disk. The burst is large because of pictures.
_BYTES_PER_SECOND, _BYTES_AT_ONCE = 1 << 20, 64 << 20
_SENDERS = 4096
_BOUND = "bound"
# The component that ends after all others.
_LAST = "loggerplex"
# Errors of a record that fits its schema but cannot be written, such as an empty picture.
_BAD_RECORD = (ValueError, OSError, SurrealError)
# A client sends at most 500 records per message, each with texts of at most 64 KiB.
_MESSAGE = Schema(
    {
        "records": ListOf(Type("a record", lambda value: type(value) is dict), 1000),
        "dropped": Count(),
    },
    arrays=None,
    header_bytes=16 << 20,
)


class Bound(SurrealError):
    """A sender has exceeded a limit; reported once, apart from other faults of its records."""


class Collector(Service):
    """Receives the records of all components; base class of both servers.

    Args:
        context: context of the component.
        kind: kind of the messages; binds the endpoint ``<kind>.records``.
        schemas: schema of each kind of record.
    """

    def __init__(self, context: Context, kind: str, schemas: Kinds) -> None:
        self.rejected = 0
        self._context = context
        self._kind = kind
        self._schemas = schemas
        # Scripts that are no components may send messages to this server, but to no other.
        known = context.wire.knows
        context.wire.knows = lambda name: known(name) or is_client(name)
        self._records = context.wire.pull(f"{kind}.records", {kind: _MESSAGE})
        self._own = context.channel(kind)
        self._rate = Rate(clock=context.clock.now)
        self._write_due = Every(seconds=_WRITE_SECONDS, clock=context.clock.now)
        self._ending = QuietPeriod(context)
        self._dropped: dict[str, tuple[int, int]] = {}
        self._buckets: dict[str, Bucket] = {}
        self._rest_until = 0.0
        # False while messages may wait: after as many as one tick reads, and during a rest.
        self._read_all = False
        self._disk_failing = False

    def store(
        self, sender: Identity, record: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> None:
        """Stores one record; an error for an invalid one is counted and reported once."""
        raise NotImplementedError

    def component_of(self, record: Mapping[str, Any]) -> str:
        """Name of the component in a record, empty if the record has none."""
        return ""

    def on_dropped(self, sender: Identity, count: int, message: Message) -> None:
        """Called when a sender's number of dropped records since its start rises to ``count``."""

    def write(self) -> None:
        """Writes stored records to disk."""

    def tick(self) -> bool:
        """Receives a bounded number of messages and writes to disk periodically."""
        taken, began = 0, self._context.clock.now()
        self._read_all = False
        while taken < _RECORDS_PER_TICK and began >= self._rest_until:
            before = self._records.counters.received_bytes
            message = self._records.receive()
            if message is None:
                self._read_all = True
                break
            size_bytes = self._records.counters.received_bytes - before
            taken += 1 + self._store_message(message, size_bytes)
        if taken:
            # Works at most half of the time: faster clients buffer their records, or drop them.
            now = self._context.clock.now()
            self._rest_until = now + (now - began)
        if self._write_due():
            self.write()
        if self._ending.draining and len(self._own):
            # Its own last records come back to this socket: after its end nobody reads it.
            self._own.flush()
            self._ending.on_message()
        return taken > 0

    def drain(self) -> None:
        """Receives the messages still in the sockets, then is done."""
        self._ending.drain()

    @property
    def done(self) -> bool:
        """True when drained, or when the run is over and no client sends any more."""
        return self._read_all and self._ending.done

    def wait_on(self) -> list[Socket]:
        """The socket of the records; none during a rest."""
        return [self._records] if self.rest_seconds() == IDLE_SECONDS else []

    def rest_seconds(self) -> float:
        """Time until records are read again [s]."""
        left = self._rest_until - self._context.clock.now()
        return min(left, IDLE_SECONDS) if left > 0.0 else IDLE_SECONDS

    def status(self) -> dict[str, float]:
        """Rate of records, and number of rejected ones."""
        bad = self.rejected + self._records.counters.rejected
        return {"records_per_second": self._rate.per_second(), "rejected": float(bad)}

    def close(self) -> None:
        """Writes all stored records."""
        self.write()

    def flush(self, files: Iterable[AppendFile]) -> None:
        """Flushes all files; reports a disk error once."""
        failing = [file for file in files if not file.flush()]
        if failing and not self._disk_failing:
            first = failing[0]
            self._context.event(
                "not_written",
                f"{first.path.name}: {first.problem}; lines and metrics wait, then are lost",
            )
        self._disk_failing = bool(failing)

    def _store_message(self, message: Message, size_bytes: int = 0) -> int:
        sender = message.sender
        if not self._may_send(sender.name, size_bytes):
            rate = f"{_BYTES_PER_SECOND >> 20} MiB a second"
            self._reject(sender, _BOUND, f"it sent more than {rate} in the long run")
            return 0
        records = message.fields["records"]
        for record, arrays in zip(records, _arrays_by_record(message, len(records)), strict=True):
            kind = record.get("kind", self._kind)
            schema = self._schemas.get(kind) if type(kind) is str else None
            if schema is None:
                self._reject(sender, "", f"kind {quote(kind)} is not known")
                continue
            wrong = schema.complaint(Message(kind, record, arrays))
            if wrong is not None:
                self._reject(sender, kind, wrong)
                continue
            with self._rejecting(sender, kind):
                self._check_component(message, record)
                self.store(sender, record, arrays)
        with self._rejecting(sender, "dropped"):
            self._compare_dropped(message)
        self._rate.add(len(records))
        # Last, because storing may take longer than the silence that ends the server.
        # Its own heartbeats must not keep it alive, nor those of the one that waits for its end.
        if sender.name not in (self._context.name, _LAST):
            self._ending.on_message(outlives=is_client(sender.name))
        return len(records)

    def _check_component(self, message: Message, record: Mapping[str, Any]) -> None:
        """Raises ValueError if the sender may not report for the component of the record."""
        sender = message.sender.name
        component = self.component_of(record) or sender
        if component != sender and is_client(sender):
            raise ValueError(f"a script may not send a record of '{component[:80]}'")
        if not message.grant.owns(component):
            raise ValueError(f"a record of '{component[:80]}', for which its key is not")

    @contextmanager
    def _rejecting(self, sender: Identity, kind: str) -> Iterator[None]:
        try:
            yield
        except _BAD_RECORD as error:
            about = _BOUND if isinstance(error, Bound) else kind
            self._reject(sender, about, str(error) or repr(error))

    def _compare_dropped(self, message: Message) -> None:
        sender, count = message.sender, message.fields["dropped"]
        incarnation, known = self._dropped.get(sender.name, (sender.incarnation, 0))
        if sender.incarnation < incarnation:
            # If two scripts have one name, only the newer one counts.
            return
        if count > (known if incarnation == sender.incarnation else 0):
            self._dropped[sender.name] = (sender.incarnation, count)
            self.on_dropped(sender, count, message)

    def _may_send(self, name: str, size_bytes: int) -> bool:
        now = self._context.clock.now()
        if name not in self._buckets:
            if len(self._buckets) >= _SENDERS:
                return False
            self._buckets[name] = Bucket(_BYTES_PER_SECOND, _BYTES_AT_ONCE, now)
        return self._buckets[name].take(now, size_bytes)

    def _reject(self, sender: Identity, kind: str, reason: str) -> None:
        self.rejected += 1
        self._context.wire.reject(
            self._records.endpoint, sender.name, f"record: {reason}", kind=kind
        )


def _arrays_by_record(message: Message, count: int) -> Iterator[Mapping[str, Array]]:
    """Yields the arrays of each record; in the message those of record ``i`` are ``i/name``."""
    by_index: dict[str, dict[str, Array]] = {}
    for path, array in message.arrays.items():
        index, _, name = path.partition("/")
        by_index.setdefault(index, {})[name] = array
    for number in range(count):
        yield by_index.get(str(number), {})
