"""Which requests are answered together, and when."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from surreal_like.addons.gateway.messages import Request
from surreal_like.addons.gateway.request_batcher import Batcher
from surreal_like.addons.gateway.sessions import Session
from tests.addons.gateway.rig import make_session


def request(number: int) -> Request:
    return cast("Request", f"request {number}")


def filled(batcher: Batcher, *members: Session) -> None:
    for each in members:
        batcher.add(each, request(each.number))


def popped(batcher: Batcher, now: float = 100.0, sessions: Any = (), closed: str = "") -> Any:
    batch = batcher.pop(now, sessions, lambda mode: mode != closed)
    return None if batch is None else [each.number for each in batch.sessions]


def test_a_batch_has_one_mode_that_of_the_longest_waiting() -> None:
    batcher = Batcher(8)
    filled(
        batcher,
        make_session(1, asked_at=2.0),
        make_session(2, "act", asked_at=1.0),
        make_session(3, asked_at=3.0),
    )
    assert popped(batcher) == [2]
    assert popped(batcher) == [1, 3]


def test_a_mode_that_cannot_be_answered_holds_no_other_back() -> None:
    batcher = Batcher(8)
    filled(batcher, make_session(1, asked_at=1.0), make_session(2, "act", asked_at=2.0))
    assert popped(batcher, closed="train") == [2]
    assert popped(batcher, closed="train") is None
    assert popped(batcher) == [1]


def test_the_oldest_waits_for_company_as_long_as_there_may_be_some() -> None:
    batcher = Batcher(3, 0.5)
    one, two, away = (
        make_session(1, asked_at=10.0),
        make_session(2),
        make_session(3, connection=None),
    )
    other = make_session(4, "act")
    sessions = [one, two, away, other]
    filled(batcher, one)
    assert popped(batcher, 10.4, sessions) is None
    assert popped(batcher, 10.5, sessions) == [1]
    filled(batcher, one)
    # Only who is connected, of this mode, and not waiting yet, could come.
    assert popped(batcher, 10.0, [one, away, other]) == [1]
    filled(batcher, one, make_session(5), make_session(6))
    assert popped(batcher, 10.0, [*sessions, make_session(7)]) == [1, 5, 6]


@given(
    st.lists(
        st.tuples(st.sampled_from(["train", "act", "discard", "take"]), st.integers(0, 5)),
        max_size=60,
    ),
    st.integers(1, 4),
)
def test_each_request_is_answered_once(events: list[tuple[str, int]], most: int) -> None:
    batcher = Batcher(most)
    members = {(mode, n): make_session(n, mode) for mode in ("train", "act") for n in range(6)}
    waiting: list[Session] = []
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
            batch = batcher.pop(now, (), lambda mode: True)
            assert (batch.sessions if batch is not None else []) == expected
            assert batch is None or batch.requests == [request(each.number) for each in expected]
            waiting = [each for each in waiting if each not in expected]
