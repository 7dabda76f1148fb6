"""The promises about the session, one test for each."""

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch

from session.addons.analysis.dashboard import Dashboard
from session.config import Config
from session.config.sections import sections_of
from session.folder import RunFolder
from surreal_like import AgentMode
from surreal_like.algorithm.dqn import DQNAgent
from surreal_like.env import make_env
from surreal_like.run.train import Run
from tests.api.parts import Doubled, MyEnv
from tests.api.stage import Stage
from tests.session.fake_run import FakeRun


def test_a_session_is_a_set_of_components(
    make_stage: Callable[[Config], Stage], config: Config
) -> None:
    """Two runs live side by side in one process, and share nothing."""
    first, second = make_stage(config), make_stage(config)
    for stage in (first, second):
        stage.start("loggerplex", "tensorplex", "ps", "replay-0", "learner", "agent-0")
        stage.service("learner")
    learners = [stage.service("learner")._learners.learner for stage in (first, second)]
    first.until(lambda: learners[0].iteration > 2)
    assert learners[1].iteration == 0
    second.until(lambda: learners[1].iteration > 2)
    names = [component.name for component in first.topology]
    assert names == [*first.frames, "eval-0"]


def test_training_only_wrappers_and_arguments_are_absent_in_evaluation() -> None:
    env_config = {
        "env_name": "tests.api.parts:MyEnv",
        "env_args": {"length": 3},
        "eval_mode": {"length": 7},
        "wrappers": [{"wrapper": "tests.api.parts:Doubled", "training_only": True}],
    }
    training, evaluation = make_env(env_config), make_env(env_config, evaluation=True)
    assert isinstance(training, Doubled)
    assert type(evaluation) is MyEnv
    lengths = []
    for env in (training, evaluation):
        env.reset()
        lengths.append(next(step for step in range(1, 10) if env.step(0)[2]))
    assert lengths == [3, 7]


def test_agents_take_the_best_action_in_evaluation(config: Config) -> None:
    torch.manual_seed(0)
    agents = {
        mode: DQNAgent(**sections_of(config), agent_id=0, agent_mode=mode) for mode in AgentMode
    }
    network = agents[AgentMode.training].q_network
    for agent in agents.values():
        agent.q_network.load_flat(network.read_flat())
    obs = torch.tensor(np.random.default_rng(0).normal(size=(2000, 4)), dtype=torch.float32)
    best = network(obs).argmax(1).numpy()
    other = {mode: float((agent.act(obs) != best).mean()) for mode, agent in agents.items()}
    assert other[AgentMode.eval_deterministic] == 0.0
    assert other[AgentMode.training] == pytest.approx(0.5, abs=0.05)  # epsilon is 1
    assert 0.0 < other[AgentMode.eval_stochastic] < 0.05


def test_evaluation_is_a_process_of_its_own_and_may_be_rare(
    make_stage: Callable[[Config], Stage], config: Config, run: Run
) -> None:
    assert "eval-0" in run.result["components"]
    kinds = json.loads((run.folder / "topology.json").read_text())["components"]
    assert [each["module"] for each in kinds if each["name"] == "eval-0"] == ["main.evaluator"]
    config = config.copy()
    config.session_config.evaluator.interval_seconds = 0.5
    stage = make_stage(config)
    stage.start("ps", "replay-0", "learner", "agent-0", "eval-0")
    judge = stage.service("learner").coordinator.record.judge
    first = stage.until(lambda: judge.last)
    at = stage.clock.now()
    stage.until(lambda: judge.last is not first)
    assert stage.clock.now() - at >= 0.5


def test_a_dashboard_shows_the_components(run: Run) -> None:
    board = Dashboard(FakeRun(RunFolder(run.folder)))
    table = board.table()
    assert "learner" in table
    assert "agent-0" in table
    assert board.numbers()["iteration"] == run.result["iterations"]
    assert callable(board.show)
