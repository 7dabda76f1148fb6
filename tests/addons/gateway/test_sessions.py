"""Sessions: random requests beside a plain twin; their places, secrets and times."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.addons.gateway.payloads import Refusal
from surreal_like.addons.gateway.sessions import Busy, Due, Effect, Session, Sessions, State
from tests.addons.gateway.rig import LINE, join, make_line, make_session, make_sessions

# -- one session

ACTION = {"kind": "action"}
EPISODE = {"kind": "episode"}


def contents(session: Session) -> list[Any]:
    return [getattr(session, name) for name in Session.__slots__]


def in_state(state: State) -> Session:
    session = make_session()
    if state is not State.idle:
        session.receive("reset", 1)
    if state is State.answered:
        session.reply(ACTION)
    return session


def code(session: Session, kind: str, seq: int) -> str:
    before = contents(session)
    with pytest.raises(Refusal) as caught:
        session.receive(kind, seq)
    assert contents(session) == before
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


def test_the_newest_request_again_gets_the_same_answer() -> None:
    session = in_state(State.answered)
    for kind in ("reset", "step", "end"):
        assert session.receive(kind, 1) is Effect.repeat
        assert session.answer is ACTION
    session.receive("step", 2)
    assert session.receive("step", 2) is Effect.owed


@pytest.mark.parametrize("seq", [0, 1, 3, 4, 99])
def test_another_number_is_refused_and_the_expected_one_is_named(seq: int) -> None:
    session = in_state(State.answered)
    session.receive("step", 2)
    session.reply(ACTION)
    if seq == 3:
        assert session.receive("step", seq) is Effect.step
        return
    with pytest.raises(Refusal, match=f"seq is {seq}, expected 3, or 2 to get its answer again"):
        session.receive("step", seq)


def test_the_first_number_is_1() -> None:
    with pytest.raises(Refusal, match=r"seq is 0, expected 1$"):
        make_session().receive("reset", 0)


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
    session, twin = make_session(), Twin()
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


# -- all sessions


def dues(sessions: Sessions, now: float) -> list[Due]:
    return [what for _, what in sessions.list_due(now)]


def test_places_are_given_from_the_lowest_and_given_again() -> None:
    sessions = make_sessions(3)
    first, second = join(sessions), join(sessions)
    assert (first.place, second.place, first.number, second.number) == (0, 1, 1, 2)
    assert (first.name, second.name) == ("client-1", "client-2")
    sessions.leave(first)
    assert join(sessions).place == 0
    assert len(sessions) == 2


def test_a_newcomer_gets_the_place_of_the_session_longest_away() -> None:
    sessions = make_sessions(3)
    joined = [join(sessions) for _ in range(3)]
    joined[2].lose(5.0)
    joined[0].lose(7.0)
    assert not sessions.full
    assert sessions.find_displaced() is joined[2]
    sessions.leave(joined[2])
    assert sessions.find_displaced() is None
    assert join(sessions).place == 2


def test_a_session_is_found_by_its_secret() -> None:
    sessions = make_sessions()
    first, second = join(sessions), join(sessions)
    assert sessions.find(first.resumes[-1]) is first
    assert sessions.find(second.resumes[-1]) is second
    for wrong in ("", "1", "1.", ".secret0", "1.secret1", "2.secret0", "3.secret0", "x.secret0"):
        assert sessions.find(wrong) is None
    sessions.leave(first)
    assert sessions.find("1.secret0") is None
    assert sessions.find("1.geheimnis-ä") is None


def test_each_welcome_has_a_new_secret_and_the_old_one_holds_until_it_is_used() -> None:
    sessions = make_sessions()
    session = join(sessions)
    old, second = session.resumes[-1], make_line()
    assert sessions.resume(session, second, 1.0) is LINE
    new = session.resumes[-1]
    assert new != old
    # The welcome may have been lost.
    assert sessions.find(old) is session
    session.on_message(2.0)
    assert sessions.find(old) is None
    assert sessions.find(new) is session


def test_a_session_is_gone_after_its_grace_time() -> None:
    sessions = make_sessions(grace_seconds=30.0)
    session = join(sessions)
    session.lose(10.0)
    assert dues(sessions, 39.9) == []
    assert dues(sessions, 40.0) == [Due.left]
    sessions.resume(session, LINE, 41.0)
    assert dues(sessions, 100.0) == []


def test_a_silent_session_is_idle_only_while_it_is_its_turn() -> None:
    sessions = make_sessions(idle_seconds=300.0)
    session = join(sessions)
    assert dues(sessions, 299.0) == []
    assert dues(sessions, 300.0) == [Due.idle]
    session.receive("reset", 1)
    session.asked_at = 300.0
    assert Due.idle not in dues(sessions, 10_000.0)
    session.reply({})
    session.moved_at = session.turned_at = 10_000.0
    assert dues(sessions, 10_299.0) == []
    assert dues(sessions, 10_300.0) == [Due.idle]


def test_pings_and_new_connections_prolong_a_session_but_not_for_ever() -> None:
    sessions = make_sessions(idle_seconds=300.0)
    session = join(sessions)
    for now in range(0, 3000, 100):
        session.on_message(now)
        sessions.resume(session, LINE, now)
        assert dues(sessions, now + 50.0) == []
    session.on_message(3000.0)
    assert dues(sessions, 3000.0) == [Due.idle]
    # A request begins the time anew.
    session.turned_at = 3000.0
    assert dues(sessions, 3100.0) == []


@pytest.mark.parametrize(
    ("places", "one", "two", "others", "room"),
    [
        # A token without a session always has room, as far as there are places.
        (4, 4, 0, ["two"], True),
        (1, 1, 0, [], True),
        # The last place is for another token that has none.
        (4, 2, 0, ["two"], True),
        (4, 3, 0, ["two"], False),
        (4, 3, 0, [], True),
        (4, 2, 1, ["two"], True),
        # At most a quarter of the places is kept, at least one.
        (8, 5, 0, ["two", "three", "four"], True),
        (8, 6, 0, ["two", "three", "four"], False),
        (2, 1, 0, ["two"], False),
    ],
)
def test_a_token_leaves_places_for_others(
    places: int, one: int, two: int, others: list[str], room: bool
) -> None:
    sessions = make_sessions(places)
    for token in ["one"] * one + ["two"] * two:
        join(sessions).token = token
    asks = "one" if two or one < places else "two"
    assert sessions.has_room_for(asks, ["one", *others]) is room
    # Places of clients that are away are given on.
    for session in list(sessions)[1:]:
        session.lose(0.0)
    assert sessions.has_room_for(asks, ["one", *others]) is (room or places > 2)


def test_an_idle_time_of_0_is_never() -> None:
    sessions = make_sessions(idle_seconds=0.0)
    join(sessions)
    assert dues(sessions, 1e9) == []


def test_an_owed_answer_is_announced() -> None:
    sessions = make_sessions(answer_seconds=12.0)
    session = join(sessions)
    session.receive("reset", 1)
    session.asked_at = 100.0
    found = [(t, what) for t in range(100, 130) for what in dues(sessions, float(t))]
    assert found == [
        (105, Due.wait),
        (110, Due.wait),
        (112, Due.unavailable),
        (117, Due.wait),
        (122, Due.wait),
        (124, Due.unavailable),
        (129, Due.wait),
    ]


@given(st.lists(st.tuples(st.sampled_from(["join", "leave", "lose", "resume"]), st.integers(0, 5))))
def test_no_place_is_given_twice(events: list[tuple[str, int]]) -> None:
    sessions = make_sessions(3)
    joined: list[Session] = []
    for now, (what, index) in enumerate(events):
        if what == "join":
            displaced = sessions.find_displaced()
            if displaced is not None:
                sessions.leave(displaced)
                joined.remove(displaced)
            if len(joined) < 3:
                joined.append(join(sessions, now))
            else:
                assert sessions.full
                with pytest.raises(Busy, match="all 3 places are taken"):
                    join(sessions, now)
        elif index < len(joined):
            session = joined[index]
            if what == "leave":
                sessions.leave(joined.pop(index))
            elif what == "lose":
                session.lose(now)
            else:
                sessions.resume(session, LINE, now)
        assert sorted(each.number for each in sessions) == sorted(each.number for each in joined)
        assert len({each.place for each in joined}) == len(joined)
        assert all(0 <= each.place < 3 for each in joined)
