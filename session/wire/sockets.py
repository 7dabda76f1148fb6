"""Sockets of one component: never blocking, bounded, counted.

A :class:`Wire` makes them from endpoint names. The pattern decides who binds: PULL, XPUB and
ROUTER bind, PUSH, SUB and DEALER connect. Every call looks at the socket's events first, because
libzmq otherwise handles commands when the CPU's cycle counter says so, and two serial runs differ.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from session.errors import DeadlineError, OversizeError, RefusedError, UsageError, WireError
from session.wire.codec import Array, Buffer, Identity, Message, decode, encode, size_bytes
from session.wire.endpoint import AddressBook

_TOPIC = b"p"
_HELD_ANSWERS = 64
_PAUSE_SECONDS = 0.05
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


class Wire:
    """Makes the sockets of one component and closes them; owns no ZeroMQ context.

    Args:
        context: the one context of this process.
        addresses: where each endpoint is.
        identity: stamped on every message.
        max_message_bytes: larger messages are refused on both sides.
        stopping: true once waiting must end.
        pause: called with the sockets to wait for and seconds, while a request waits; the serial
            launcher ticks the other components there.
        on_reject: called with (endpoint, sender name, reason) once per sender and endpoint.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        addresses: AddressBook,
        identity: Identity,
        *,
        max_message_bytes: int = 1 << 28,
        stopping: Callable[[], bool] = lambda: False,
        pause: Callable[[list[zmq.Socket[bytes]], float], None] = poll,
        on_reject: Callable[[str, str, str], None] = lambda endpoint, sender, reason: None,
    ) -> None:
        self.context = context
        self.addresses = addresses
        self.identity = identity
        self.max_message_bytes = max_message_bytes
        self.stopping = stopping
        self.pause = pause
        self.sockets: list[Socket] = []
        self._on_reject = on_reject
        self._complained: set[tuple[str, str]] = set()

    def pull(self, endpoint: str, *, high_water_mark: int = 8) -> PullSocket:
        """Binds the receiving end of a one-way stream."""
        return PullSocket(self, endpoint, high_water_mark)

    def push(self, endpoint: str, *, high_water_mark: int = 8) -> PushSocket:
        """Connects the sending end of a one-way stream."""
        return PushSocket(self, endpoint, high_water_mark)

    def publisher(self, endpoint: str, *, high_water_mark: int = 8) -> PublisherSocket:
        """Binds a publisher that sees each new subscriber."""
        return PublisherSocket(self, endpoint, high_water_mark)

    def subscriber(self, endpoint: str, *, high_water_mark: int = 8) -> SubscriberSocket:
        """Connects a subscriber of everything that the endpoint publishes."""
        return SubscriberSocket(self, endpoint, high_water_mark)

    def router(self, endpoint: str, *, high_water_mark: int = 1000) -> RouterSocket:
        """Binds the answering end of requests."""
        return RouterSocket(self, endpoint, high_water_mark)

    def dealer(self, endpoint: str, *, high_water_mark: int = 1000) -> DealerSocket:
        """Connects the asking end of requests."""
        return DealerSocket(self, endpoint, high_water_mark)

    def counters(self) -> Mapping[str, Counters]:
        """Endpoint -> what its socket has seen."""
        return {socket.endpoint: socket.counters for socket in self.sockets}

    def close(self, linger_seconds: float = 1.0) -> None:
        """Closes every socket; what was sent may still leave for ``linger_seconds``."""
        while self.sockets:
            self.sockets[-1].close(linger_seconds)

    def reject(self, endpoint: str, sender: str, reason: str) -> None:
        """Reports a refused message, once per sender and endpoint."""
        if (endpoint, sender) not in self._complained:
            self._complained.add((endpoint, sender))
            self._on_reject(endpoint, sender, reason)


class Socket:
    """What all sockets share; made by :class:`Wire`."""

    pattern: int
    binds: bool

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
            event = recv_monitor_message(self._monitor)
            yield event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED

    def close(self, linger_seconds: float = 0.0) -> None:
        """Closes the socket; what was sent may still leave for ``linger_seconds``."""
        if self in self._wire.sockets:
            self._wire.sockets.remove(self)
        if self._monitor is not None:
            self.raw.disable_monitor()
            self._monitor.close(0)
            self._monitor = None
        self.raw.close(round(linger_seconds * 1000))
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


@dataclass(slots=True)
class Request:
    """A message that wants an answer."""

    peer: bytes
    message: Message


@dataclass(slots=True)
class _Peer:
    held: deque[list[Buffer]] = field(default_factory=deque)


class RouterSocket(Socket):
    """Answers requests; an answer for a full peer is held until the peer takes it."""

    pattern = zmq.ROUTER
    binds = True

    def __init__(self, wire: Wire, endpoint: str, high_water_mark: int) -> None:
        self._peers: dict[bytes, _Peer] = {}
        super().__init__(wire, endpoint, high_water_mark)

    def _configure(self, high_water_mark: int) -> None:
        super()._configure(high_water_mark)
        # A ROUTER drops in silence otherwise.
        self.raw.setsockopt(zmq.ROUTER_MANDATORY, 1)

    def receive(self) -> Request | None:
        """The next good request, or None if there is none now."""
        self._send_held()
        while (frames := self._receive()) is not None:
            message = self._decode(frames[1:], one_run=False)
            if message is not None and type(message.fields.get("id")) is int:
                return Request(frames[0].bytes, message)
        return None

    def reply(
        self,
        request: Request,
        kind: str,
        fields: dict[str, Any] | None = None,
        arrays: Mapping[str, Array] | None = None,
    ) -> None:
        """Answers a request."""
        answer = Message(kind, dict(fields or {}), arrays or {})
        answer.fields["id"] = request.message.fields["id"]
        frames = self._encode(answer)
        peer = self._peers.get(request.peer)
        if peer is None and self._send(request.peer, frames):
            return
        self._hold(request.peer, frames)

    def refuse(self, request: Request, reason: str) -> None:
        """Answers that the request cannot be served; the asker gets a RefusedError."""
        self.reply(request, "refused", {"reason": reason})

    def _send(self, peer: bytes, frames: list[Buffer]) -> bool:
        """False if the peer is full; a peer that has gone needs no answer."""
        self.readable()
        try:
            self.raw.send_multipart([peer, *frames], zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self.counters.unanswered += 1
        return True

    def _hold(self, peer: bytes, frames: list[Buffer]) -> None:
        held = self._peers.setdefault(peer, _Peer()).held
        if len(held) < _HELD_ANSWERS:
            held.append(frames)
        else:
            self.counters.unanswered += 1

    def _send_held(self) -> None:
        for identity, peer in list(self._peers.items()):
            while peer.held and self._send(identity, peer.held[0]):
                peer.held.popleft()
            if not peer.held:
                del self._peers[identity]


class DealerSocket(Socket):
    """Asks; each request carries an id, the answer carries it back."""

    pattern = zmq.DEALER
    binds = False

    def __init__(self, wire: Wire, endpoint: str, high_water_mark: int) -> None:
        self._last_id = 0
        super().__init__(wire, endpoint, high_water_mark)

    def send(
        self,
        kind: str,
        fields: dict[str, Any] | None = None,
        arrays: Mapping[str, Array] | None = None,
    ) -> int | None:
        """Asks without waiting; returns the request's id, or None if it cannot leave now."""
        if not self.writable():
            return None
        message = Message(kind, dict(fields or {}), arrays or {})
        message.fields["id"] = self._last_id + 1
        try:
            self.raw.send_multipart(self._encode(message), zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        self._last_id += 1
        return self._last_id

    def receive(self) -> Message | None:
        """The next answer (its request's id is ``fields['id']``), or None if there is none now."""
        while (frames := self._receive()) is not None:
            message = self._decode(frames, one_run=False)
            if message is not None and type(message.fields.get("id")) is int:
                return message
        return None

    def request(
        self,
        kind: str,
        fields: dict[str, Any] | None = None,
        arrays: Mapping[str, Array] | None = None,
        *,
        timeout_seconds: float = 10.0,
    ) -> Message:
        """Asks and waits for the answer; answers to earlier requests are thrown away.

        Raises:
            DeadlineError: no answer in time, or this component is stopping.
            RefusedError: the other side says why it will not.
        """
        # A request waits in real time even in the serial launcher: it is asked for by hand.
        deadline = time.monotonic() + timeout_seconds
        request_id: int | None = None
        while time.monotonic() < deadline and not self._wire.stopping():
            if request_id is None:
                request_id = self.send(kind, fields, arrays)
            answer = self.receive()
            if answer is not None and answer.fields["id"] == request_id:
                if answer.kind == "refused":
                    raise RefusedError(str(answer.fields.get("reason", "")))
                return answer
            if answer is None:
                self._wire.pause([self.raw], _PAUSE_SECONDS if request_id else 0.005)
        raise DeadlineError(f"{self.endpoint} did not answer '{kind}' within {timeout_seconds:g} s")
