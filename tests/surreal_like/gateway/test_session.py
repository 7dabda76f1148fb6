"""The table of a session, and random requests beside a plain twin."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.gateway.messages import Refusal
from surreal_like.gateway.session import Effect, Session, State

ACTION = {"kind": "action"}
EPISODE = {"kind": "episode"}


def in_state(state: State) -> Session:
    session = Session()
    if state is not State.idle:
        session.receive("reset", 1)
    if state is State.answered:
        session.reply(ACTION)
    return session


def code(session: Session, kind: str, seq: int) -> str:
    before = vars(session).copy()
    with pytest.raises(Refusal) as caught:
        session.receive(kind, seq)
    assert vars(session) == before
    assert caught.value.seq == seq
    return caught.value.code


@pytest.mark.parametrize(
    ("state", "kind", "result"),
    [
        (State.idle, "reset", Effect.begin),
        (State.idle, "step", "wrong_state"),
        (State.idle, "end", "wrong_state"),
        (State.asked, "reset", "overlap"),
        (State.asked, "step", "overlap"),
        (State.asked, "end", "overlap"),
        (State.answered, "reset", Effect.cut),
        (State.answered, "step", Effect.step),
        (State.answered, "end", Effect.end),
    ],
)
def test_the_table(state: State, kind: str, result: Any) -> None:
    session = in_state(state)
    seq = session.seq + 1
    if not isinstance(result, Effect):
        assert code(session, kind, seq) == result
        assert session.state is state
        return
    assert session.receive(kind, seq) is result
    assert session.state is (State.idle if result is Effect.end else State.asked)
    assert session.seq == seq
    assert session.answer is None


def test_S1_the_newest_request_again_gets_the_same_answer() -> None:
    session = in_state(State.answered)
    for kind in ("reset", "step", "end"):
        assert session.receive(kind, 1) is Effect.repeat
        assert session.answer is ACTION
    session.receive("step", 2)
    assert session.receive("step", 2) is Effect.owed


@pytest.mark.parametrize("seq", [0, 1, 3, 4, 99])
def test_S1_another_number_is_refused_and_the_expected_one_is_named(seq: int) -> None:
    session = in_state(State.answered)
    session.receive("step", 2)
    session.reply(ACTION)
    if seq == 3:
        assert session.receive("step", seq) is Effect.step
        return
    with pytest.raises(Refusal, match=f"seq is {seq}, expected 3, or 2 to get its answer again"):
        session.receive("step", seq)


def test_S1_the_first_number_is_1() -> None:
    with pytest.raises(Refusal, match=r"seq is 0, expected 1$"):
        Session().receive("reset", 0)


class Twin:
    """A session as a list of all that was accepted."""

    def __init__(self) -> None:
        self.accepted: list[str] = []
        self.replies: list[Any] = []

    @property
    def owed(self) -> bool:
        return len(self.replies) < len(self.accepted)

    @property
    def open(self) -> bool:
        return bool(self.accepted) and self.accepted[-1] != "end"

    def receive(self, kind: str, seq: int) -> str:
        if seq == len(self.accepted) and seq:
            return "owed" if self.owed else "repeat"
        if seq != len(self.accepted) + 1:
            return "bad_seq"
        if self.owed:
            # The answer to an end is given at once, so an episode is open.
            return "overlap"
        if kind != "reset" and not self.open:
            return "wrong_state"
        was_open = self.open
        self.accepted.append(kind)
        return ("cut" if was_open else "begin") if kind == "reset" else kind


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["reset", "step", "end"]), st.integers(-2, 2)),
            st.just("reply"),
        ),
        max_size=60,
    )
)
def test_random_requests_beside_a_twin(events: list[Any]) -> None:
    session, twin = Session(), Twin()
    for event in events:
        if event == "reply":
            if twin.owed:
                twin.replies.append(ACTION)
                session.reply(ACTION)
            continue
        kind, offset = event
        seq = max(0, len(twin.accepted) + 1 + offset)
        try:
            found: str = session.receive(kind, seq)
        except Refusal as refusal:
            found = refusal.code
        assert found == twin.receive(kind, seq)
        if found == "end":
            session.reply(EPISODE)
            twin.replies.append(EPISODE)
        assert session.seq == len(twin.accepted)
        assert session.open == twin.open
        assert (session.state is State.asked) == twin.owed
