"""Faults hit processes that are there, and are noted until their component runs again."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from session.errors import UsageError
from session.folder import RunFolder
from session.launchers.launcher import write_topology
from session.process.component import Component, Topology
from session.process.heartbeat import Beat, State, write_beat
from surreal_like.addons.chaos.faults import DISK, KILL, STOP, TERM, Faults, Plan
from tests.polling import until

SOON = 1e-6


class Sleeper:
    """A run folder with one agent, which is a process that sleeps."""

    def __init__(self, folder: Path) -> None:
        self.folder = RunFolder(folder)
        self.folder.create()
        topology = Topology(
            [Component("agent-0", "agent", "main.agent"), Component("ps", "ps", "main.ps")]
        )
        write_topology(self.folder, topology)
        self.starts = 0
        self.start()

    def start(self, state: State = State.running) -> None:
        self.process = subprocess.Popen(["sleep", "1000"])
        self.starts += 1
        self.beat(state)

    def beat(self, state: State) -> None:
        beat = Beat("agent-0", self.starts, state, self.process.pid, time.time())
        write_beat(self.folder.alive, beat)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Sleeper]:
    made = Sleeper(tmp_path / "run")
    yield made
    made.end()


def make(sleeper: Sleeper, what: str, seconds: float = SOON) -> Faults:
    # A second passes between two looks at the clock.
    clock = itertools.count().__next__
    faults = Faults(sleeper.folder, [Plan(what, "agent", seconds)], clock=clock)
    faults.begin()
    return faults


def test_a_kill_is_noted_until_the_component_runs_again(sleeper: Sleeper) -> None:
    faults = make(sleeper, KILL)
    faults.tick()
    assert sleeper.process.wait(10) == -signal.SIGKILL
    (fault,) = faults.happened
    assert (fault.name, fault.incarnation, faults.away) == ("agent-0", 1, {"agent-0"})
    faults.tick()
    sleeper.start(State.starting)
    faults.tick()
    # It is not hit again before it is back.
    assert faults.happened == [fault]
    assert faults.away
    faults.end()
    sleeper.beat(State.running)
    faults.tick()
    assert not faults.away
    assert fault.recovered_seconds is not None
    assert faults.happened == [fault]


def state_of(sleeper: Sleeper) -> str:
    stat = Path(f"/proc/{sleeper.process.pid}/stat").read_text()
    return stat.rpartition(") ")[2][0]


@pytest.mark.parametrize("killed", [False, True])
def test_a_stop_hangs_the_process_for_a_while(sleeper: Sleeper, killed: bool) -> None:
    faults = make(sleeper, STOP)
    faults.tick()
    until(lambda: state_of(sleeper) == "T")
    (fault,) = faults.happened
    faults.end()
    if killed:
        # By its launcher, for its silence.
        sleeper.end()
        sleeper.start()
    else:
        until(lambda: state_of(sleeper) != "T", step=faults.tick)
        assert faults.away
        sleeper.beat(State.running)
    assert faults.all_back()
    assert fault.survived != killed


def test_a_request_to_end_is_noted_until_the_component_runs_again(sleeper: Sleeper) -> None:
    faults = make(sleeper, TERM)
    faults.tick()
    assert sleeper.process.wait(10) == -signal.SIGTERM
    faults.end()
    sleeper.start()
    assert faults.all_back()


def test_the_next_process_of_a_component_that_resumes_is_back(sleeper: Sleeper) -> None:
    """It has the incarnation of the one before."""
    faults = make(sleeper, KILL)
    faults.tick()
    assert sleeper.process.wait(10) == -signal.SIGKILL
    faults.end()
    sleeper.starts -= 1
    sleeper.start()
    assert faults.all_back()
    assert {fault.incarnation for fault in faults.happened} == {sleeper.starts}


def test_one_component_is_struck_as_soon_as_it_runs(sleeper: Sleeper) -> None:
    faults = Faults(sleeper.folder, ())
    sleeper.beat(State.starting)
    assert not faults.strike(KILL, "agent-0")
    assert not faults.strike(KILL, "ps")
    sleeper.beat(State.running)
    assert faults.strike(KILL, "agent-0")
    assert sleeper.process.wait(10) == -signal.SIGKILL
    assert not faults.strike(KILL, "agent-0")
    sleeper.start()
    faults.tick()
    (fault,) = faults.happened
    assert (fault.plan.kind, fault.name, faults.away) == ("agent", "agent-0", set())


def test_nothing_comes_before_it_is_begun_or_due(sleeper: Sleeper) -> None:
    faults = Faults(sleeper.folder, [Plan(KILL, "agent", SOON)])
    faults.tick()
    make(sleeper, KILL, 1e9).tick()
    assert sleeper.process.poll() is None


def test_a_process_that_is_another_one_is_not_hit(sleeper: Sleeper) -> None:
    beat = Beat("agent-0", 1, State.running, os.getpid(), time.time() - 1e7)
    write_beat(sleeper.folder.alive, beat)
    faults = make(sleeper, KILL)
    faults.tick()
    assert not faults.happened


def test_what_cannot_be_hit_is_refused(sleeper: Sleeper) -> None:
    with pytest.raises(UsageError, match="no component of kind 'learner'; it has agent, ps"):
        Faults(sleeper.folder, [Plan(KILL, "learner", 1.0)])
    with pytest.raises(UsageError, match="GB free: that would hit other programs"):
        Faults(sleeper.folder, [Plan(DISK, "", 1.0)])
