"""Places, secrets and times of the sessions of a gateway."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.gateway.messages import Hello
from surreal_like.gateway.sessions import Busy, Due, Member, Sessions, Timing


def hello(name: str = "") -> Hello:
    return Hello(1, "", "", name, 1, "", "")


def made(places: int = 2, **timing: float) -> Sessions:
    numbers = itertools.count()
    return Sessions(places, Timing(**timing), lambda: f"secret{next(numbers)}")


def join(sessions: Sessions, now: float = 0.0, connection: Any = "line") -> Member:
    return sessions.join(hello(), "train", connection, now)


def dues(sessions: Sessions, now: float) -> list[Due]:
    return [what for _, what in sessions.due(now)]


def test_places_are_given_from_the_lowest_and_given_again() -> None:
    sessions = made(3)
    first, second = join(sessions), join(sessions)
    assert (first.slot, second.slot, first.number, second.number) == (0, 1, 1, 2)
    assert (first.name, second.name) == ("client-1", "client-2")
    sessions.leave(first)
    assert join(sessions).slot == 0
    assert len(sessions) == 2


def test_S6_a_full_gateway_is_busy() -> None:
    sessions = made(1)
    join(sessions)
    assert sessions.full
    assert sessions.displaced() is None
    with pytest.raises(Busy, match="all 1 places are taken"):
        join(sessions)


def test_S6_a_newcomer_gets_the_place_of_the_session_longest_away() -> None:
    sessions = made(3)
    members = [join(sessions) for _ in range(3)]
    sessions.lose(members[2], 5.0)
    sessions.lose(members[0], 7.0)
    assert not sessions.full
    assert sessions.displaced() is members[2]
    sessions.leave(members[2])
    assert sessions.displaced() is None
    assert join(sessions).slot == 2


def test_S2_a_session_is_found_by_its_secret() -> None:
    sessions = made()
    first, second = join(sessions), join(sessions)
    assert sessions.find(first.resumes[-1]) is first
    assert sessions.find(second.resumes[-1]) is second
    for wrong in ("", "1", "1.", ".secret0", "1.secret1", "2.secret0", "3.secret0", "x.secret0"):
        assert sessions.find(wrong) is None
    sessions.leave(first)
    assert sessions.find("1.secret0") is None
    assert sessions.find("1.geheimnis-ä") is None


def test_S2_each_welcome_has_a_new_secret_and_the_old_one_holds_until_it_is_used() -> None:
    sessions = made()
    member = join(sessions)
    old = member.resumes[-1]
    assert sessions.resume(member, "second", 1.0) == "line"
    new = member.resumes[-1]
    assert new != old
    # The welcome may have been lost.
    assert sessions.find(old) is member
    sessions.on_message(member, 2.0)
    assert sessions.find(old) is None
    assert sessions.find(new) is member


def test_a_session_is_gone_after_its_grace_time() -> None:
    sessions = made(grace_seconds=30.0)
    member = join(sessions)
    sessions.lose(member, 10.0)
    assert dues(sessions, 39.9) == []
    assert dues(sessions, 40.0) == [Due.left]
    sessions.resume(member, "second", 41.0)
    assert dues(sessions, 100.0) == []


def test_S4_a_silent_session_is_idle_only_while_it_is_its_turn() -> None:
    sessions = made(idle_seconds=300.0)
    member = join(sessions)
    assert dues(sessions, 299.0) == []
    assert dues(sessions, 300.0) == [Due.idle]
    member.session.receive("reset", 1)
    member.asked_at = 300.0
    assert Due.idle not in dues(sessions, 10_000.0)
    member.session.reply({})
    member.moved_at = 10_000.0
    assert dues(sessions, 10_299.0) == []
    assert dues(sessions, 10_300.0) == [Due.idle]


def test_S4_0_means_never() -> None:
    sessions = made(idle_seconds=0.0)
    join(sessions)
    assert dues(sessions, 1e9) == []


def test_an_owed_answer_is_announced() -> None:
    sessions = made(answer_seconds=12.0)
    member = join(sessions)
    member.session.receive("reset", 1)
    member.asked_at = 100.0
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
    sessions = made(3)
    members: list[Member] = []
    for now, (what, index) in enumerate(events):
        if what == "join":
            displaced = sessions.displaced()
            if displaced is not None:
                sessions.leave(displaced)
                members.remove(displaced)
            if len(members) < 3:
                members.append(join(sessions, now))
            else:
                assert sessions.full
        elif index < len(members):
            member = members[index]
            if what == "leave":
                sessions.leave(members.pop(index))
            elif what == "lose":
                sessions.lose(member, now)
            else:
                sessions.resume(member, "line", now)
        assert sorted(each.number for each in sessions) == sorted(each.number for each in members)
        assert len({each.slot for each in members}) == len(members)
        assert all(0 <= each.slot < 3 for each in members)
