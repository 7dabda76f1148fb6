"""The promises about agents, one test for each."""

import inspect
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from session.config import Config
from session.config.sections import sections_of
from session.loggerplex.log_client import Log
from session.process.clock import CountedClock
from session.tensorplex.metrics_client import TensorplexClient
from surreal_like import (
    Agent,
    AgentMode,
    ExpSenderWrapper,
    GymAdapter,
    Module,
    StringEnum,
    TrainingTensorplexMonitor,
    to_float_tensor,
)
from surreal_like.agent.fetcher import Fetcher
from surreal_like.agent.run_link import AgentLink
from surreal_like.algorithm.dqn import DQN, DQNAgent, DQNLearner
from surreal_like.env.environment import VectorEnv
from surreal_like.errors import SpecError
from surreal_like.experience.chunk import Chunk
from surreal_like.experiment.resolve import defaults
from surreal_like.learner.learner import Learner
from surreal_like.network.flat import read_flat
from surreal_like.run.train import Run
from tests.api.parts import Doubled, MyAgent, MyEnv, MyLearner, WideAgent
from tests.api.stage import Stage, zeros


def make_agent(
    config: Config, kind: type[Agent] = DQNAgent, mode: AgentMode | str = AgentMode.training
) -> Any:
    return kind(**sections_of(config), agent_id=0, agent_mode=mode)


def on_stage(stage: Stage, kind: type[Agent] = MyAgent) -> Any:
    """An agent of a running process."""
    agent = make_agent(stage.config, kind)
    agent.attach(AgentLink(stage.context("agent-0")))
    return agent


def publisher(stage: Stage, kind: type[Learner] = MyLearner) -> Any:
    """A learner beside a parameter server; it publishes when it is told to."""
    stage.start("ps")
    learner = kind(**sections_of(stage.config))
    learner.connect(stage.context("learner"))
    return learner


def publish(stage: Stage, learner: Any, iteration: int, *message: str) -> None:
    """Publishes, and waits until the parameter server has it."""
    served = stage.service("ps")
    stage.until(lambda: learner.publish_parameter(iteration, *message))

    def arrived() -> bool:
        learner.link.publisher.tick()
        newest = served._store.newest()
        return newest is not None and newest.version == learner.link.publisher.version

    stage.until(arrived)


# -- what an author writes -----------------------------------------------------------------------


def test_a_new_agent_extends_agent(config: Config) -> None:
    assert issubclass(DQNAgent, Agent)
    for kind in (MyAgent, DQNAgent):
        assert isinstance(make_agent(config, kind), Agent)


def test_plain_modules_are_accepted_and_buffers_travel(stage: Stage) -> None:
    class Scaled(MyLearner):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.norm = nn.BatchNorm1d(4)  # has running statistics

        def module_dict(self) -> dict[str, nn.Module]:
            return {"layer": self.layer, "norm": self.norm}

    class ScaledAgent(MyAgent):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.norm = nn.BatchNorm1d(4)

        def module_dict(self) -> dict[str, nn.Module]:
            return {"layer": self.layer, "norm": self.norm}

    learner = publisher(stage, Scaled)
    learner.norm(torch.randn(16, 4) + 5)
    publish(stage, learner, 1)
    agent = on_stage(stage, ScaledAgent)
    assert not isinstance(agent.norm, Module)
    agent.fetch_parameter()
    assert torch.equal(agent.norm.running_mean, learner.norm.running_mean)
    assert agent.norm.running_mean.abs().sum() > 0
    # The library's own networks are Modules: a flat view, hash, freeze, clone, save and load.
    network = make_agent(stage.config).q_network
    assert isinstance(network, Module)
    assert network.clone().hash() == network.hash()


def test_act_is_overridden(config: Config) -> None:
    class Always(MyAgent):
        def act(self, obs: Any) -> Any:
            return torch.ones(len(obs), dtype=torch.int64)

    assert make_agent(config, Always).act(to_float_tensor(zeros(3))).tolist() == [1, 1, 1]
    bare = make_agent(config, Agent)
    with pytest.raises(NotImplementedError):
        bare.act(to_float_tensor(zeros(1)))
    with pytest.raises(NotImplementedError):
        bare.module_dict()


def test_module_dict_names_what_is_fetched(stage: Stage) -> None:
    learner = publisher(stage)
    publish(stage, learner, 1)
    agent = on_stage(stage)
    assert list(agent.module_dict()) == ["layer"]
    agent.fetch_parameter()
    newest = stage.service("ps")._store.newest()
    assert [entry.name for entry in newest.manifest] == ["layer/weight", "layer/bias"]


def test_modules_that_do_not_agree_are_an_error_that_shows_both(stage: Stage) -> None:
    publish(stage, publisher(stage), 1)
    agent = on_stage(stage, WideAgent)
    before = read_flat(agent.module_dict())
    with pytest.raises(SpecError, match=r"it has 'layer/weight' float32 \[3, 4\].*have.*\[2, 4\]"):
        agent.fetch_parameter()
    np.testing.assert_array_equal(read_flat(agent.module_dict()), before)


def test_default_config_is_the_algorithm_s(config: Config) -> None:
    assert Agent.default_config() == {}
    assert DQNAgent.default_config() == DQNLearner.default_config()
    given = DQN.default_config()
    assert given.algo == DQNAgent.default_config().algo
    assert defaults("dqn").learner_config.algo.double is True
    assert config.learner_config.algo.n_step == given.algo.n_step != 1


# -- what a script calls -------------------------------------------------------------------------


def test_act_can_be_called_by_hand(config: Config) -> None:
    agent = make_agent(config, mode=AgentMode.eval_deterministic)
    obs = to_float_tensor(np.random.default_rng(0).normal(size=(5, 4)))
    actions = agent.act(obs)
    assert actions.shape == (5,)
    assert actions[:1] == agent.act(obs[:1])


def test_fetch_parameter_pulls_the_newest(stage: Stage) -> None:
    learner = publisher(stage)
    agent = on_stage(stage)
    assert agent.fetch_parameter() is False
    for iteration in (1, 2):
        nn.init.normal_(learner.layer.weight)
        publish(stage, learner, iteration)
    assert agent.fetch_parameter() is True
    assert torch.equal(agent.layer.weight, learner.layer.weight)
    assert agent.version == learner.link.publisher.version == 2
    assert agent.progress.iteration == 2
    assert agent.fetch_parameter() is False


def test_fetch_parameter_info_is_a_dict(stage: Stage) -> None:
    learner = publisher(stage)
    agent = on_stage(stage)
    nothing = agent.fetch_parameter_info()
    assert nothing == {"time": 0.0, "iteration": 0, "message": "", "hash": ""}
    publish(stage, learner, 1)
    assert set(agent.fetch_parameter_info()) == {"time", "iteration", "message", "hash"}
    assert agent.version == 0, "information is no parameters"


def test_the_time_of_parameters_is_that_of_the_publication(stage: Stage) -> None:
    learner = publisher(stage)
    stage.rounds(0.05)
    before = stage.clock.time()
    publish(stage, learner, 1)
    after = stage.clock.time()
    stage.rounds(0.05)
    assert before <= on_stage(stage).fetch_parameter_info()["time"] <= after


def test_the_iteration_of_parameters_is_what_the_learner_gave(stage: Stage) -> None:
    publish(stage, publisher(stage), 17)
    assert on_stage(stage).fetch_parameter_info()["iteration"] == 17


def test_the_message_of_parameters_defaults_to_empty(stage: Stage) -> None:
    learner = publisher(stage)
    agent = on_stage(stage)
    publish(stage, learner, 1)
    assert agent.fetch_parameter_info()["message"] == ""
    publish(stage, learner, 2, "batch 2")
    assert agent.fetch_parameter_info()["message"] == "batch 2"


def test_the_hash_is_that_of_the_parameters(stage: Stage) -> None:
    class FlatLearner(MyLearner):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.module = Module()
            self.module.layer = self.layer

        def module_dict(self) -> dict[str, nn.Module]:
            return {"module": self.module}

    learner = publisher(stage, FlatLearner)
    agent = on_stage(stage)
    hashes = []
    for iteration in (1, 2, 3):
        publish(stage, learner, iteration)
        hashes.append(agent.fetch_parameter_info()["hash"])
        assert hashes[-1] == learner.module.hash()
        if iteration == 2:
            nn.init.normal_(learner.layer.weight)
    assert hashes[0] == hashes[1] != hashes[2]


def scalars(stage: Stage, name: str) -> list[float]:
    """What has been reported under a tag."""
    records = stage.records("tensorplex")
    return [record["values"][name] for record in records if name in record.get("values", {})]


def test_update_tensorplex_reports_once_per_interval(stage: Stage) -> None:
    stage.listen("tensorplex")
    agent = on_stage(stage)
    for number in range(2500):  # rounds of a millisecond; the interval is a second
        agent.update_tensorplex({"my/value": float(number)})
        stage.round()
    assert scalars(stage, "my/value") == [1000.0, 2000.0]


def test_the_interval_of_reports_is_a_setting(
    make_stage: Callable[[Config], Stage], config: Config
) -> None:
    config = config.copy()
    config.session_config.tensorplex.update_schedule = 0.1
    stage = make_stage(config)
    stage.listen("tensorplex")
    agent = on_stage(stage)
    for number in range(350):
        agent.update_tensorplex({"my/value": float(number)})
        stage.round()
    assert scalars(stage, "my/value") == pytest.approx([100.0, 200.0, 300.0], abs=1.0)


def test_log_records_what_the_agent_does(stage: Stage) -> None:
    stage.start("ps", "loggerplex")
    agent = on_stage(stage)
    assert isinstance(agent.log, Log)
    agent.log.info("saw %d", 3)
    agent.log.warning("something odd")
    path = stage.folder.logs / "agent-0.log"
    stage.until(lambda: path.exists() and "odd" in path.read_text())
    text = path.read_text()
    assert "INFO" in text
    assert "saw 3" in text
    assert "WARNING" in text


def test_tensorplex_may_be_called_directly(stage: Stage) -> None:
    stage.listen("tensorplex")
    agent = on_stage(stage)
    assert isinstance(agent.tensorplex, TensorplexClient)
    for step in range(3):  # no interval here
        agent.tensorplex.add_scalar("direct", 0.5, step)
    records = [record for record in stage.records("tensorplex") if record.get("tag") == "direct"]
    assert [(r["kind"], r["id"], r["value"]) for r in records] == [("scalar", "agent/0", 0.5)] * 3
    assert [record["step"] for record in records] == [0, 1, 2]


# -- exploration, modes --------------------------------------------------------------------------


def test_exploration_is_inside_the_agent(stage: Stage) -> None:
    """The loop hands to the environment what act() returned, and changes nothing."""
    seen: list[list[int]] = []

    class Loud(DQNAgent):
        def act(self, obs: Any) -> Any:
            actions = super().act(obs)
            seen.append(actions.tolist())
            return actions

    from surreal_like.agent.loop import make_agent, make_single_service

    learner = publisher(stage, DQNLearner)
    publish(stage, learner, 1)
    stage.start(
        "agent-0",
        build=lambda c: make_single_service(c, make_agent(c, Loud, AgentMode.training)),
    )
    pull = stage.context("replay-0").wire.pull("replay-0.experience")
    message: Any = stage.until(pull.receive)
    chunk = Chunk.from_message(message)
    assert chunk.columns["action"].tolist() == seen[: len(chunk.columns["action"])]
    stage.rounds(0.1)
    counts = Counter(action for row in seen for action in row)
    assert len(counts) == 2, "epsilon is 1 at the start"


def test_training_explores_and_evaluation_does_not(config: Config) -> None:
    obs = to_float_tensor(np.random.default_rng(1).normal(size=(1, 4)))
    chosen = {}
    for mode in ("training", "eval_deterministic"):
        torch.manual_seed(0)
        agent = make_agent(config, mode=mode)
        chosen[mode] = {int(agent.act(obs)[0]) for _ in range(64)}
    assert chosen["training"] == {0, 1}
    assert len(chosen["eval_deterministic"]) == 1


def test_agents_train_and_evaluators_evaluate(stage: Stage) -> None:
    stage.start("ps", "agent-0", "eval-0")
    assert stage.service("agent-0")._sending.agent.agent_mode is AgentMode.training
    assert stage.service("eval-0")._agent.agent_mode is AgentMode.eval_deterministic


def test_the_modes_are_exactly_three() -> None:
    assert [mode.name for mode in AgentMode] == [
        "training",
        "eval_stochastic",
        "eval_deterministic",
    ]
    assert all(mode == mode.name == str(mode) for mode in AgentMode)


def test_enums_are_string_enums_declared_with_empty_tuples() -> None:
    class Weather(StringEnum):
        rain = ()
        sun = ()

    assert issubclass(AgentMode, StringEnum)
    assert Weather.rain == "rain"
    assert Weather("sun") is Weather.sun
    with pytest.raises(ValueError, match="snow"):
        Weather("snow")


def test_the_constructor_takes_five_keywords(config: Config) -> None:
    keywords = {"learner_config", "env_config", "session_config", "agent_id", "agent_mode"}
    assert set(inspect.signature(Agent).parameters) == keywords
    for mode in (AgentMode.training, "training"):
        agent = DQNAgent(**sections_of(config), agent_id=3, agent_mode=mode)
        assert agent.agent_id == 3
        assert agent.agent_mode is AgentMode.training
        assert agent.env_config.action_spec.dim == [2]
    with pytest.raises(TypeError):
        DQNAgent(config.learner_config)  # type: ignore[call-arg]


# -- the main entry ------------------------------------------------------------------------------


def test_the_env_is_wrapped_by_the_sender_then_by_the_monitor(stage: Stage) -> None:
    stage.listen("tensorplex")
    pull = stage.context("replay-0").wire.pull("replay-0.experience")
    session_config = stage.config.session_config
    env: VectorEnv = ExpSenderWrapper(
        Doubled(MyEnv()), session_config=session_config, context=stage.context("agent-0")
    )
    env = TrainingTensorplexMonitor(
        env,
        agent_id=0,
        session_config=session_config,
        separate_plots=True,
        tensorplex=stage.context("agent-0").tensorplex,
        clock=stage.clock,
    )
    env.reset()
    rewards = []
    for _ in range(1100):
        rewards.append(float(env.step(np.zeros(1, np.int64))[1][0]))
        stage.round()
    chunk = Chunk.from_message(stage.until(pull.receive))
    # Both see the rewards of the wrapper below them; returns are counted from the environment's.
    assert chunk.columns["reward"][:, 0].tolist() == [0.0, *rewards[:3]] == [0.0, 2.0, 2.0, 2.0]
    assert [episode["return"] for episode in chunk.finished] == [3.0]
    assert set(scalars(stage, "return")) == {3.0}
    [name] = {record["id"] for record in stage.records("tensorplex")}
    assert name == "agent/0"
    together = TrainingTensorplexMonitor(MyEnv(), 1, session_config, separate_plots=False)
    assert together.tensorplex.client_id == "session/agents"


def test_the_printed_loop_steps_an_environment_of_gymnasium(config: Config) -> None:
    env = GymAdapter("gym:CartPole-v1")
    agent = make_agent(config, MyAgent)
    obs, info = env.reset()
    assert isinstance(info, dict)
    tensor = to_float_tensor(obs)
    assert tensor.dtype == torch.float32
    action = int(agent.act(tensor[None])[0])
    obs, reward, terminated, truncated, info = env.step(action)
    assert obs.shape == (4,)
    assert (reward, terminated, truncated) == (1.0, False, False)
    env.close()


class Asked:
    """A parameter client that answers at once and counts how often it was asked."""

    waiting = False

    def __init__(self) -> None:
        self.asked = 0

    def ask(self, account: Any, *, patient: bool = False) -> bool:
        self.asked += 1
        return True

    def ask_info(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("mode", "fetches"), [("episode", 4), ("episode:2", 2), ("step", 12), ("step:3", 4)]
)
def test_parameters_are_fetched_after_an_episode_or_as_configured(mode: str, fetches: int) -> None:
    client, clock = Asked(), CountedClock()
    fetcher = Fetcher(client, clock, mode=mode, interval_seconds=0.0)  # type: ignore[arg-type]
    fetcher.tick()  # the first parameters
    client.asked = 0
    for step in range(12):
        clock.advance()
        fetcher.count(ended=step % 3 == 2)
        fetcher.tick()
    assert client.asked == fetches


def test_parameters_are_fetched_after_each_episode_by_default(config: Config, run: Run) -> None:
    assert config.session_config.agent.fetch_parameter_mode == "episode"
    log = Path(run.folder / "progress.jsonl").read_text()
    assert log, "parameters came: agents act only after their first ones"
    assert run.result["lag"]["max_versions"] >= 1


def test_hooks_are_called_around_each_step(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[str, Any]] = []
    for name in ("pre_action", "post_action", "pre_episode", "post_episode"):

        def hook(self: Any, *values: Any, name: str = name) -> None:
            called.append((name, values[0]))

        monkeypatch.setattr(DQNAgent, name, hook)
    monkeypatch.setattr(
        DQNAgent, "on_parameter_fetched", lambda self: called.append(("fetched", self.version))
    )
    stage.start("ps", "replay-0", "learner", "agent-0")
    stage.until(lambda: "post_episode" in dict(called))
    assert called[0] == ("fetched", 1)
    names = [name for name, _ in called if name != "fetched"]
    assert names[:3] == ["pre_episode", "pre_action", "post_action"]
    assert called[1][1].tolist() == [0, 1]
    assert names.count("pre_action") - names.count("post_action") in (0, 1)
    [ended, *_] = dict(called)["post_episode"]
    assert ended["length"] >= 1


def test_hooks_that_an_agent_does_not_override_cost_nothing(stage: Stage) -> None:
    stage.start("ps", "replay-0", "learner", "agent-0")
    assert not stage.service("agent-0")._sending.acting.hooked
