"""Requests and replies: each carries an id, and every wait has a deadline."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import ref

import zmq

from session.errors import AdmissionError, DeadlineError, RefusedError
from session.nest import Array
from session.wire.codec import Buffer, Message, ProtocolError, size_bytes
from session.wire.connection_limits import Turns
from session.wire.schema import COUNT_LIMIT, REFUSED, Kinds, cut, quote
from session.wire.socket_base import Complaint, Socket, descriptor_of, prove_key

if TYPE_CHECKING:
    from session.wire.socket_state import Shared

_HELD_ANSWERS = 64
_PAUSE_SECONDS = 0.05
_STRANGER_BYTES = 1 << 16
# Maximum messages of other runs, or above the rate, handled per call before it returns.
_DROPPED_AT_ONCE = 64
_WAITING_REQUESTS = 64
# A reply to an older request of a call no longer counts.
_IDS_KEPT = 64
# A connection is closed when more requests than this were dropped in a row.
_FLOOD = 1000
_REFUSALS = {"refused": REFUSED}


@dataclass(slots=True)
class Request:
    """A message that expects a reply.

    Args:
        peer: routing id of its connection.
        message: the received message.
        key: proved public key (Z85) of its sender; empty without keys.
    """

    peer: bytes
    message: Message
    key: str = ""


@dataclass(slots=True)
class _Peer:
    held: deque[list[Buffer]] = field(default_factory=deque)


class RouterSocket(Socket):
    """Receives requests and sends replies; a reply to a full peer is held until it can be sent."""

    pattern = zmq.ROUTER
    binds = True

    def __init__(
        self,
        wire: Shared,
        endpoint: str,
        high_water_mark: int,
        kinds: Kinds | None = None,
        *,
        any_key: bool = False,
    ) -> None:
        self.any_key = any_key
        self.one_run = kinds is not None
        self._peers: dict[bytes, _Peer] = {}
        self._asking = b""
        self._turns: Turns[list[zmq.Frame]] = Turns(_WAITING_REQUESTS)
        super().__init__(wire, endpoint, high_water_mark, kinds)

    def _configure(self, high_water_mark: int) -> None:
        super()._configure(high_water_mark)
        # Otherwise a ROUTER drops undeliverable replies without an error.
        self.raw.setsockopt(zmq.ROUTER_MANDATORY, 1)
        if self.any_key:
            self.raw.setsockopt(zmq.MAXMSGSIZE, _STRANGER_BYTES)

    def receive(self) -> Request | None:
        """Returns the next valid request, or None if there is none now."""
        self.send_held()
        for _ in range(_DROPPED_AT_ONCE):
            frames = self._next()
            if frames is None:
                return None
            self._asking = frames[0].bytes
            message = self._decode(frames[1:])
            if message is not None:
                key = prove_key(frames[-1]) if self.guarded else ""
                return Request(self._asking, message, key)
        return None

    def _next(self) -> list[zmq.Frame] | None:
        """Returns the next message; with keys, limits the rate of requests of each connection.

        libzmq reads its connections in turn. Requests above the rate wait in a list per connection.
        """
        if not self.guarded:
            return self._receive()
        now = time.monotonic()
        for _ in range(_DROPPED_AT_ONCE):
            frames = self._receive()
            if frames is None:
                break
            served = self._turns.put(*self._connection(frames), now)
            if served is not None:
                return served
            self._end_flood(frames)
        return self._turns.next(now)

    def _connection(self, frames: list[zmq.Frame]) -> tuple[str, list[zmq.Frame], float]:
        """Returns rate-limit key, frames and rate: by key for a guest, else by connection."""
        key = prove_key(frames[-1])
        grant = self._wire.zap.grant(key)
        if grant.guest or self.any_key:
            return key, frames, grant.rate
        return descriptor_of(frames[-1]), frames, grant.rate

    def _end_flood(self, frames: list[zmq.Frame]) -> None:
        dropped = self._turns.dropped(self._connection(frames)[0])
        self.counters.rejected += dropped > 0
        if dropped > _FLOOD:
            self.end(frames[-1])

    def _refuse_protocol(self, frames: list[zmq.Frame], error: ProtocolError) -> None:
        # The sender can decode only version and name of this reply; that suffices to fail.
        self._send(self._asking, self._encode(Message("refused", {"id": 0, "reason": str(error)})))

    def _complaint(self, message: Message, header_bytes: int) -> Complaint | None:
        return _complaint_of_id(message) or super()._complaint(message, header_bytes)

    def _refuse_message(self, message: Message, complaint: Complaint) -> None:
        if _complaint_of_id(message) is None:
            request = Request(self._asking, message)
            # At a socket that admits every key each refusal is final.
            stranger = complaint.stranger or self.any_key
            self.refuse(request, complaint.reason, stranger=stranger)

    def reply(
        self,
        request: Request,
        kind: str,
        fields: dict[str, Any] | None = None,
        arrays: Mapping[str, Array] | None = None,
        *,
        later: bool = False,
    ) -> int:
        """Sends a reply; returns its size [bytes], 0 if the peer has disconnected.

        Args:
            request: the request.
            kind: kind of the reply.
            fields: fields of the reply.
            arrays: arrays of the reply.
            later: True sends it with the next :meth:`send_held` or :meth:`receive`, together with
                others; a disconnected peer is then not detected.
        """
        answer = Message(kind, dict(fields or {}), arrays or {})
        answer.fields["id"] = request.message.fields["id"]
        frames = self._encode(answer)
        # If earlier replies to this peer are held, this one must wait behind them.
        peer, unanswered = self._peers.get(request.peer), self.counters.unanswered
        if later or peer is not None or not self._send(request.peer, frames):
            self._hold(request.peer, frames)
        elif self.counters.unanswered > unanswered:
            return 0
        return size_bytes(frames)

    def refuse(self, request: Request, reason: str, *, stranger: bool = False) -> None:
        """Replies with a refusal, which raises RefusedError at the client.

        Args:
            request: the request.
            reason: reason of the refusal.
            stranger: True if the refusal is permanent; it raises AdmissionError at the client.
        """
        fields = {"reason": cut(reason)} | ({"stranger": True} if stranger else {})
        self.reply(request, "refused", fields)

    def _send(self, peer: bytes, frames: list[Buffer]) -> bool:
        """Sends without waiting; False if the peer is full. A reply to a lost peer is dropped."""
        if self._looks_first:
            self.look()
        try:
            return self._send_frames([peer, *frames])
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

    def send_held(self) -> None:
        """Sends held replies to all peers that can receive now."""
        for identity, peer in list(self._peers.items()):
            while peer.held and self._send(identity, peer.held[0]):
                peer.held.popleft()
            if not peer.held:
                del self._peers[identity]


class Call:
    """A pending request: decides when it is sent, and which replies belong to it.

    It has neither socket nor clock: :meth:`DealerSocket.ask` sends it and reads the replies. The
    caller drops it once a reply suffices; until then it is repeated.

    Args:
        make: makes the request; called for each repetition.
        again_seconds: time after which it is sent again [s].
        give_up_at: time from which on it is no longer sent [s].
        forget: True sends it again at once after a lost connection, and ignores replies to the
            requests before; the new peer may lack what the old one knew.
    """

    def __init__(
        self,
        make: Callable[[], Message],
        *,
        again_seconds: float = math.inf,
        give_up_at: float = math.inf,
        forget: bool = False,
    ) -> None:
        self.make = make
        self.again_seconds = again_seconds
        self.forget = forget
        self.reply: Message | None = None
        self._give_up_at = give_up_at
        self._at = -math.inf
        self._losses = -1
        self._ids: deque[int] = deque(maxlen=_IDS_KEPT)

    def due(self, now: float, losses: int = 0) -> bool:
        """Returns True if it has to be sent now.

        Args:
            now: present time [s], on any clock.
            losses: :meth:`Socket.losses`; a new number means that a request may be lost.
        """
        if self._losses < 0:
            self._losses = losses
        elif self.forget and self._losses != losses:
            self._losses, self._at = losses, -math.inf
            self._ids.clear()
        return now >= self._at and not self.given_up(now)

    @property
    def posted(self) -> bool:
        """True once it was posted."""
        return self._losses >= 0

    def on_sent(self, request_id: int, now: float) -> None:
        """Records that it was sent."""
        self._ids.append(request_id)
        self._at = now + self.again_seconds

    def on_reply(self, reply: Message) -> bool:
        """Keeps a reply to one of its requests; returns False for any other."""
        if reply.fields["id"] not in self._ids:
            return False
        self.reply = reply
        return True

    def rest(self) -> None:
        """Ends the repetition and ignores replies, until a connection is lost if it forgets."""
        self._at = math.inf
        self._ids.clear()

    def given_up(self, now: float) -> bool:
        """Returns True if it is no longer sent."""
        return now >= self._give_up_at


class DealerSocket(Socket):
    """Sends requests and receives replies; each reply carries the id of its request.

    Several callers of one component share it with :meth:`ask`, which hands each reply to its call.
    """

    pattern = zmq.DEALER
    binds = False

    def __init__(
        self, wire: Shared, endpoint: str, high_water_mark: int, kinds: Kinds | None = None
    ) -> None:
        self._last_id = 0
        # A WeakSet costs several microseconds a reply.
        self._calls: list[ref[Call]] = []
        self.one_run = kinds is not None
        super().__init__(
            wire, endpoint, high_water_mark, None if kinds is None else {**kinds, **_REFUSALS}
        )

    def add_kinds(self, kinds: Kinds | None) -> None:
        """Accepts the kinds of replies of a further caller."""
        if kinds is None or self.kinds is None:
            return
        self.kinds = {**self.kinds, **kinds}
        self._limits[1] = max(each.header_bytes for each in self.kinds.values())

    def post(self, call: Call, now: float) -> bool:
        """Sends a call if it is due and can be sent; returns True if it was sent.

        Args:
            call: the request; the socket keeps no dropped call.
            now: present time [s], on the clock of the call.
        """
        # Reading the monitor takes microseconds. A loss that a new call has not seen is seen at the
        # next look: then it is sent once more.
        looks = call.forget and (call.posted or self._monitor is None)
        if not call.due(now, self.losses() if looks else self._losses):
            return False
        message = call.make()
        request_id = self.send(message.kind, message.fields, message.arrays)
        if request_id is None:
            return False
        call.on_sent(request_id, now)
        self._calls = [each for each in self._calls if each() not in (None, call)]
        self._calls.append(ref(call))
        return True

    def ask(self, call: Call, now: float) -> Message | None:
        """Reads all replies and returns the newest one to this call, once; else posts the call.

        Raises:
            AdmissionError: the peer has another version of the protocol.
        """
        while (reply := self.receive()) is not None:
            for each in self._calls:
                if (asked := each()) is not None and asked.on_reply(reply):
                    break
        newest, call.reply = call.reply, None
        if newest is None:
            self.post(call, now)
        return newest

    def send(
        self,
        kind: str,
        fields: dict[str, Any] | None = None,
        arrays: Mapping[str, Array] | None = None,
    ) -> int | None:
        """Sends a request without waiting; returns its id, or None if it cannot be sent now."""
        if not self._may_send():
            return None
        message = Message(kind, dict(fields or {}), arrays or {})
        message.fields["id"] = self._last_id + 1
        if not self._send_frames(self._encode(message)):
            return None
        self._last_id += 1
        return self._last_id

    def receive(self) -> Message | None:
        """Returns the next reply (``fields['id']`` is its request's id), or None if there is none.

        Raises:
            AdmissionError: the peer has another version of the protocol.
        """
        while (frames := self._receive()) is not None:
            if (message := self._decode(frames)) is not None:
                return message
        return None

    def _complaint(self, message: Message, header_bytes: int) -> Complaint | None:
        return _complaint_of_id(message) or super()._complaint(message, header_bytes)

    def _refuse_protocol(self, frames: list[zmq.Frame], error: ProtocolError) -> None:
        address = self._wire.addresses[self.endpoint].connect
        raise AdmissionError(
            f"refused by {address} ({self.endpoint}): {error}; "
            "install the same version of surreal-like on both sides"
        ) from None

    def request(
        self,
        kind: str,
        fields: dict[str, Any] | None = None,
        *,
        timeout_seconds: float = 10.0,
    ) -> Message:
        """Sends a request, again if its connection is lost, and waits for its reply.

        Raises:
            DeadlineError: no reply in time, or this component is stopping.
            RefusedError: the peer refuses the request; the message is its reason.
            AdmissionError: the peer refuses this component permanently.
        """
        call = Call(lambda: Message(kind, dict(fields or {})), forget=True)
        # Real time even in the serial launcher: its counted clock measures rounds, not waiting.
        deadline, sent = time.monotonic() + timeout_seconds, False
        while (now := time.monotonic()) < deadline and not self._wire.stopping():
            sent |= self.post(call, now)
            self._wire.add_warning(self.check())
            answer = self.ask(call, now)
            if answer is None:
                self._wire.pause([self], _PAUSE_SECONDS if sent else 0.005)
            elif answer.kind == "refused":
                raise refusal(answer)
            else:
                return answer
        raise DeadlineError(
            f"{self.endpoint} did not answer '{kind}' within {timeout_seconds:g} s{self._where()}"
        )

    def _where(self) -> str:
        if self.link is None or self.link.connected:
            return ""
        return f": cannot connect to {self._wire.addresses[self.endpoint].connect}"


def refusal(answer: Message) -> RefusedError:
    """Makes the error for a reply of kind ``refused``."""
    kind = AdmissionError if answer.fields.get("stranger") is True else RefusedError
    return kind(str(answer.fields.get("reason", "refused without a reason")))


def _complaint_of_id(message: Message) -> Complaint | None:
    """Checks the id of a request or reply."""
    number = message.fields.get("id")
    if type(number) is int and 0 <= number < COUNT_LIMIT:
        return None
    return Complaint(f"'id' is {quote(number)}, expected the number of a request")
