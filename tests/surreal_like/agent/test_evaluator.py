"""The evaluator's process over real sockets, with a learner that the test plays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import main.ps
from session.config.sections import sections_of
from session.process.context import Context
from session.process.service import Frame
from surreal_like.agent.evaluator import EvaluatorService
from surreal_like.agent.loop import make_agent
from surreal_like.env.vector import SyncVector
from surreal_like.env.whole_vector import WholeVector
from surreal_like.network.flat import read_flat
from tests.surreal_like.agent.rig import Count, LearnerPeer, LineAgent, Rig, make_rig, play_alone
from tests.surreal_like.agent.rig import rig as rig
from tests.surreal_like.agent.test_evaluation_reporter import ControlPeer


def build(context: Context) -> EvaluatorService:
    modes = context.config.session_config.evaluator.mode
    mode = modes[context.component.index % len(modes)]
    return EvaluatorService(context, make_agent(context, LineAgent, mode), play_alone)


def started(rig: Rig, incarnation: int = 5) -> Frame:
    return rig.start("eval-0", build, incarnation=incarnation)


def service(frame: Frame) -> EvaluatorService:
    assert isinstance(frame._service, EvaluatorService)
    return frame._service


def seeds(rig: Rig, frame: Frame) -> list[int]:
    rig.until(lambda: frame._service)
    vector = service(frame)._player.env
    assert isinstance(vector, WholeVector)
    env = vector.env
    assert isinstance(env, SyncVector)
    return [seed for each in env.envs if isinstance(each, Count) for seed in each.seeds]


def test_a_version_is_played_and_its_score_reported(rig: Rig) -> None:
    learner, control = LearnerPeer(rig), ControlPeer(rig)
    started(rig)
    published = learner.publish(env_steps=500)
    rig.until(lambda: control.reports)
    score, has_flat = control.reports[0]
    assert has_flat
    expected = {
        "version": 1,
        "incarnation": published.incarnation,
        "iteration": 10,
        "env_steps": 500,
        "confirm": False,
        "mode": "eval_deterministic",
        "mean_return": 6.0,
        "std_return": 0.0,
        "min_return": 6.0,
        "max_return": 6.0,
        "episodes": 6,
        "mean_length": 3.0,
    }
    assert {name: score[name] for name in expected} == expected
    assert score["seconds"] >= 0.0


def test_the_parameters_that_were_played_go_along(rig: Rig) -> None:
    learner = LearnerPeer(rig)
    flats: list[Any] = []

    class Keeping(ControlPeer):
        def tick(self) -> None:
            while (request := self.router.receive()) is not None:
                flats.append(request.message.arrays["flat"].copy())
                self.router.reply(request, "noted", {"confirm": False, "best": 1.0})

    Keeping(rig)
    started(rig)
    learner.publish()
    rig.until(lambda: flats)
    assert (flats[0] == read_flat({"network": learner.network})).all()


def test_each_version_is_played_once_with_a_pause_between(rig: Rig) -> None:
    learner, control = LearnerPeer(rig), ControlPeer(rig)
    started(rig)
    learner.publish()
    rig.until(lambda: control.reports)
    rig.pass_time(3.0)
    assert len(control.reports) == 1
    learner.publish()
    rig.until(lambda: len(control.reports) == 2)
    reported_at = rig.clock.now()
    learner.publish()
    rig.until(lambda: len(control.reports) == 3)
    assert rig.clock.now() - reported_at >= 1.0
    assert [score["version"] for score, _ in control.reports] == [1, 2, 3]


def test_a_version_is_played_again_where_the_learner_wants_it_confirmed(rig: Rig) -> None:
    learner, control = LearnerPeer(rig), ControlPeer(rig)
    control.answers = [{"confirm": True, "best": 6.0}, {"confirm": False, "best": 6.0}]
    frame = started(rig)
    learner.publish()
    rig.until(lambda: len(control.reports) == 2)
    learner.publish()
    first, second = (score for score, _ in control.reports)
    assert (first["confirm"], second["confirm"]) == (False, True)
    assert (first["version"], second["version"]) == (1, 1)
    rig.until(lambda: len(control.reports) == 3)
    assert control.reports[2][0]["version"] == 2
    assert len(seeds(rig, frame)) == 6  # seeded once: no episode is ever played again


def test_seeds_never_repeat_over_restarts_and_evaluators() -> None:
    drawn: list[int] = []
    with make_rig(evaluator={"num": 2}) as rig:
        rig.start("ps", main.ps.build)
        for name, incarnation in (("eval-0", 5), ("eval-1", 5), ("eval-0", 6)):
            frame = rig.start(name, build, incarnation=incarnation)
            drawn += seeds(rig, frame)
    assert len(drawn) == len(set(drawn)) == 18


@pytest.mark.parametrize(("wanted", "streams"), [(0, 6), (4, 4), (50, 6)])
def test_there_is_at_most_one_stream_per_episode(wanted: int, streams: int) -> None:
    with make_rig(evaluator={"num_envs": wanted}) as rig:
        rig.start("ps", main.ps.build)
        learner, control = LearnerPeer(rig), ControlPeer(rig)
        frame = started(rig)
        assert len(seeds(rig, frame)) == streams
        learner.publish()
        rig.until(lambda: control.reports)
        assert control.reports[0][0]["episodes"] == 6


def test_an_evaluator_acts_in_the_mode_of_the_config() -> None:
    with make_rig(evaluator={"mode": ["eval_stochastic"]}) as rig:
        rig.start("ps", main.ps.build)
        frame = started(rig)
        rig.until(lambda: frame._service)
        assert service(frame)._agent.agent_mode == "eval_stochastic"


def test_environments_are_those_of_evaluation() -> None:
    with make_rig(env={"env_args": {"length": 2}, "eval_mode": {"length": 5}}) as rig:
        rig.start("ps", main.ps.build)
        learner, control = LearnerPeer(rig), ControlPeer(rig)
        started(rig)
        learner.publish()
        rig.until(lambda: control.reports)
        assert control.reports[0][0]["mean_length"] == 5.0


class Hooked(LineAgent):
    """Notes the calls of its hooks, and of `act`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.calls: list[tuple[str, Any]] = []

    def act(self, obs: Any) -> Any:
        self.calls.append(("act", obs.shape[0]))
        return super().act(obs)

    def pre_action(self, obs: Any) -> None:
        self.calls.append(("pre_action", obs.shape[0]))

    def post_action(self, obs: Any, actions: Any) -> None:
        self.calls.append(("post_action", len(actions)))

    def pre_episode(self, streams: Any) -> None:
        self.calls.append(("pre_episode", streams.tolist()))

    def post_episode(self, episodes: Any) -> None:
        self.calls.append(("post_episode", [each["length"] for each in episodes]))


@pytest.mark.parametrize("mode", ["eval_deterministic", "eval_stochastic"])
def test_hooks_are_called_around_each_step(mode: str) -> None:
    with make_rig(evaluator={"num_envs": 2, "mode": [mode]}, stop={"eval_episodes": 3}) as rig:
        rig.start("ps", main.ps.build)
        learner, control = LearnerPeer(rig), ControlPeer(rig)
        made: list[Hooked] = []

        def build_hooked(context: Context) -> EvaluatorService:
            made.append(Hooked(**sections_of(context.config), agent_id=0, agent_mode=mode))
            return EvaluatorService(context, made[0], play_alone)

        rig.start("eval-0", build_hooked, incarnation=5)
        learner.publish()
        rig.until(lambda: control.reports)
    step = [("pre_action", 2), ("act", 2), ("post_action", 2)]
    episode = [("pre_episode", [0, 1]), *step, *step, *step, ("post_episode", [3, 3])]
    # The second quota of one stream: the other one plays on, and the reset is a row of its own.
    assert made[0].calls == [*episode, *step, *episode]
    assert made[0].streams.tolist() == [0, 1]


def test_hooks_that_an_agent_does_not_override_are_not_called(rig: Rig) -> None:
    frame = started(rig)
    rig.until(lambda: frame._service)
    assert not service(frame)._acting.hooked


@pytest.fixture
def endless() -> Iterator[Rig]:
    """A rig whose episodes do not end."""
    with make_rig(env={"env_args": {"length": 10**6}}) as made:
        made.start("ps", main.ps.build)
        yield made


def test_a_tick_takes_a_few_steps_only(endless: Rig) -> None:
    rig = endless
    learner = LearnerPeer(rig)
    frame = started(rig)
    learner.publish()
    rig.until(lambda: frame._service and service(frame)._evaluation)
    agent = service(frame)._agent
    assert isinstance(agent, LineAgent)
    before = len(agent.seen_first)
    service(frame).tick()
    assert 1 <= len(agent.seen_first) - before <= 8


def test_the_end_of_the_run_ends_it_inside_an_evaluation(endless: Rig) -> None:
    rig = endless
    learner = LearnerPeer(rig)
    frame = started(rig)
    learner.publish()
    rig.until(lambda: frame._service and service(frame)._evaluation)
    learner.publish(final=True)
    rig.pass_time(0.1)
    rig.clock.seconds += 1.0  # then it looks for the end
    rig.until(lambda: frame.finished)


@pytest.mark.parametrize("silent", [False, True])
def test_the_last_version_is_played_at_once_and_once(rig: Rig, silent: bool) -> None:
    learner, control = LearnerPeer(rig), ControlPeer(rig)
    control.silent = silent
    frame = started(rig)
    learner.publish()
    rig.until(lambda: control.reports)
    learner.publish(final=True, final_seconds=60.0)
    rig.until(lambda: service(frame)._until is not None)
    # The learner answers late, and wants an older version again: there is no time for that.
    control.answers, control.silent = [{"confirm": True, "best": 1.0}] * 3, False
    rig.clock.seconds += 6.0
    rig.until(lambda: frame.finished)
    played = {(each["version"], each["confirm"]) for each, _ in control.reports}
    assert played == {(1, False), (2, False)}
    assert control.reports[-1][0]["episodes"] == 6


def test_a_mode_that_does_not_judge_plays_no_last_version() -> None:
    modes = ["eval_deterministic", "eval_stochastic"]
    with make_rig(evaluator={"num": 2, "mode": modes}) as rig:
        rig.start("ps", main.ps.build)
        learner, control = LearnerPeer(rig), ControlPeer(rig)
        frame = rig.start("eval-1", build)
        learner.publish(final=True, final_seconds=60.0)
        rig.until(lambda: frame.finished)
        assert control.reports == []


def test_what_is_over_of_the_last_version_at_its_deadline_is_reported() -> None:
    # A tick makes eight steps: the third episode of each environment is open after it.
    with make_rig(evaluator={"num_envs": 2}) as rig:
        rig.start("ps", main.ps.build)
        learner, control = LearnerPeer(rig), ControlPeer(rig)
        frame = started(rig)
        learner.publish(final=True, final_seconds=60.0)

        def played() -> int:
            evaluation = service(frame)._evaluation if frame._service else None
            return 0 if evaluation is None else len(evaluation.finished)

        rig.until(played)
        rig.clock.seconds += 60.0
        rig.until(lambda: frame.finished)
        ((score, _),) = control.reports
        assert 0 < score["episodes"] < 6


def test_a_last_version_of_which_no_episode_ends_in_time_has_no_score(endless: Rig) -> None:
    rig = endless
    learner, control = LearnerPeer(rig), ControlPeer(rig)
    frame = started(rig)
    learner.publish(final=True, final_seconds=60.0)
    rig.until(lambda: frame._service and service(frame)._evaluation)
    rig.clock.seconds += 60.0
    rig.until(lambda: frame.finished)
    assert control.reports == []


def test_it_stays_after_the_end_where_the_run_says_so() -> None:
    with make_rig(at_end="idle") as rig:
        rig.start("ps", main.ps.build)
        learner, frame = LearnerPeer(rig), started(rig)
        learner.publish(final=True)
        rig.until(lambda: frame._service and not frame._service.ready)
        rig.pass_time(5.0)
        assert not frame.finished
        frame.context.stopping = True
        rig.until(lambda: frame.finished)


def test_it_ends_when_it_is_asked_to(rig: Rig) -> None:
    frame = started(rig)
    rig.until(lambda: frame._service)
    frame.context.stopping = True
    rig.until(lambda: frame.finished)


def test_it_waits_for_a_learner_that_is_restarted(rig: Rig) -> None:
    learner = LearnerPeer(rig)
    frame = started(rig)
    learner.publish()
    rig.until(lambda: frame._service and service(frame)._scores.busy)
    rig.pass_time(0.2)
    control = ControlPeer(rig, 10)
    rig.until(lambda: control.reports)
    assert control.reports[0][0]["version"] == 1


def test_an_unanswered_score_is_given_up_and_the_next_version_played(rig: Rig) -> None:
    learner = LearnerPeer(rig)
    frame = started(rig)
    learner.publish()
    rig.until(lambda: frame._service and service(frame)._scores.busy)
    rig.clock.seconds += 61.0
    rig.until(lambda: not service(frame)._scores.busy)
    control = ControlPeer(rig)
    learner.publish()
    rig.until(lambda: control.reports)
    assert [score["version"] for score, _ in control.reports] == [2]


def test_a_mode_that_does_not_judge_has_its_own_tags_and_brings_no_parameters() -> None:
    modes = ["eval_deterministic", "eval_stochastic"]
    with make_rig(evaluator={"num": 2, "mode": modes}) as rig:
        rig.start("ps", main.ps.build)
        learner, control = LearnerPeer(rig), ControlPeer(rig)
        rig.start("eval-1", build)
        learner.publish()
        rig.until(lambda: control.reports)
        score, has_flat = control.reports[0]
        assert (score["mode"], has_flat) == ("eval_stochastic", False)
        rig.until(lambda: rig.scalars("eval/1"))
        assert all(tag.startswith("stochastic/") for tag in rig.scalars("eval/1"))


def test_it_reports_its_own_curves(rig: Rig) -> None:
    learner, control = LearnerPeer(rig), ControlPeer(rig)
    started(rig)
    learner.publish()
    rig.until(lambda: control.reports)
    rig.until(lambda: rig.scalars("eval/0"))
    values = rig.scalars("eval/0")
    assert (values["return"], values["episode_length"]) == (6.0, 3.0)
    assert np.isfinite(values["version_lag"])
