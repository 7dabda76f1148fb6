"""An agent acts in one way, and its hooks are called, wherever the library lets it act."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import main.ps
from session.process.context import Context
from surreal_like.addons.scripts.policy import Policy, make_policy
from surreal_like.addons.scripts.worker_set import RolloutWorker
from surreal_like.agent.acting import Acting
from surreal_like.agent.evaluator import EvaluatorService
from surreal_like.agent.loop import AgentService, make_agent, make_single_service
from surreal_like.algorithm.dqn import DQNAgent
from tests.addons.gateway.rig import make_stage
from tests.surreal_like.agent.rig import LearnerPeer, LineAgent, ReplayPeer, make_rig, play_alone
from tests.surreal_like.agent.test_evaluation_reporter import ControlPeer

HOOKS = ("pre_action", "post_action", "pre_episode", "post_episode")


def policy(algorithm: str = "dqn", *words: str) -> Policy:
    small = ("learner_config.model.hidden_sizes=[8]", "learner_config.device=cpu")
    return make_policy(algorithm, env="toy:chain", overrides=[*small, *words])


def by_agent() -> None:
    def build(context: Context) -> AgentService:
        return make_single_service(context, make_agent(context, LineAgent, "training"))

    with make_rig() as rig:
        rig.start("ps", main.ps.build)
        learner, replay = LearnerPeer(rig), ReplayPeer(rig)
        rig.start("agent-0", build)
        learner.publish()
        rig.until(lambda: len(replay.chunks) >= 2)


def by_evaluator() -> None:
    def build(context: Context) -> EvaluatorService:
        agent = make_agent(context, LineAgent, "eval_deterministic")
        return EvaluatorService(context, agent, play_alone)

    with make_rig() as rig:
        rig.start("ps", main.ps.build)
        learner, control = LearnerPeer(rig), ControlPeer(rig)
        rig.start("eval-0", build)
        learner.publish()
        rig.until(lambda: control.reports)


def by_gateway() -> None:
    with make_stage() as stage:
        client = stage.client()
        client.request("reset")
        client.request("step", metrics={"my/speed": 1.0})
        client.request("step", metrics={"my/speed": 2.0})
        client.request("end")


def by_policy() -> None:
    made, obs = policy(), np.eye(8, dtype=np.float32)
    made(obs[0])
    made.compute_actions(obs)


def by_rollout_worker() -> None:
    with RolloutWorker(policy(), num_envs=2, rollout_fragment_length=40) as worker:
        worker.sample()


@pytest.mark.parametrize("act", [by_agent, by_evaluator, by_gateway, by_policy, by_rollout_worker])
def test_hooks_are_called_wherever_an_agent_acts(
    act: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, Any]] = []
    for kind in (LineAgent, DQNAgent):
        for name in HOOKS:

            def hook(self: Any, *given: Any, name: str = name) -> None:
                calls.append((name, given[0]))

            monkeypatch.setattr(kind, name, hook)

        def noting(self: Any, obs: Any, original: Any = kind.act) -> Any:
            calls.append(("act", obs))
            return original(self, obs)

        monkeypatch.setattr(kind, "act", noting)
    act()
    names = [name for name, _ in calls]
    count = Counter(names)
    assert count["act"] == count["pre_action"] == count["post_action"] > 0
    assert names[:4] == ["pre_episode", "pre_action", "act", "post_action"]
    assert all(names[at - 1] == "pre_action" for at, name in enumerate(names) if name == "act")
    ended = [summary for name, given in calls if name == "post_episode" for summary in given]
    assert all(each.keys() == {"return", "length", "metrics"} for each in ended)
    # A policy sees no environment, so no end of an episode.
    assert bool(ended) == (act is not by_policy)
    if act is by_gateway:
        assert ended == [{"return": 3.0, "length": 3, "metrics": {"my/speed": 2.0}}]


def test_each_keeps_the_memory_of_its_own_streams() -> None:
    memory = ("learner_config.model.memory=gru", "learner_config.model.memory_size=4")
    agent = policy("impala", *memory).agent
    one, other = Acting(agent), Acting(agent)
    obs = np.eye(8, dtype=np.float32)
    begin, go_on = np.ones(2, np.bool_), np.zeros(2, np.bool_)
    one.act(obs[:2], begin)
    after = one.state
    other.act(obs[:3], np.ones(3, np.bool_))
    assert other.state.shape == (3, 4)
    _, extras = one.act(obs[:2], go_on)
    assert (extras["extras/memory"] == after.numpy()).all()


def test_some_streams_act_with_their_part_of_the_memory() -> None:
    memory = ("learner_config.model.memory=gru", "learner_config.model.memory_size=4")
    agent = policy("impala", *memory).agent
    acting = Acting(agent)
    acting.state = agent.initial_state(4)
    obs = np.eye(8, dtype=np.float32)
    acting.act(obs[:2], np.ones(2, np.bool_), np.array([3, 1]))
    assert acting.state.any(1).tolist() == [False, True, False, True]
    assert agent.streams.tolist() == [3, 1]
    _, extras = acting.act(obs[:1], np.zeros(1, np.bool_), np.array([1]))
    assert extras["extras/memory"].any()
