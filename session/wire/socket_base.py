"""Base of all sockets: non-blocking, bounded, with counters, protected by keys.

PULL, XPUB and ROUTER sockets bind; PUSH, SUB and DEALER sockets connect. Within one process every
call reads the socket's events first: otherwise libzmq handles commands at times that depend on the
CPU's cycle counter, and two serial runs would differ.
"""

from __future__ import annotations

import errno
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import zmq

from session.errors import AdmissionError, OversizeError, UsageError, WireError
from session.wire.codec import Buffer, Message, ProtocolError, decode, encode, size_bytes
from session.wire.connection_limits import end_connection
from session.wire.connection_monitor import (
    BROKEN_OFF,
    LOST,
    MADE,
    WRONG_KEY,
    WRONG_PROTOCOL,
    ConnectionMonitor,
    Monitor,
)
from session.wire.endpoint import IPC
from session.wire.schema import Kinds, quote
from session.wire.security import TCP

if TYPE_CHECKING:
    from session.wire.socket_state import Shared

_KERNEL_BUFFER_BYTES = 1 << 20
# Up to this size a frame is copied: without a copy, pyzmq's notification thread costs more.
_COPIED_BYTES = 1 << 18
# pyzmq makes the socket of its collector at the first frame without a copy, and two threads that
# send their first at once would make two, of which one is closed while libzmq still uses it.
_COLLECTOR = threading.Lock()
_SILENT_SECONDS = 30
_UNCONFIRMED_SECONDS = 60
_EVENTS_KEPT = 64
_FOLDERS_MADE = 3
# Plain ints: an operation on zmq's flag types costs as much as the call itself.
_POLLIN, _POLLOUT = int(zmq.POLLIN), int(zmq.POLLOUT)
_NOBLOCK, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK) | int(zmq.SNDMORE)
_MONITORED = MADE | LOST | WRONG_KEY | WRONG_PROTOCOL | BROKEN_OFF


class Complaint(NamedTuple):
    """Reason to reject a message.

    Attributes:
        reason: text in one line.
        stranger: True if the sender is of another run, so every message of it is rejected.
    """

    reason: str
    stranger: bool = False


@dataclass(slots=True)
class Counters:
    """Counters of one socket; ``rejected`` messages did not decode or did not fit their schema."""

    sent: int = 0
    received: int = 0
    received_bytes: int = 0
    rejected: int = 0
    unanswered: int = 0


class Socket:
    """Base of all sockets; made by :class:`Wire`.

    Attributes:
        descriptor: file descriptor that becomes readable when the events may have changed.
        pending: True if a message could be received at the last :meth:`look`.
        kinds: schema of each accepted kind of message; None: any message of this run.
        one_run: True refuses messages of other runs.
        silent: True if nothing was pending and the socket was not used since; as long as the
            descriptor is not readable, nothing is pending now.
        looked: True if :func:`poll` has just updated ``pending``.
        guarded: True if every connection has proved a key, whose role limits its messages.
    """

    pattern: int
    binds: bool
    sends: bool = True
    any_key: bool = False
    one_run: bool = True

    def __init__(
        self, wire: Shared, endpoint: str, high_water_mark: int, kinds: Kinds | None = None
    ) -> None:
        self.endpoint = endpoint
        self.kinds = kinds
        self.counters = Counters()
        self._wire = wire
        self.link: ConnectionMonitor | None = None
        self._monitor: Monitor | None = None
        self._file: tuple[Path, tuple[int, int]] | None = None
        self.guarded = False
        self._port = 0
        self._limits = [wire.max_message_bytes]
        if kinds is not None:
            self._limits.append(max((each.header_bytes for each in kinds.values()), default=0))
        address = wire.addresses[endpoint]
        if self.binds:
            wire.add_warning(wire.security.check_bind(endpoint, address.bind))
        self.raw: zmq.Socket[bytes] = wire.context.socket(self.pattern)
        # pyzmq's send checks for unused options at each call, so its base class's is used.
        self._send_frame: Any = cast(Any, super(zmq.Socket, self.raw)).send
        self.descriptor = int(self.raw.getsockopt(zmq.FD))
        self.pending = self.silent = self.looked = False
        self._inproc = address.connect.startswith("inproc://")
        self._looks_first = self._inproc
        self._events: deque[bool] = deque(maxlen=_EVENTS_KEPT)
        self._losses = 0
        self._lost = False
        try:
            self._configure(high_water_mark)
            if self.binds:
                self._bind(address.bind)
            else:
                self._connect(address.connect)
        except BaseException:
            self.raw.disable_monitor()
            self.raw.close(0)
            raise
        wire.sockets.append(self)

    def _configure(self, high_water_mark: int) -> None:
        self.raw.setsockopt(zmq.LINGER, 0)
        self.raw.setsockopt(zmq.SNDHWM, high_water_mark)
        self.raw.setsockopt(zmq.RCVHWM, high_water_mark)
        self.raw.setsockopt(zmq.SNDBUF, _KERNEL_BUFFER_BYTES)
        self.raw.setsockopt(zmq.RCVBUF, _KERNEL_BUFFER_BYTES)
        # Twice the limit: the decoder refuses with a reason; libzmq disconnects only hostile peers.
        self.raw.setsockopt(zmq.MAXMSGSIZE, 2 * self._wire.max_message_bytes)
        self.raw.setsockopt(zmq.RECONNECT_IVL, 50)
        self.raw.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        # A machine that vanishes sends no close: the kernel probes a silent connection and ends one
        # whose data were not acked for this time. A connection that was only delayed is made again
        # at once, and chunks without an ack are sent again.
        self.raw.setsockopt(zmq.TCP_KEEPALIVE, 1)
        self.raw.setsockopt(zmq.TCP_KEEPALIVE_IDLE, _SILENT_SECONDS)
        self.raw.setsockopt(zmq.TCP_KEEPALIVE_INTVL, _SILENT_SECONDS // 3)
        self.raw.setsockopt(zmq.TCP_MAXRT, _UNCONFIRMED_SECONDS * 1000)
        if not self.binds and not self._inproc:
            self.raw.setsockopt(zmq.IMMEDIATE, 1)

    def _connect(self, address: str) -> None:
        security = self._wire.security
        if address.startswith(TCP):
            if security:
                self.raw.curve_publickey = security.client_public
                self.raw.curve_secretkey = security.client_secret
                self.raw.curve_serverkey = security.server_public
            self.raw.setsockopt(zmq.HANDSHAKE_IVL, round(1000 * security.handshake_seconds))
            where = f"{address} ({self.endpoint})"
            self.link = ConnectionMonitor(where, has_keys=bool(security), now=time.monotonic())
            # Monitored from the start, because a refusal is reported only once.
            self._monitor = Monitor(self.raw, _MONITORED)
        self.raw.connect(address)

    def _guard(self, address: str) -> None:
        """Admits only peers with an allowed key, if there are keys and the address is TCP."""
        security = self._wire.security
        if not address.startswith(TCP):
            return
        self.raw.setsockopt(zmq.HANDSHAKE_IVL, round(1000 * security.handshake_seconds))
        if security:
            self.raw.curve_server = True
            self.raw.curve_publickey = security.server_public
            self.raw.curve_secretkey = security.server_secret
            self.raw.setsockopt(zmq.ZAP_DOMAIN, self.endpoint.encode())
            # Without a running handler no peer is admitted; by default libzmq would admit all.
            self.raw.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
            self.guarded = True
            self._port = int(address.rpartition(":")[2])
            self._wire.zap.watch(self.endpoint, self.raw, address, any_key=self.any_key)

    def _bind(self, address: str) -> None:
        try:
            self._guard(address)
            if address.startswith(IPC):
                self._bind_file(address, Path(address.removeprefix(IPC)))
            else:
                self.raw.bind(address)
        except (OSError, zmq.ZMQError) as error:
            raise UsageError(
                f"cannot bind {self.endpoint} to {address}: {error.strerror}; "
                "end the process that uses it or choose another address"
            ) from None

    def _bind_file(self, address: str, path: Path) -> None:
        for left in reversed(range(_FOLDERS_MADE)):
            # The last process of a run removes this folder; a restarted one creates it again.
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                self.raw.bind(address)
                break
            except zmq.ZMQError as error:
                # The former may still be about to.
                if error.errno != errno.ENOENT or not left:
                    raise
        self._file = (path, _made(path))

    def connection_events(self) -> Iterator[bool]:
        """Yields True for each connection made and False for each lost since the last call.

        The first call starts the monitor. In-process sockets have no such events.
        """
        self.losses()
        while self._events:
            yield self._events.popleft()

    def losses(self) -> int:
        """Returns a number that grows when a connection is lost, and when the next one is made.

        What was sent before it grew may be lost. libzmq reports a loss a moment before it ends the
        queue of that connection, so a message sent in that moment is lost with the queue. The first
        call starts the monitor.
        """
        if self._monitor is None and not self._inproc:
            self._monitor = Monitor(self.raw, MADE | LOST)
        self._watch()
        return self._losses

    def _watch(self) -> None:
        """Handles new events of the monitor."""
        if self._monitor is None:
            return
        for number, value in self._monitor.events():
            if self.link is None:
                change: bool | None = number == MADE
            else:
                change = self.link.on_event(number, value, time.monotonic())
            if change is not None:
                self._events.append(change)
                self._losses += self._lost or not change
                self._lost = not change

    def check(self) -> str | None:
        """Describes a missing connection, once per loss; None if there is no problem.

        Once the run is over, a missing peer is none: its process may end before this one.

        Raises:
            AdmissionError: the peer refuses this side permanently.
        """
        if self.link is None:
            return None
        self._watch()
        refusal = self.link.refusal
        if refusal is None and not self._wire.ever_connected:
            refusal = self.link.suspicion
        if refusal is not None:
            raise AdmissionError(refusal)
        warning = self.link.pop_warning(time.monotonic())
        return None if warning is None or self._wire.run_over() else warning

    def reconnect(self) -> None:
        """Replaces an in-process connection, of which libzmq reports no loss."""
        address = self._wire.addresses[self.endpoint].connect
        self.raw.disconnect(address)
        self.raw.connect(address)
        self._losses += 1
        self._events.extend((False, True))

    def close(self, linger_seconds: float = 0.0) -> None:
        """Closes the socket; libzmq sends queued messages for at most ``linger_seconds``."""
        if self in self._wire.sockets:
            self._wire.sockets.remove(self)
        if self._wire.retired is not None:
            self._retire(self._wire.retired)
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None
        elif self.binds:
            # Ends the monitor of the ZAP handler of this socket, if there is one.
            self.raw.disable_monitor()
        # A receiving socket has nothing to send; lingering would only delay the context's end.
        self.raw.close(round(linger_seconds * 1000) if self.sends else 0)
        if self._file is not None:
            self._remove(*self._file)

    def _retire(self, retired: dict[str, zmq.Socket[bytes]]) -> None:
        """Ends the connection at once, or keeps a bound socket open without its address.

        libzmq ends the connections of a closed socket in a thread of its own, some time later:
        two serial runs would differ.
        """
        address = self._wire.addresses[self.endpoint]
        if not self.binds:
            self.raw.disconnect(address.connect)
            return
        self.raw.unbind(address.bind)
        retired[self.endpoint] = self.raw
        # This one is closed instead.
        self.raw = self._wire.context.socket(self.pattern)

    def _remove(self, path: Path, made: tuple[int, int]) -> None:
        """Removes the file of an ipc address, which libzmq leaves, unless a successor made it."""
        with suppress(OSError):
            if _made(path) == made:
                path.unlink()

    def look(self) -> int:
        """Handles commands of libzmq's I/O thread and returns the socket's events."""
        events = int(self.raw.getsockopt(zmq.EVENTS))
        self.pending = bool(events & _POLLIN)
        self.silent = not self.pending
        return events

    def writable(self) -> bool:
        """True if a message can be sent now."""
        return bool(self.look() & _POLLOUT)

    def _may_send(self) -> bool:
        """False if a message cannot be sent now; True if sending may succeed."""
        return not self._looks_first or self.writable()

    def readable(self) -> bool:
        """True if a message can be received now, or could at a :func:`poll` just before."""
        if self.looked:
            self.looked = False
        else:
            self.look()
        return self.pending

    def _encode(self, message: Message) -> list[Buffer]:
        message.sender = self._wire.identity
        frames = encode(message)
        size = size_bytes(frames)
        if size > self._wire.max_message_bytes:
            raise OversizeError(
                f"'{message.kind}' for {self.endpoint} has {size} bytes, the limit is "
                f"{self._wire.max_message_bytes} (session_config.max_message_bytes)"
            )
        return frames

    def _receive(self) -> list[zmq.Frame] | None:
        if not self.readable():
            return None
        try:
            frames = [self.raw.recv(_NOBLOCK, copy=False)]
        except zmq.Again:
            return None
        # libzmq delivers all frames of a message at once; recv_multipart queries RCVMORE per frame.
        while frames[-1].more:
            frames.append(self.raw.recv(_NOBLOCK, copy=False))
        return frames

    def _send_frames(self, frames: Sequence[Buffer]) -> bool:
        """Sends without waiting; False if the message cannot be sent now."""
        # libzmq notices free space in a full queue only when its events are read.
        sent = self._try_frames(frames) or (self.writable() and self._try_frames(frames))
        self._looks_first = self._inproc or not sent
        return sent

    def _try_frames(self, frames: Sequence[Buffer]) -> bool:
        self.silent = False
        last = len(frames) - 1
        try:
            for index, frame in enumerate(frames):
                flags = _MORE if index < last else _NOBLOCK
                if len(frame) <= _COPIED_BYTES:
                    self._send_frame(frame, flags, True)
                else:
                    with _COLLECTOR:
                        self._send_frame(frame, flags, False)
        except zmq.Again:
            return False
        self.counters.sent += 1
        return True

    def _decode(self, frames: list[zmq.Frame]) -> Message | None:
        """Decodes and checks a message; None if it is rejected, which is counted."""
        try:
            message = decode(frames, *self._limits)
        except ProtocolError as error:
            self._reject(error.name, "", str(error))
            self._refuse_protocol(frames, error)
            return None
        except WireError as error:
            self._reject("", "", str(error))
            return None
        complaint = self._not_granted(message, frames[-1])
        complaint = complaint or self._complaint(message, len(frames[0]))
        if complaint is not None:
            known = message.kind if self.kinds is not None and message.kind in self.kinds else ""
            self._reject(message.sender.name, known, complaint.reason)
            self._refuse_message(message, complaint)
            return None
        self.counters.received += 1
        self.counters.received_bytes += size_bytes(frames)
        return message

    def end(self, frame: zmq.Frame) -> None:
        """Closes the connection of a frame because it floods; also bars a guest's key for 10 s.

        Does nothing without keys, because the peer could connect again.
        """
        key, descriptor = prove_key(frame), descriptor_of(frame)
        if not self.guarded or not descriptor.isdecimal():
            return
        grant = self._wire.zap.grant(key)
        if grant.guest:
            self._wire.zap.block(key)
        end_connection(int(descriptor), self._port)
        name = grant.names[0] if grant.names else ""
        reason = f"its connection sent much more than {grant.rate:g} a second, and was ended"
        self._wire.reject(self.endpoint, name, reason, kind="flood")

    def _not_granted(self, message: Message, frame: zmq.Frame) -> Complaint | None:
        """Returns the reason if the sender's key does not permit a message, else None."""
        if not self.guarded or self.any_key:
            return None
        message.grant = self._wire.zap.grant(prove_key(frame))
        refusal = message.grant.refusal(self.endpoint, message.kind, message.sender.name)
        return None if refusal is None else Complaint(refusal)

    def _complaint(self, message: Message, header_bytes: int) -> Complaint | None:
        """Returns the reason to reject a received message, None if it is valid."""
        wire, sender = self._wire, message.sender
        schema = None if self.kinds is None else self.kinds.get(message.kind)
        if schema is None and self.kinds is not None:
            return Complaint(f"{self.endpoint} knows no {quote(message.kind)}")
        if schema is None or not schema.any_run:
            ours, theirs = wire.identity.fingerprint, sender.fingerprint
            if theirs != ours and self.one_run:
                reason = f"{quote(sender.name)} has fingerprint {theirs.hex()}, this run has "
                return Complaint(reason + ours.hex(), stranger=True)
            if self.binds and not self.any_key and not wire.knows(sender.name):
                return Complaint(f"no component of this run is called {quote(sender.name)}")
        if schema is None:
            return None
        if header_bytes > schema.header_bytes:
            return Complaint(f"'{message.kind}' with a header of {header_bytes} bytes")
        wrong = schema.complaint(message)
        return None if wrong is None else Complaint(f"'{message.kind}': {wrong}")

    def reject(self, message: Message, reason: str) -> None:
        """Counts and reports a message that fits its schema but contradicts the local state."""
        self._reject(message.sender.name, message.kind, f"'{message.kind}': {reason}")

    def _reject(self, sender: str, kind: str, reason: str) -> None:
        self.counters.rejected += 1
        self._wire.reject(self.endpoint, sender, reason, kind=kind)

    def _refuse_message(self, message: Message, complaint: Complaint) -> None:
        """Called for a dropped message; sockets for requests reply with the reason."""

    def _refuse_protocol(self, frames: list[zmq.Frame], error: ProtocolError) -> None:
        """Called for a message of another protocol; sockets for requests report the reason."""


def _made(path: Path) -> tuple[int, int]:
    """Returns what tells the file of an address from a later one, which may get its number."""
    found = path.stat()
    return found.st_ino, found.st_ctime_ns


def descriptor_of(frame: zmq.Frame) -> str:
    """Returns libzmq's descriptor of a received frame's connection, empty within a process."""
    try:
        return str(frame.get("__fd"))
    except zmq.ZMQError:
        return ""


def prove_key(frame: zmq.Frame) -> str:
    """Returns the proved public key (Z85) of a frame's sender, empty without keys."""
    try:
        return str(frame.get("User-Id"))
    except zmq.ZMQError:
        return ""
