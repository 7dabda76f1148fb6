"""All sessions of a gateway: their places, and what is due; no socket, no clock."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from session.config.string_enum import StringEnum
from surreal_like.gateway.messages import Hello
from surreal_like.gateway.session import Session, State

_WAIT_SECONDS = 5.0
_FULL_SECONDS = 1.0


class Busy(Exception):
    """There is no place for another session.

    Args:
        reason: in one line.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_seconds = _FULL_SECONDS


class Due(StringEnum):
    """Action that is due for a session.

    left: it was away too long; idle: it has said nothing for too long; wait: an answer is still
    owed; unavailable: for too long, and not because of an evaluation.
    """

    left = ()
    idle = ()
    wait = ()
    unavailable = ()


class Timing(NamedTuple):
    """Times of the sessions in seconds, see ``session_config.gateway``."""

    grace_seconds: float = 30.0
    idle_seconds: float = 300.0
    answer_seconds: float = 60.0


@dataclass(slots=True, eq=False)
class Member:
    """A session, its place and its connection.

    Args:
        number: of the session, from 1.
        slot: number of its place.
        mode: ``train``, ``act`` or ``evaluate``.
        name: chosen by the client, or made.
        connection: the newest one; None while it is away.
        moved_at: time of its newest message, or of its newest answer.
        asked_at: time of the newest request.
        waited_at, warned_at: time of the newest message that its answer is still owed.
        steps, episodes: that it has made and begun.
        joined_at: time of its first welcome.
        host: address of its first connection.
        curve: name of its curves: chosen by the client, else that of its place.
        token: name of its token; empty without.
        last_return: of its newest episode.
        round_trip_seconds: median that the client has measured and reported, if it does.
        rows: its slot.
        names: of all numbers that it has reported.
        held: True while its request waits for an evaluation.
        last_streams: once it is time to leave, the streams whose episodes were open then.
    """

    number: int
    slot: int
    mode: str
    name: str
    connection: Any
    moved_at: float
    session: Session = field(default_factory=Session)
    asked_at: float = 0.0
    waited_at: float = 0.0
    warned_at: float = 0.0
    away_since: float = 0.0
    steps: int = 0
    episodes: int = 0
    joined_at: float = 0.0
    token: str = ""
    last_return: float | None = None
    round_trip_seconds: float | None = None
    rows: Any = None
    names: set[str] = field(default_factory=set)
    held: bool = False
    last_streams: set[int] | None = None
    host: str = ""
    curve: str = ""
    resumes: list[str] = field(default_factory=list)


def shown(member: Member, now: float) -> dict[str, Any]:
    """Returns what the table of sessions shows of one."""
    away = member.connection is None
    return {
        "name": member.name,
        "mode": member.mode,
        "address": "" if away else member.connection.host,
        "state": "away" if away else str(member.session.state),
        "steps": member.steps,
        "episodes": member.episodes,
        "last_return": member.last_return,
        "round_trip_seconds": member.round_trip_seconds,
        "idle_seconds": round(max(0.0, now - member.moved_at), 1),
    }


class Sessions:
    """The sessions of a gateway.

    Args:
        places: number of slots.
        timing: see :class:`Timing`.
        secret: returns a text that cannot be guessed.

    Attributes:
        begun: number of sessions since the start.
    """

    def __init__(self, places: int, timing: Timing, secret: Callable[[], str]) -> None:
        self._timing = timing
        self._secret = secret
        # The lowest number is taken first.
        self._free = list(range(places))[::-1]
        self._members: dict[int, Member] = {}
        self.begun = 0

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members.values()))

    def __len__(self) -> int:
        return len(self._members)

    @property
    def full(self) -> bool:
        """True if a newcomer would get ``busy``."""
        return not self._free and all(each.connection for each in self._members.values())

    def find(self, resume: str) -> Member | None:
        """Returns the session of a secret from a welcome, None if it is unknown or gone."""
        number, dot, _ = resume.partition(".")
        member = self._members.get(int(number)) if dot and number.isdecimal() else None
        if member is None:
            return None
        # The client may not have received its newest welcome.
        known = [hmac.compare_digest(each.encode(), resume.encode()) for each in member.resumes]
        return member if any(known) else None

    def resume(self, member: Member, connection: Any, now: float) -> Any:
        """Gives a session a new connection; returns the one before, which is closed."""
        before, member.connection = member.connection, connection
        member.moved_at = now
        self._renew(member)
        return before

    def displaced(self) -> Member | None:
        """Returns the session whose place a newcomer takes: the longest away, if all are taken."""
        if self._free:
            return None
        away = [each for each in self._members.values() if each.connection is None]
        return min(away, key=lambda each: each.away_since, default=None)

    def join(self, hello: Hello, mode: str, connection: Any, now: float) -> Member:
        """Makes a session.

        Raises:
            Busy: all slots are taken, see :meth:`displaced`.
        """
        if not self._free:
            raise Busy(f"all {len(self._members)} places are taken")
        self.begun += 1
        name, slot = hello.name or f"client-{self.begun}", self._free.pop()
        member = Member(self.begun, slot, mode, name, connection, now)
        # Places are few; sessions without a name that come and go may be many.
        member.curve = hello.name or f"place-{slot}"
        member.joined_at = now
        self._members[member.number] = member
        self._renew(member)
        return member

    def _renew(self, member: Member) -> None:
        member.resumes = [*member.resumes[-1:], f"{member.number}.{self._secret()}"]

    def on_message(self, member: Member, now: float) -> None:
        """Notes a message of a session."""
        member.moved_at = now
        # It has its newest welcome.
        del member.resumes[:-1]

    def lose(self, member: Member, now: float) -> None:
        """Notes that the connection of a session is gone."""
        member.connection, member.away_since = None, now

    def leave(self, member: Member) -> None:
        """Ends a session; its place is free."""
        del self._members[member.number]
        self._free.append(member.slot)

    def due(self, now: float) -> list[tuple[Member, Due]]:
        """Returns what is due; ``wait`` and ``unavailable`` come again after their times."""
        found = []
        for member in self._members.values():
            what = self._due(member, now)
            if what is not None:
                found.append((member, what))
        return found

    def _due(self, member: Member, now: float) -> Due | None:
        timing = self._timing
        if member.connection is None:
            return Due.left if now - member.away_since >= timing.grace_seconds else None
        if member.session.state is not State.asked:
            silent = now - member.moved_at
            return Due.idle if 0 < timing.idle_seconds <= silent else None
        asked_at = member.asked_at
        if now - max(asked_at, member.warned_at) >= timing.answer_seconds and not member.held:
            member.warned_at = member.waited_at = now
            return Due.unavailable
        if now - max(asked_at, member.waited_at) >= _WAIT_SECONDS:
            member.waited_at = now
            return Due.wait
        return None
