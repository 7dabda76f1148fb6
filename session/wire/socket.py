"""What every socket shares: never blocking, bounded, counted, and kept from strangers.

The pattern decides who binds: PULL, XPUB and ROUTER bind, PUSH, SUB and DEALER connect. Within one
process every call looks at the socket's events first, because libzmq otherwise handles commands
when the CPU's cycle counter says so, and two serial runs differ.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import zmq

from session.errors import AdmissionError, OversizeError, UsageError, WireError
from session.wire.codec import Message, ProtocolError, decode, encode, size_bytes
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
from session.wire.layout import Buffer
from session.wire.schema import Kinds, shown
from session.wire.security import TCP

if TYPE_CHECKING:
    from session.wire.wire import Wire

_KERNEL_BUFFER_BYTES = 1 << 20
# Up to here a frame is copied: the thread that pyzmq tells when one has left costs more.
_COPIED_BYTES = 1 << 18
_SILENT_SECONDS = 30
_UNCONFIRMED_SECONDS = 60
_EVENTS_KEPT = 64
# As plain numbers: an operation on zmq's own flags costs as much as the call itself.
_POLLIN, _POLLOUT = int(zmq.POLLIN), int(zmq.POLLOUT)
_NOBLOCK, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK) | int(zmq.SNDMORE)
_MONITORED = MADE | LOST | WRONG_KEY | WRONG_PROTOCOL | BROKEN_OFF


class Complaint(NamedTuple):
    """Why a message is not taken.

    Attributes:
        reason: in one line.
        stranger: nor would another one be: its sender is of another run.
    """

    reason: str
    stranger: bool = False


@dataclass(slots=True)
class Counters:
    """What one socket has seen; ``rejected`` messages did not decode or did not fit."""

    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    rejected: int = 0
    unanswered: int = 0


def poll(sockets: Sequence[Socket], timeout_seconds: float) -> None:
    """Sleeps until one of the sockets can be read, at most ``timeout_seconds``.

    What it has found counts for the next :meth:`Socket.readable` of each. libzmq's own poll asks
    the kernel twice for each socket, each time; this asks once for all that were silent.
    """
    if not sockets:
        # Several threads may rest at once, and a poller serves only one at a time.
        time.sleep(max(0.0, timeout_seconds))
        return
    deadline = time.monotonic() + timeout_seconds
    found = False
    for socket in sockets:
        if not socket.silent:
            socket.look()
            found |= socket.pending
    poller = _poller(tuple([socket.descriptor for socket in sockets]))
    left = 0.0 if found else timeout_seconds
    while True:
        # Little is done between the end of the sleep and what it was for.
        signalled = poller.poll(1000 * left)
        for descriptor, _ in signalled:
            for socket in sockets:
                if socket.descriptor == descriptor:
                    socket.look()
                    found |= socket.pending
        if found or not signalled:
            break
        left = max(0.0, deadline - time.monotonic())
    for socket in sockets:
        socket.looked = True


@lru_cache(maxsize=64)
def _poller(descriptors: tuple[int, ...]) -> select.poll:
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return poller


class Socket:
    """What all sockets share; made by :class:`Wire`.

    Attributes:
        descriptor: becomes readable in the kernel's eyes when there may be news.
        pending: whether something could be received when it was looked at last.
        kinds: schema of each kind of message that it takes; None: any message of this run.
        one_run: messages of another run are refused.
        silent: nothing could be, and nothing was done with the socket since: as long as the
            descriptor is not readable, nothing can be now.
        looked: :func:`poll` has just found out.
        guarded: every connection has proved a key, whose role decides what its messages may do.
    """

    pattern: int
    binds: bool
    sends: bool = True
    anybody: bool = False
    one_run: bool = True

    def __init__(
        self, wire: Wire, endpoint: str, high_water_mark: int, kinds: Kinds | None = None
    ) -> None:
        self.endpoint = endpoint
        self.kinds = kinds
        self.counters = Counters()
        self._wire = wire
        self.link: ConnectionMonitor | None = None
        self._monitor: Monitor | None = None
        self._file: tuple[Path, int] | None = None
        self.guarded = False
        self._port = 0
        self._limits = [wire.max_message_bytes]
        if kinds is not None:
            self._limits.append(max((each.header_bytes for each in kinds.values()), default=0))
        address = wire.addresses[endpoint]
        if self.binds:
            wire.add_warning(wire.security.check_bind(endpoint, address.bind))
        self.raw: zmq.Socket[bytes] = wire.context.socket(self.pattern)
        # pyzmq's own looks for options that are not used here, each time.
        self._send_frame: Any = cast(Any, super(zmq.Socket, self.raw)).send
        self.descriptor = int(self.raw.getsockopt(zmq.FD))
        self.pending = self.silent = self.looked = False
        self._inproc = address.connect.startswith("inproc://")
        self._looks_first = self._inproc
        self._events: deque[bool] = deque(maxlen=_EVENTS_KEPT)
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
        # Twice the limit: the decoder refuses politely, this cuts off only what is hostile.
        self.raw.setsockopt(zmq.MAXMSGSIZE, 2 * self._wire.max_message_bytes)
        self.raw.setsockopt(zmq.RECONNECT_IVL, 50)
        self.raw.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        # A machine that vanishes says nothing: the kernel asks after a silent one, and ends a
        # connection on which nothing got through for so long. One that was only held back is made
        # again at once, and what was not acked goes again.
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
            # From the first moment, for a refusal is seen only once.
            self._monitor = Monitor(self.raw, _MONITORED)
        self.raw.connect(address)

    def _guard(self, address: str) -> None:
        """Lets in only who has an allowed key, where keys are and the address is not private."""
        security = self._wire.security
        if not address.startswith(TCP):
            return
        self.raw.setsockopt(zmq.HANDSHAKE_IVL, round(1000 * security.handshake_seconds))
        if security:
            self.raw.curve_server = True
            self.raw.curve_publickey = security.server_public
            self.raw.curve_secretkey = security.server_secret
            self.raw.setsockopt(zmq.ZAP_DOMAIN, self.endpoint.encode())
            # Without a gate nobody comes in; libzmq would otherwise let in everybody.
            self.raw.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
            self.guarded = True
            self._port = int(address.rpartition(":")[2])
            self._wire.gate.watch(self.endpoint, self.raw, address, anybody=self.anybody)

    def _bind(self, address: str) -> None:
        try:
            self._guard(address)
            path = Path(address.removeprefix(IPC))
            if address.startswith(IPC):
                # The last process of a run removes this folder; one that starts again makes it.
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.raw.bind(address)
            if address.startswith(IPC):
                self._file = (path, path.stat().st_ino)
        except (OSError, zmq.ZMQError) as error:
            raise UsageError(
                f"cannot bind {self.endpoint} to {address}: {error.strerror}; "
                "end the process that uses it or choose another address"
            ) from None

    def connection_events(self) -> Iterator[bool]:
        """Yields True for each connection made and False for each lost since the last call.

        The first call starts watching. In-process sockets have no connections to lose.
        """
        if self._inproc:
            return
        if self._monitor is None:
            self._monitor = Monitor(self.raw, MADE | LOST)
        self._watch()
        while self._events:
            yield self._events.popleft()

    def _watch(self) -> None:
        """Takes what the monitor has seen."""
        if self._monitor is None:
            return
        for number, value in self._monitor.events():
            if self.link is None:
                change: bool | None = number == MADE
            else:
                change = self.link.on_event(number, value, time.monotonic())
            if change is not None:
                self._events.append(change)

    def check(self) -> str | None:
        """What is wrong with its connection, once for each time; None if nothing is.

        Raises:
            AdmissionError: the other side does not let it in, now or later.
        """
        if self.link is None:
            return None
        self._watch()
        refusal = self.link.refusal
        if refusal is None and not self._wire.ever_connected:
            refusal = self.link.suspicion
        if refusal is not None:
            raise AdmissionError(refusal)
        return self.link.news(time.monotonic())

    def close(self, linger_seconds: float = 0.0) -> None:
        """Closes the socket; what was sent may still leave for ``linger_seconds``."""
        if self in self._wire.sockets:
            self._wire.sockets.remove(self)
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None
        elif self.binds:
            # The gate's own, if there is one.
            self.raw.disable_monitor()
        # What only receives has nothing to wait for, but would hold the context open.
        self.raw.close(round(linger_seconds * 1000) if self.sends else 0)
        if self._file is not None:
            self._remove(*self._file)

    def _remove(self, path: Path, inode: int) -> None:
        """Removes the file of an ipc address, which libzmq leaves; not that of a successor."""
        with suppress(OSError):
            if path.stat().st_ino == inode:
                path.unlink()

    def look(self) -> int:
        """Handles what the I/O thread has sent; the events of the socket after that."""
        events = int(self.raw.getsockopt(zmq.EVENTS))
        self.pending = bool(events & _POLLIN)
        self.silent = not self.pending
        return events

    def writable(self) -> bool:
        """True if a message can be sent now."""
        return bool(self.look() & _POLLOUT)

    def _may_send(self) -> bool:
        """False if a message cannot be sent now; True if it is worth trying."""
        return not self._looks_first or self.writable()

    def readable(self) -> bool:
        """True if a message can be received now, or could when :func:`poll` has just looked."""
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
        # A message comes whole; pyzmq's recv_multipart asks the socket again for each frame.
        while frames[-1].more:
            frames.append(self.raw.recv(_NOBLOCK, copy=False))
        return frames

    def _send_frames(self, frames: Sequence[Buffer]) -> bool:
        """Sends without waiting; False if that cannot be."""
        # That there is room again is known only after a look.
        sent = self._try_frames(frames) or (self.writable() and self._try_frames(frames))
        self._looks_first = self._inproc or not sent
        return sent

    def _try_frames(self, frames: Sequence[Buffer]) -> bool:
        self.silent = False
        last, size = len(frames) - 1, 0
        try:
            for index, frame in enumerate(frames):
                length = len(frame)
                flags = _MORE if index < last else _NOBLOCK
                self._send_frame(frame, flags, length <= _COPIED_BYTES)
                size += length
        except zmq.Again:
            return False
        self.counters.sent += 1
        self.counters.sent_bytes += size
        return True

    def _decode(self, frames: list[zmq.Frame]) -> Message | None:
        """The message, or None after counting it as rejected."""
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
        """Ends the connection over which a frame came, for it floods; a guest stays away a while.

        Where there are no keys nothing is ended: anybody could connect again.
        """
        key, descriptor = proved_key(frame), descriptor_of(frame)
        if not self.guarded or not descriptor.isdecimal():
            return
        grant = self._wire.gate.grant(key)
        if grant.guest:
            self._wire.gate.bar(key)
        end_connection(int(descriptor), self._port)
        who = grant.names[0] if grant.names else ""
        reason = f"its connection sent much more than {grant.rate:g} a second, and was ended"
        self._wire.reject(self.endpoint, who, reason, kind="flood")

    def _not_granted(self, message: Message, frame: zmq.Frame) -> Complaint | None:
        """Why the key of its sender does not allow a message, None if it does."""
        if not self.guarded or self.anybody:
            return None
        message.grant = self._wire.gate.grant(proved_key(frame))
        refusal = message.grant.refusal(self.endpoint, message.kind, message.sender.name)
        return None if refusal is None else Complaint(refusal)

    def _complaint(self, message: Message, header_bytes: int) -> Complaint | None:
        """Why a message that has come is not taken, None if it is."""
        wire, sender = self._wire, message.sender
        schema = None if self.kinds is None else self.kinds.get(message.kind)
        if schema is None and self.kinds is not None:
            return Complaint(f"{self.endpoint} knows no {shown(message.kind)}")
        if schema is None or not schema.any_run:
            ours, theirs = wire.identity.fingerprint, sender.fingerprint
            if theirs != ours and self.one_run:
                reason = f"{shown(sender.name)} has fingerprint {theirs.hex()}, this run has "
                return Complaint(reason + ours.hex(), stranger=True)
            if self.binds and not self.anybody and not wire.knows(sender.name):
                return Complaint(f"no component of this run is called {shown(sender.name)}")
        if schema is None:
            return None
        if header_bytes > schema.header_bytes:
            return Complaint(f"'{message.kind}' with a header of {header_bytes} bytes")
        wrong = schema.complaint(message)
        return None if wrong is None else Complaint(f"'{message.kind}': {wrong}")

    def reject(self, message: Message, reason: str) -> None:
        """Counts and reports a message that fits its schema and yet contradicts what is here."""
        self._reject(message.sender.name, message.kind, f"'{message.kind}': {reason}")

    def _reject(self, sender: str, kind: str, reason: str) -> None:
        self.counters.rejected += 1
        self._wire.reject(self.endpoint, sender, reason, kind=kind)

    def _refuse_message(self, message: Message, complaint: Complaint) -> None:
        """A message was dropped; a sender that waits for an answer gets the reason."""

    def _refuse_protocol(self, frames: list[zmq.Frame], error: ProtocolError) -> None:
        """A message of another protocol has come; a sender that waits gets the reason."""


def descriptor_of(frame: zmq.Frame) -> str:
    """libzmq's descriptor of the connection over which a frame came, empty within a process."""
    try:
        return str(frame.get("__fd"))
    except zmq.ZMQError:
        return ""


def proved_key(frame: zmq.Frame) -> str:
    """Public key (Z85) that the sender of a frame has proved to have, empty without keys."""
    try:
        return str(frame.get("User-Id"))
    except zmq.ZMQError:
        return ""
