"""One-way sockets, and what every socket shares: never blocking, bounded, counted.

The pattern decides who binds: PULL, XPUB and ROUTER bind, PUSH, SUB and DEALER connect. Every call
looks at the socket's events first, because libzmq otherwise handles commands when the CPU's cycle
counter says so, and two serial runs differ.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from session.errors import OversizeError, UsageError, WireError
from session.wire.codec import Buffer, Message, decode, encode, size_bytes

if TYPE_CHECKING:
    from session.wire.wire import Wire

_TOPIC = b"p"
_KERNEL_BUFFER_BYTES = 1 << 20


@dataclass(slots=True)
class Counters:
    """What one socket has seen; ``rejected`` messages did not decode or were of another run."""

    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    rejected: int = 0
    unanswered: int = 0


def poll(sockets: list[zmq.Socket[bytes]], timeout_seconds: float) -> None:
    """Sleeps until one of the sockets can be read, at most ``timeout_seconds``."""
    if not sockets:
        # libzmq's poll returns at once when it has nothing to look at.
        time.sleep(timeout_seconds)
        return
    poller = zmq.Poller()
    for socket in sockets:
        poller.register(socket, zmq.POLLIN)
    poller.poll(round(timeout_seconds * 1000))


class Socket:
    """What all sockets share; made by :class:`Wire`."""

    pattern: int
    binds: bool
    sends: bool = True

    def __init__(self, wire: Wire, endpoint: str, high_water_mark: int) -> None:
        self.endpoint = endpoint
        self.counters = Counters()
        self._wire = wire
        self._monitor: zmq.Socket[bytes] | None = None
        self._file: tuple[Path, int] | None = None
        address = wire.addresses[endpoint]
        self.raw: zmq.Socket[bytes] = wire.context.socket(self.pattern)
        self._inproc = address.connect.startswith("inproc://")
        self._configure(high_water_mark)
        if self.binds:
            self._bind(address.bind)
        else:
            self.raw.connect(address.connect)
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
        if not self.binds and not self._inproc:
            self.raw.setsockopt(zmq.IMMEDIATE, 1)

    def _bind(self, address: str) -> None:
        try:
            path = Path(address.removeprefix("ipc://"))
            if address.startswith("ipc://"):
                # The last process of a run removes this folder; one that starts again makes it.
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.raw.bind(address)
            if address.startswith("ipc://"):
                self._file = (path, path.stat().st_ino)
        except (OSError, zmq.ZMQError) as error:
            self.raw.close(0)
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
            self._monitor = self.raw.get_monitor_socket(
                zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
            )
        while int(self._monitor.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            # By hand, for zmq.utils.monitor imports asyncio.
            number = int.from_bytes(self._monitor.recv_multipart()[0][:2], sys.byteorder)
            yield number == zmq.EVENT_HANDSHAKE_SUCCEEDED

    def close(self, linger_seconds: float = 0.0) -> None:
        """Closes the socket; what was sent may still leave for ``linger_seconds``."""
        if self in self._wire.sockets:
            self._wire.sockets.remove(self)
        if self._monitor is not None:
            self.raw.disable_monitor()
            self._monitor.close(0)
            self._monitor = None
        # What only receives has nothing to wait for, but would hold the context open.
        self.raw.close(round(linger_seconds * 1000) if self.sends else 0)
        if self._file is not None:
            self._remove(*self._file)

    def _remove(self, path: Path, inode: int) -> None:
        """Removes the file of an ipc address, which libzmq leaves; not that of a successor."""
        with suppress(OSError):
            if path.stat().st_ino == inode:
                path.unlink()

    def writable(self) -> bool:
        """True if a message can be sent now."""
        return bool(int(self.raw.getsockopt(zmq.EVENTS)) & zmq.POLLOUT)

    def readable(self) -> bool:
        """True if a message can be received now."""
        return bool(int(self.raw.getsockopt(zmq.EVENTS)) & zmq.POLLIN)

    def _encode(self, message: Message) -> list[Buffer]:
        message.sender = self._wire.identity
        frames = encode(message)
        size = size_bytes(frames)
        if size > self._wire.max_message_bytes:
            raise OversizeError(
                f"'{message.kind}' for {self.endpoint} has {size} bytes, the limit is "
                f"{self._wire.max_message_bytes} (session_config.max_message_bytes)"
            )
        self.counters.sent += 1
        self.counters.sent_bytes += size
        return frames

    def _receive(self) -> list[zmq.Frame] | None:
        if not self.readable():
            return None
        try:
            return self.raw.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None

    def _decode(self, frames: list[zmq.Frame], *, one_run: bool) -> Message | None:
        """The message, or None after counting it as rejected.

        Args:
            one_run: refuse messages of another experiment.
        """
        try:
            message = decode(frames, self._wire.max_message_bytes)
        except WireError as error:
            self.counters.rejected += 1
            self._wire.reject(self.endpoint, "", str(error))
            return None
        ours, theirs = self._wire.identity.fingerprint, message.sender.fingerprint
        if one_run and theirs != ours:
            self.counters.rejected += 1
            reason = f"fingerprint {theirs.hex()}, this run has {ours.hex()}"
            self._wire.reject(self.endpoint, message.sender.name, reason)
            return None
        self.counters.received += 1
        self.counters.received_bytes += size_bytes(frames)
        return message


class PushSocket(Socket):
    """Sends one way; what cannot leave now is the caller's to keep."""

    pattern = zmq.PUSH
    binds = False

    def send(self, message: Message) -> bool:
        """Sends without waiting; False if there is no peer or it is full.

        Raises:
            OversizeError: the message is larger than the run allows.
        """
        if not self.writable():
            return False
        try:
            self.raw.send_multipart(self._encode(message), zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        return True


class PullSocket(Socket):
    """Receives what the peers push."""

    pattern = zmq.PULL
    binds = True
    sends = False

    def receive(self) -> Message | None:
        """The next good message, or None if there is none now."""
        while (frames := self._receive()) is not None:
            if (message := self._decode(frames, one_run=True)) is not None:
                return message
        return None


class PublisherSocket(Socket):
    """Publishes to all subscribers; a slow one misses messages."""

    pattern = zmq.XPUB
    binds = True

    def _configure(self, high_water_mark: int) -> None:
        super()._configure(high_water_mark)
        # Without it only the first subscriber of a topic is seen.
        self.raw.setsockopt(zmq.XPUB_VERBOSE, 1)

    def publish(self, message: Message) -> None:
        """Sends to whoever listens now."""
        self.readable()
        with suppress(zmq.Again):
            self.raw.send_multipart([_TOPIC, *self._encode(message)], zmq.NOBLOCK, copy=False)

    def new_subscribers(self) -> int:
        """How many subscribers came since the last call."""
        came = 0
        while (frames := self._receive()) is not None:
            came += frames[0].bytes[:1] == b"\x01"
        return came


class SubscriberSocket(Socket):
    """Receives what one endpoint publishes."""

    pattern = zmq.SUB
    binds = False
    sends = False

    def _configure(self, high_water_mark: int) -> None:
        super()._configure(high_water_mark)
        # Or the subscription leaves only when this component next looks at the socket.
        self.raw.setsockopt(zmq.IMMEDIATE, 0)
        self.raw.setsockopt(zmq.SUBSCRIBE, _TOPIC)

    def receive(self) -> Message | None:
        """The next good message, or None if there is none now."""
        while (frames := self._receive()) is not None:
            if (message := self._decode(frames[1:], one_run=True)) is not None:
                return message
        return None
