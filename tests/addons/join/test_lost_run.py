"""Agents of a machine that has joined: what is said when its run is lost, or rows of theirs."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from session.errors import UsageError
from session.folder import RunFolder
from session.launchers.instruction import Event
from session.launchers.launcher import Outcome
from session.process.heartbeat import Beat, State, write_beat
from session.wire import Message
from surreal_like.addons.join import agents as module
from surreal_like.addons.join.agents import LostRunError, RunWatch, _Stay, refuse_second
from surreal_like.run.observer import Interrupts


class Agents:
    """Agents that end some turns after they were asked to."""

    def __init__(self) -> None:
        self.turns: int | None = None

    @property
    def outcome(self) -> Outcome | None:
        return Outcome("interrupted", "the run is gone") if self.turns == 0 else None

    def poll(self, timeout_seconds: float = 0.0) -> list[Event]:
        self.turns = None if self.turns is None else self.turns - 1
        return []

    def components(self) -> Mapping[str, Mapping[str, Any]]:
        return {"agent-1000": {"exit_code": 0}}

    def stop(self, *, interrupted: bool = False, reason: str = "") -> None:
        self.turns = 3

    def kill(self) -> None:
        raise AssertionError


class LateAnswer(RunWatch):
    """The run answers again while the agents leave."""

    def __init__(self, agents: Agents) -> None:
        self.over = self.resumable = False
        self.timeout_seconds = 30.0
        self._agents = agents
        self._asked_at = time.monotonic() - 31.0

    def tick(self) -> list[str]:
        if self._agents.turns is not None:
            self._asked_at = None
        return []


def test_a_lost_run_was_silent_for_as_long_as_it_was_when_it_was_given_up() -> None:
    agents = Agents()
    stay = _Stay(
        cast(Any, agents), LateAnswer(agents), Interrupts(), lambda line: None, Path("none")
    )
    with pytest.raises(LostRunError, match="no message of the run came for 30 s"):
        stay.until_the_end()


class Questions(RunWatch):
    """A run that answers when it is told to."""

    def __init__(self) -> None:
        self.over = self.resumable = False
        self.timeout_seconds, self._asked_at, self.load = 10.0, None, {}
        self.answer: Message | None = None
        self._requests = cast(Any, SimpleNamespace(ask=lambda info, now: self.answer))
        self._wire = cast(Any, SimpleNamespace(check=list))
        self._info = cast(Any, None)


def test_silence_counts_from_the_first_question_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: Any = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(module, "time", clock)
    watch = Questions()

    def look(now: float, answer: Message | None = None) -> tuple[bool, float]:
        clock.now, watch.answer = now, answer
        watch.tick()
        return watch.lost, watch.silent_seconds

    # The imports of this machine take longer than the run may be silent.
    clock.now = 30.0
    assert not watch.lost
    assert look(31.0) == (False, 0.0)
    assert look(40.0) == (False, 9.0)
    said = Message("info", {"info": {"final": False}})
    assert look(45.0, said) == (False, 0.0)
    # It was busy, and asked nothing.
    assert look(70.0) == (False, 0.0)
    assert look(80.5) == (True, 10.5)


@pytest.mark.parametrize(
    ("rows", "last"),
    [
        (0, "left the run"),
        (1234, "left the run; 1,234 rows were not acknowledged by replay, and are lost"),
    ],
)
def test_the_last_line_has_the_number_of_rows_that_are_lost(
    rows: int, last: str, tmp_path: Path
) -> None:
    for name in ("agent-1000", "agent-1"):
        # Only those of this machine's agents count.
        write_beat(
            tmp_path, Beat(name, 1, State.done, 7, 1.0, status={"unacked_rows": float(rows)})
        )
    agents, lines = Agents(), list[str]()
    interrupts: Any = SimpleNamespace(count=1, terminated=True)
    watch = cast(Any, SimpleNamespace(tick=list, lost=False, silent=False))
    stay = _Stay(cast(Any, agents), watch, interrupts, lines.append, tmp_path)
    assert stay.until_the_end() == 0
    assert lines[-1] == last


@pytest.mark.parametrize("owner", [1, None, os.getpid()], ids=["other", "none", "own"])
def test_a_second_join_gets_no_advice_to_stop_the_first(
    owner: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunFolder, "owner", owner)
    said = "run here already, in .*: give further ones another --folder" if owner == 1 else "stop"
    with pytest.raises(UsageError, match=said) as caught, refuse_second(RunFolder(tmp_path)):
        raise UsageError("in use by another launcher; stop it with: surreal-like stop")
    assert ("stop" in str(caught.value)) == (owner != 1)
