"""The session of one client as a state machine; no socket, no clock.

Requests are numbered 1, 2, 3, ... for the life of a session. The newest number again gets the same
answer, and nothing is done twice. So a client may repeat a request that got no answer, also over a
new connection, and each step counts once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from session.config.string_enum import StringEnum
from surreal_like.gateway.messages import Refusal

Answer = Mapping[str, Any]


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


class Session:
    """State of a client at a gateway; it outlives connections.

    Attributes:
        state: see :class:`State`.
        seq: number of the newest accepted request, 0 before the first.
        answer: of that request; None while it is owed, and before the first.
        failures: refused messages in a row.
    """

    def __init__(self) -> None:
        self.state = State.idle
        self.seq = 0
        self.answer: Answer | None = None
        self.failures = 0

    @property
    def open(self) -> bool:
        """True while an episode is open."""
        return self.state is not State.idle

    def receive(self, kind: str, seq: int) -> Effect:
        """Accepts a request; returns what it does.

        Args:
            kind: ``reset``, ``step`` or ``end``.
            seq: its number.

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

    def reply(self, answer: Answer) -> None:
        """Keeps the answer of the newest request."""
        if self.state is State.asked:
            self.state = State.answered
        self.answer = answer
