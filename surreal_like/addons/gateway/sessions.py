"""Sessions of a gateway: their requests, their places, and what is due; no clock.

Requests are numbered 1, 2, 3, ... for the life of a session. The newest number again gets the same
answer, and nothing is done twice. So a client may repeat a request that got no answer, also over a
new connection, and each step counts once.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from session.addons.gateway.connection import Connection
from session.config import Config
from session.config.string_enum import StringEnum
from surreal_like.addons.gateway.messages import Hello, send
from surreal_like.addons.gateway.payloads import Fields, Refusal
from surreal_like.addons.gateway.slots import Slot

_WAIT_SECONDS = 5.0
# A session without a request lives so many times its idle time, whatever else its client sends.
_PROLONGED = 10
_SECRET_BYTES = 16


class State(StringEnum):
    """State of a session, with or without a connection.

    idle: no episode is open; asked: an answer is owed; answered: the client has the turn in an
    open episode.
    """

    idle = ()
    asked = ()
    answered = ()


class Effect(StringEnum):
    """Effect of a request on the rows of its session.

    repeat: nothing, it has been answered; owed: nothing, its answer follows; begin: begins an
    episode; cut: cuts the open one and begins another; step, end: go on with it.
    """

    repeat = ()
    owed = ()
    begin = ()
    cut = ()
    step = ()
    end = ()


_NEXT: Mapping[tuple[State, str], tuple[Effect, State]] = {
    (State.idle, "reset"): (Effect.begin, State.asked),
    (State.answered, "reset"): (Effect.cut, State.asked),
    (State.answered, "step"): (Effect.step, State.asked),
    (State.answered, "end"): (Effect.end, State.idle),
}


class Due(StringEnum):
    """Action that is due for a session.

    left: it was away too long; idle: it has said nothing for too long; wait: an answer is still
    owed; unavailable: for too long, and not because of an evaluation.
    """

    left = ()
    idle = ()
    wait = ()
    unavailable = ()


class Busy(Exception):
    """There is no place for another session."""


@dataclass(slots=True, eq=False)
class Session:
    """A client at a gateway: its state, its place and its connection; outlives connections.

    Args:
        number: Number of the session, from 1.
        place: Number of its place, from 0.
        mode: Mode ``train``, ``act`` or ``evaluate``.
        name: Name that the client chose, or that was made.
        slot: Rows of the session.
        connection: Newest connection; None while the client is away.
        moved_at: Time of the newest message, or of the newest answer.
        turned_at: Time of the newest request, or of its answer.
        joined_at: Time of the first welcome.
        host: Address of the first connection.
        curve: Name of its curves: that of the client, else that of its place.
        token: Name of the client's token; empty without.
        state: State of the newest request.
        seq: Number of the newest accepted request, 0 before the first.
        answer: Answer to that request; None while it is owed, and before the first.
        failures: Number of messages that were refused in a row.
        asked_at: Time of the newest request.
        waited_at, warned_at: Times of the newest messages that the answer is still owed.
        away_since: Time at which the connection was lost.
        steps, episodes: Numbers of steps it has made, and of episodes it has begun.
        last_return: Return of its newest episode.
        round_trip_seconds: Median that the client has measured and reported, if it does.
        names: Names of all numbers that it has reported.
        held: True while its request waits for an evaluation.
        last_streams: Once it is time to leave, the streams whose episodes were open then.
        resumes: Secrets of its newest two welcomes.
    """

    number: int
    place: int
    mode: str
    name: str
    slot: Slot
    connection: Connection | None
    moved_at: float = 0.0
    turned_at: float = 0.0
    joined_at: float = 0.0
    host: str = ""
    curve: str = ""
    token: str = ""
    state: State = State.idle
    seq: int = 0
    answer: Fields | None = None
    failures: int = 0
    asked_at: float = 0.0
    waited_at: float = 0.0
    warned_at: float = 0.0
    away_since: float = 0.0
    steps: int = 0
    episodes: int = 0
    last_return: float | None = None
    round_trip_seconds: float | None = None
    names: set[str] = field(default_factory=set)
    held: bool = False
    last_streams: set[int] | None = None
    resumes: list[str] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """True while an episode is open."""
        return self.state is not State.idle

    def receive(self, kind: str, seq: int) -> Effect:
        """Accepts a request; returns its effect.

        Args:
            kind: Kind of the request: ``reset``, ``step`` or ``end``.
            seq: Number of the request.

        Raises:
            Refusal: ``bad_seq``, ``overlap`` or ``wrong_state``; nothing has changed then.
        """
        if seq == self.seq + 1:
            found = _NEXT.get((self.state, kind))
            if found is None:
                self._refuse(kind, seq)
            effect, self.state = found
            self.seq, self.answer = seq, None
            return effect
        if seq == self.seq and seq:
            return Effect.owed if self.answer is None else Effect.repeat
        raise Refusal(
            "bad_seq",
            f"seq is {seq}, expected {self.seq + 1}"
            + (f", or {self.seq} to get its answer again" if self.seq else ""),
            seq,
        )

    def _refuse(self, kind: str, seq: int) -> NoReturn:
        if self.state is State.asked:
            raise Refusal(
                "overlap",
                f"request {self.seq} has no answer yet: wait for it before request {seq}",
                seq,
            )
        raise Refusal("wrong_state", f"{kind} without an open episode: send reset", seq)

    def reply(self, answer: Fields) -> None:
        """Keeps and sends the answer to the newest request."""
        if self.state is State.asked:
            self.state = State.answered
        self.answer = answer
        self.send(answer)

    def send(self, fields: Fields) -> None:
        """Sends a message; dropped while the client is away."""
        connection = self.connection
        if connection is not None:
            send(connection, fields)

    def on_message(self, now: float) -> None:
        """Notes the time of a message; the client has its newest welcome."""
        self.moved_at = now
        del self.resumes[:-1]

    def lose(self, now: float) -> None:
        """Notes that the connection is gone."""
        self.connection, self.away_since = None, now

    def describe(self, now: float) -> dict[str, Any]:
        """Returns what the table of sessions shows of this one."""
        connection = self.connection
        return {
            "name": self.name,
            "mode": self.mode,
            "address": "" if connection is None else connection.host,
            "state": "away" if connection is None else str(self.state),
            "steps": self.steps,
            "episodes": self.episodes,
            "last_return": self.last_return,
            "round_trip_seconds": self.round_trip_seconds,
            "idle_seconds": round(max(0.0, now - self.moved_at), 1),
        }


class Sessions:
    """The sessions of a gateway.

    Args:
        settings: Settings ``session_config.gateway``.
        make_slot: Function that returns the rows of a place and a mode.
        make_secret: Function that returns a text of so many random bytes.

    Attributes:
        begun: Number of sessions since the start.
    """

    def __init__(
        self,
        settings: Config,
        make_slot: Callable[[int, str], Slot],
        make_secret: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        self._grace_seconds: float = settings.grace_seconds
        self._idle_seconds: float = settings.idle_seconds
        self._answer_seconds: float = settings.answer_seconds
        self._make_slot, self._make_secret = make_slot, make_secret
        # The lowest number is taken first.
        self._places: int = settings.max_clients
        self._free = list(range(self._places))[::-1]
        self._sessions: dict[int, Session] = {}
        self.begun = 0

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def full(self) -> bool:
        """True if another client would get ``busy``."""
        return not self._free and all(each.connection for each in self._sessions.values())

    def find(self, resume: str) -> Session | None:
        """Returns the session of a secret from a welcome, None if it is unknown or gone."""
        number, dot, _ = resume.partition(".")
        session = self._sessions.get(int(number)) if dot and number.isdecimal() else None
        if session is None:
            return None
        # The client may not have received its newest welcome.
        known = [hmac.compare_digest(each.encode(), resume.encode()) for each in session.resumes]
        return session if any(known) else None

    def resume(self, session: Session, connection: Connection, now: float) -> Connection | None:
        """Gives a session a new connection; returns the one before."""
        before, session.connection = session.connection, connection
        session.moved_at = now
        self._renew(session)
        return before

    def has_room_for(self, token: str, others: Collection[str]) -> bool:
        """Returns True unless the last places are for the clients of other tokens.

        A token that has a session leaves a place for each valid token that has none, up to a
        quarter of all. Places whose clients are away are given on.

        Args:
            token: Name of a client's token.
            others: Names of all valid tokens.
        """
        present = [each.token for each in self._sessions.values() if each.connection is not None]
        if token not in present:
            return True
        kept = min(len(set(others).difference(present)), max(1, self._places // 4))
        return self._places - len(present) > kept

    def find_displaced(self) -> Session | None:
        """Returns the session whose place another client gets: the longest away, if all are taken.

        Returns None if a place is free, or if no client is away.
        """
        if self._free:
            return None
        away = [each for each in self._sessions.values() if each.connection is None]
        return min(away, key=lambda each: each.away_since, default=None)

    def join(self, hello: Hello, mode: str, connection: Connection, now: float) -> Session:
        """Makes a session.

        Raises:
            Busy: all places are taken, see :meth:`find_displaced`.
        """
        if not self._free:
            raise Busy(f"all {len(self._sessions)} places are taken")
        self.begun += 1
        place = self._free.pop()
        session = Session(
            self.begun,
            place,
            mode,
            hello.name or f"client-{self.begun}",
            self._make_slot(place, mode),
            connection,
            moved_at=now,
            turned_at=now,
            joined_at=now,
            host=connection.host,
            # Places are few; sessions without a name that come and go may be many.
            curve=hello.name or f"place-{place}",
        )
        self._sessions[session.number] = session
        self._renew(session)
        return session

    def _renew(self, session: Session) -> None:
        session.resumes = [
            *session.resumes[-1:],
            f"{session.number}.{self._make_secret(_SECRET_BYTES)}",
        ]

    def leave(self, session: Session) -> None:
        """Ends a session; its place is free."""
        del self._sessions[session.number]
        self._free.append(session.place)

    def list_due(self, now: float) -> list[tuple[Session, Due]]:
        """Returns what is due; ``wait`` and ``unavailable`` come again after their times."""
        found = ((session, self._due(session, now)) for session in self._sessions.values())
        return [(session, what) for session, what in found if what is not None]

    def _due(self, session: Session, now: float) -> Due | None:
        if session.connection is None:
            return Due.left if now - session.away_since >= self._grace_seconds else None
        if session.state is not State.asked:
            # Pings and new connections prolong a session, but not without an end.
            silent = max(now - session.moved_at, (now - session.turned_at) / _PROLONGED)
            return Due.idle if 0 < self._idle_seconds <= silent else None
        asked_at = session.asked_at
        if now - max(asked_at, session.warned_at) >= self._answer_seconds and not session.held:
            session.warned_at = session.waited_at = now
            return Due.unavailable
        if now - max(asked_at, session.waited_at) >= _WAIT_SECONDS:
            session.waited_at = now
            return Due.wait
        return None
