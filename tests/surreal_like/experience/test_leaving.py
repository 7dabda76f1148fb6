"""The end of a process that sends experience: it reports the rows that replay has not taken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from session.config import Config
from surreal_like.experience.leaving import Leaving


@pytest.mark.parametrize("rows", [0, 1234])
def test_rows_that_replay_has_not_taken_in_time_are_an_event(rows: int) -> None:
    events: list[tuple[str, str]] = []
    clock = SimpleNamespace(seconds=0.0)
    context: Any = SimpleNamespace(
        clock=SimpleNamespace(now=lambda: clock.seconds),
        config=Config({"session_config": {"launcher": {"grace_seconds": 10.0}}}),
        orphaned=False,
        event=lambda kind, text, **fields: events.append((kind, text)),
    )
    window = SimpleNamespace(empty=not rows, unacked=rows)
    sender: Any = SimpleNamespace(window=window, pump=lambda: None)
    leaving = Leaving(context, sender, cast(Any, SimpleNamespace(leave=lambda account: True)), dict)
    leaving.begin()
    leaving.tick()
    assert not events
    clock.seconds = 7.0
    leaving.tick()
    leaving.tick()
    text = "1,234 rows were not acknowledged in time, and are lost if replay lacks them"
    assert events == ([("rows_unacked", text)] if rows else [])
    assert leaving.over
