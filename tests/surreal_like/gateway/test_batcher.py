"""Which requests are answered together, and when."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from surreal_like.gateway.batcher import Batcher
from surreal_like.gateway.messages import Request
from surreal_like.gateway.sessions import Member


def member(number: int, mode: str = "train", asked_at: float = 0.0, line: Any = "line") -> Member:
    made = Member(number, number, mode, f"client-{number}", line, 0.0)
    made.asked_at = asked_at
    return made


def request(number: int) -> Request:
    return cast("Request", f"request {number}")


def filled(batcher: Batcher, *members: Member) -> None:
    for each in members:
        batcher.add(each, request(each.number))


def taken(batcher: Batcher, now: float = 100.0, sessions: Any = (), closed: str = "") -> Any:
    batch = batcher.take(now, sessions, lambda mode: mode != closed)
    return None if batch is None else [each.number for each in batch.members]


def test_all_that_wait_are_answered_the_oldest_first() -> None:
    batcher = Batcher(3)
    filled(batcher, *(member(number) for number in (4, 1, 3, 2)))
    assert taken(batcher) == [4, 1, 3]
    assert taken(batcher) == [2]
    assert taken(batcher) is None


def test_requests_stay_beside_their_sessions() -> None:
    batcher = Batcher(3)
    filled(batcher, member(5), member(6))
    batch = batcher.take(0.0, (), lambda mode: True)
    assert batch is not None
    assert batch.requests == [request(5), request(6)]


def test_a_batch_has_one_mode_that_of_the_longest_waiting() -> None:
    batcher = Batcher(8)
    filled(batcher, member(1, asked_at=2.0), member(2, "act", 1.0), member(3, asked_at=3.0))
    assert taken(batcher) == [2]
    assert taken(batcher) == [1, 3]


def test_a_mode_that_cannot_be_answered_holds_no_other_back() -> None:
    batcher = Batcher(8)
    filled(batcher, member(1, asked_at=1.0), member(2, "act", 2.0))
    assert taken(batcher, closed="train") == [2]
    assert taken(batcher, closed="train") is None
    assert taken(batcher) == [1]


def test_a_session_that_leaves_waits_no_more() -> None:
    batcher, gone = Batcher(8), member(1)
    filled(batcher, gone, member(2))
    batcher.discard(gone)
    batcher.discard(gone)
    batcher.discard(member(9, "act"))
    assert taken(batcher) == [2]


def test_the_oldest_waits_for_company_as_long_as_there_may_be_some() -> None:
    batcher = Batcher(3, 0.5)
    one, two, away = member(1, asked_at=10.0), member(2), member(3, line=None)
    other = member(4, "act")
    sessions = [one, two, away, other]
    filled(batcher, one)
    assert taken(batcher, 10.4, sessions) is None
    assert taken(batcher, 10.5, sessions) == [1]
    filled(batcher, one)
    # Only who is connected, of this mode, and not waiting yet, could come.
    assert taken(batcher, 10.0, [one, away, other]) == [1]
    filled(batcher, one, member(5), member(6))
    assert taken(batcher, 10.0, [*sessions, member(7)]) == [1, 5, 6]


@given(
    st.lists(
        st.tuples(st.sampled_from(["train", "act", "discard", "take"]), st.integers(0, 5)),
        max_size=60,
    ),
    st.integers(1, 4),
)
def test_each_request_is_answered_once(events: list[tuple[str, int]], most: int) -> None:
    batcher = Batcher(most)
    members = {(mode, n): member(n, mode) for mode in ("train", "act") for n in range(6)}
    waiting: list[Member] = []
    for now, (what, number) in enumerate(events):
        if what in ("train", "act"):
            each = members[what, number]
            if each not in waiting:
                each.asked_at = now
                waiting.append(each)
                filled(batcher, each)
        elif what == "discard":
            each = members["train", number]
            batcher.discard(each)
            waiting = [other for other in waiting if other is not each]
        else:
            mode = waiting[0].mode if waiting else ""
            expected = [each for each in waiting if each.mode == mode][:most]
            batch = batcher.take(now, (), lambda mode: True)
            assert (batch.members if batch is not None else []) == expected
            waiting = [each for each in waiting if each not in expected]
