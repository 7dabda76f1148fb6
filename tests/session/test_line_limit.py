"""Lines of log that others cause: few for each sender, kind and period, whatever comes."""

from __future__ import annotations

import math

import pytest

from session import line_limit
from session.line_limit import LineLimit


class Clock:
    seconds = 0.0

    def now(self) -> float:
        return self.seconds


def test_each_sender_has_one_line_a_minute_for_each_kind() -> None:
    clock = Clock()
    limit = LineLimit(clock.now)
    given = [limit.admit("10.0.0.1", "malformed") for _ in range(5)]
    assert given == ["", None, None, None, None]
    # Another reason is not hidden by the first one.
    assert limit.admit("10.0.0.1", "oversize") == ""
    assert limit.admit("10.0.0.2", "malformed") == ""
    clock.seconds = 60.0
    assert limit.admit("10.0.0.1", "malformed") == " (4 more since the last such line)"
    clock.seconds = 61.0
    assert limit.admit("10.0.0.1", "malformed") is None
    assert limit.admit("10.0.0.1", "oversize") == ""


def test_several_lines_may_be_allowed_in_a_period() -> None:
    clock = Clock()
    limit = LineLimit(clock.now, lines=3)
    assert [limit.admit("a") for _ in range(5)] == ["", "", "", None, None]
    clock.seconds = 60.0
    assert [limit.admit("a") for _ in range(4)] == [
        " (2 more since the last such line)",
        "",
        "",
        None,
    ]


def test_in_an_infinite_period_each_line_comes_once() -> None:
    clock = Clock()
    limit = LineLimit(clock.now, seconds=math.inf)
    assert limit.admit("a", "x") == ""
    clock.seconds = 1e9
    assert limit.admit("a", "x") is None
    assert limit.admit("a", "y") == ""


@pytest.mark.parametrize("seconds", [60.0, math.inf])
def test_lines_and_memory_are_bounded_whatever_senders_and_kinds_come(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(line_limit, "SENDERS", 30)
    monkeypatch.setattr(line_limit, "KINDS", 4)
    limit = LineLimit(Clock().now, seconds=seconds)
    lines = [
        limit.admit(f"sender {sender}", f"kind {kind}")
        for sender in range(500)
        for kind in range(20)
    ]
    # Of 30 senders and of all others together: four kinds, and all other kinds together.
    assert len(limit) == sum(line is not None for line in lines) == 31 * 5


def test_senders_of_an_earlier_minute_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_limit, "SENDERS", 2)
    clock = Clock()
    limit = LineLimit(clock.now)
    assert [limit.admit(name) for name in ("a", "b", "c", "d")] == ["", "", "", None]
    clock.seconds = 61.0
    assert [limit.admit(name) for name in ("d", "e", "f", "g")] == ["", "", "", None]
