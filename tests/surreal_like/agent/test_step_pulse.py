"""Slow environments: signs of life from inside a vector step, and its end when told to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import main.ps
from session.folder import RunFolder
from session.process.heartbeat import read_beat
from session.process.service import Frame
from surreal_like.agent.step_pulse import StepAbandonedError, StepPulse
from tests.surreal_like.agent import test_evaluator, test_loop
from tests.surreal_like.agent.rig import Count, LearnerPeer, ReplayPeer, Rig, make_rig
from tests.surreal_like.agent.test_evaluation_reporter import ControlPeer

SLOW = "tests.surreal_like.agent.test_step_pulse:Slow"


class Slow(Count):
    """Each step takes two seconds of the rig's clock."""

    passes: Callable[[], object] = staticmethod(lambda: None)

    def step(self, action: int) -> Any:
        Slow.passes()
        return super().step(action)


@pytest.fixture
def rig(run_folder: Any) -> Iterator[Rig]:
    folder = RunFolder(run_folder)
    env = {"env_name": SLOW, "num_envs": 16}
    with make_rig(run=folder, env=env, stop={"eval_episodes": 20}) as made:
        made.start("ps", main.ps.build)
        yield made
        Slow.passes = staticmethod(lambda: None)


class Watch:
    """Passes two seconds in each step of an environment and notes how old the heartbeat is."""

    def __init__(self, rig: Rig, frame: Frame) -> None:
        self.rig, self.frame = rig, frame
        self.steps = 0
        self.beats: set[float] = set()
        self.stops_at = 0
        Slow.passes = staticmethod(self)

    def __call__(self) -> None:
        self.rig.clock.seconds += 2.0
        self.steps += 1
        self.frame.context.stopping |= self.steps == self.stops_at
        assert self.rig.run is not None
        beat = read_beat(self.rig.run.alive, self.frame.context.name)
        if beat is not None:
            self.beats.add(beat.time)


def test_an_agent_beats_between_the_steps_of_its_environments(rig: Rig) -> None:
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    frame = test_loop.started(rig)
    watch = Watch(rig, frame)
    learner.publish()
    rig.until(lambda: replay.chunks)
    # One vector step takes 32 seconds, more than `heartbeat.timeout`.
    assert len(watch.beats) >= watch.steps - 2


def test_a_short_chunk_of_a_slow_agent_goes_by_itself(rig: Rig) -> None:
    rig.config.session_config.sender.flush_iteration = 100
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    watch = Watch(rig, test_loop.started(rig))
    learner.publish()
    rig.until(lambda: len(replay.chunks) >= 2)
    assert [chunk.shape for chunk in replay.chunks[:2]] == [(1, 16), (1, 16)]
    # Long before there are rows for a whole chunk; a third step may have begun.
    assert watch.steps < 100 * 16


def test_a_long_step_is_given_up_when_the_agent_is_asked_to_stop(rig: Rig) -> None:
    rig.config.session_config.sender.flush_time = 0.0
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    frame = test_loop.started(rig)
    watch = Watch(rig, frame)
    watch.stops_at = 16 + 3
    learner.publish()
    rig.until(lambda: frame.finished)
    assert watch.steps == watch.stops_at
    [chunk] = replay.chunks
    # The action of the last row was not taken in all environments: it counts as not taken.
    assert (chunk.shape, chunk.tail) == ((2, 16), True)
    assert replay.goodbyes


def test_an_evaluator_beats_and_says_how_far_it_is(rig: Rig) -> None:
    learner, control = LearnerPeer(rig), ControlPeer(rig)
    frame = test_evaluator.started(rig)
    watch = Watch(rig, frame)
    learner.publish()
    rig.until(lambda: control.reports)
    assert len(watch.beats) >= watch.steps - 2
    assert control.reports[0][0]["episodes"] == 20
    rig.pass_time(1.0)
    said = rig.events("slow")
    assert len([line for line in said if "one step of 20 environments takes more" in line]) == 1


def test_a_long_evaluation_shows_its_progress(rig: Rig) -> None:
    learner = LearnerPeer(rig)
    frame = test_evaluator.started(rig)
    watch = Watch(rig, frame)
    learner.publish()
    rig.until(lambda: watch.steps >= 20)
    service = test_evaluator.service(frame)
    assert service.doing == "evaluating version 1: 0 of 20 episodes"


def test_an_evaluation_is_given_up_in_the_middle_of_a_step(rig: Rig) -> None:
    learner = LearnerPeer(rig)
    frame = test_evaluator.started(rig)
    watch = Watch(rig, frame)
    watch.stops_at = 7
    learner.publish()
    rig.until(lambda: frame.finished)
    assert watch.steps == 7


def test_the_time_in_which_environments_are_built_is_no_step(rig: Rig) -> None:
    context = rig.context("agent-0")
    pulse = StepPulse(context, 16)
    rig.clock.seconds += 60.0
    context.stopping = True
    pulse()
    assert not pulse._advised
    pulse.begin()
    rig.clock.seconds += 60.0
    with pytest.raises(StepAbandonedError):
        pulse()
