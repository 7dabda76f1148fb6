"""The promises about the options of a config, one test for each."""

import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import session.config.defaults
from session.config import Config
from session.config.config import keys_of
from session.config.merge import leaves
from session.config.sections import sections_of
from session.errors import ConfigError
from session.folder import RunFolder
from surreal_like.algorithm.dqn import DQNAgent, DQNLearner
from surreal_like.data.spec import parse_action_spec
from surreal_like.errors import SpecError
from surreal_like.replay.kinds import UniformReplay
from surreal_like.run.train import Run
from tests.api.stage import Stage, experiment
from tests.session.tensorplex.reading import curves

ROOT = Path(__file__).resolve().parents[2]


def test_an_experiment_is_three_configs(config: Config) -> None:
    for section in ("learner_config", "env_config", "session_config"):
        assert isinstance(config[section], Config)
        assert hasattr(session.config.defaults, f"BASE_{section.upper()}")
    with pytest.raises(ConfigError, match="unknown key 'evaluator_config'"):
        experiment("evaluator_config={num: 1}")


def test_learner_config_covers_model_algorithm_and_replay(config: Config) -> None:
    assert {"model", "algo", "replay"} <= set(config.learner_config)


def test_model_is_the_architecture_of_the_network() -> None:
    config = experiment("learner_config.model.hidden_sizes=[7, 9]")
    agent = DQNAgent(**sections_of(config), agent_id=0, agent_mode="training")
    shapes = [list(entry.shape) for entry in agent.q_network.manifest]
    assert [shape for shape in shapes if len(shape) == 2] == [[7, 4], [9, 7], [2, 9]]
    with pytest.raises(ConfigError, match=r"learner_config\.model\.hiden_sizes.*hidden_sizes"):
        experiment("learner_config.model.hiden_sizes=[7, 9]")


def test_algo_holds_the_hyperparameters() -> None:
    config = experiment(
        "learner_config.algo.learning_rate=7e-4",
        "learner_config.algo.gamma=0.9",
        "learner_config.algo.target.period=11",
    )
    learner = DQNLearner(**sections_of(config))
    assert learner.optimizers["optimizer"].learning_rate == 7e-4
    assert learner.target._period == 11
    assert config.learner_config.algo.gamma == 0.9


def test_replay_holds_size_and_eviction() -> None:
    config = experiment("learner_config.replay.capacity=512")
    replay = UniformReplay(**sections_of(config))
    assert replay.storage.capacity == 512
    with pytest.raises(ConfigError, match="capacity"):
        UniformReplay(**sections_of(experiment("learner_config.replay.capacity=10")))
    with pytest.raises(ConfigError, match=r"max_version_lag is 9, but it is for FIFOReplay"):
        experiment("learner_config.replay.evict_rule.max_version_lag=9")


def test_action_spec_informs_the_model_builder() -> None:
    for env, actions in (("gym:CartPole-v1", 2), ("gym:Acrobot-v1", 3)):
        config = experiment(env=env)
        learner = DQNLearner(**sections_of(config))
        assert learner.q_network.head.out_features == actions
    with pytest.raises(SpecError, match="differs from the environment"):
        experiment("env_config.action_spec={type: discrete, dim: [3]}")


def test_action_spec_type_is_continuous_or_discrete(config: Config) -> None:
    assert config.env_config.action_spec.type == "discrete"
    # DQN says at once, in one line with both sides, that it cannot act on the other kind.
    with pytest.raises(SpecError, match=r"needs discrete .* gym:Pendulum-v1 has continuous"):
        experiment(env="gym:Pendulum-v1")
    with pytest.raises(SpecError, match=r"type is 'analog': expected one of discrete"):
        parse_action_spec({"type": "analog", "dim": [2]})


def test_action_spec_dim_is_a_list(config: Config) -> None:
    from surreal_like.env.registry import derive_specs

    assert config.env_config.action_spec.dim == [2]
    _, action_spec = derive_specs({"env_name": "gym:Pendulum-v1"})
    assert action_spec["dim"] == [1]
    with pytest.raises(SpecError, match=r"dim is 2: expected a list"):
        parse_action_spec({"type": "discrete", "dim": 2})


def test_obs_spec_informs_the_model_builder() -> None:
    for env, inputs in (("gym:CartPole-v1", 4), ("gym:Acrobot-v1", 6)):
        learner = DQNLearner(**sections_of(experiment(env=env)))
        first = next(iter(learner.q_network.state_dict().values()))
        assert first.shape[1] == inputs


def test_obs_spec_has_type_and_dim_for_each_part(config: Config) -> None:
    assert config.env_config.obs_spec.type == "float32"
    assert config.env_config.obs_spec.dim == [4]
    nested = experiment(env="gym:Blackjack-v1").env_config.obs_spec
    assert set(nested) == {"0", "1", "2"}
    assert all({"type", "dim"} <= set(part) for part in nested.values())


KEYS = [
    *("agent", "evaluator", "checkpoint", "heartbeat", "stop", "ps"),
    *("replay.evict_interval", "tensorplex.update_schedule", "loggerplex.level"),
    *("sender.flush_iteration", "sender.flush_time", "sender.max_unacked_chunks"),
]


def look_up(config: Any, path: str) -> Any:
    for key in path.split("."):
        config = config[key]
    return config


def test_session_config_has_at_least_these_sections(config: Config) -> None:
    for path in KEYS:
        look_up(config.session_config, path)


def test_everything_of_a_run_is_inside_its_folder(run: Run) -> None:
    folder = RunFolder(run.folder)
    config = Config.load_file(folder.config)
    assert config.session_config.folder == str(run.folder)
    for path in (folder.tensorboard, folder.logs, folder.checkpoints, folder.alive):
        assert any(path.rglob("*")), path
    for path in (folder.result, folder.progress, folder.topology, folder.addresses):
        assert path.is_file()


def test_replay_is_a_process_of_its_own(stage: Stage) -> None:
    """It serves whoever asks, learner or not."""
    stage.start("ps", "replay-0")
    stage.service("replay-0")
    dealer = stage.context("learner").wire.dealer("replay-0.batches")
    assert dealer.request("counts").fields["counts"]["inserted"] == 0


def test_the_parameter_server_is_a_process_of_its_own(stage: Stage) -> None:
    stage.start("ps")
    dealer = stage.context("agent-0").wire.dealer("ps.requests")
    answer = dealer.request("fetch", {"policy": "default", "have": [0, 0]})
    assert answer.kind in ("empty", "not_modified")
    assert "ps" in stage.config.session_config


def test_tensorplex_has_an_update_schedule(config: Config, run: Run) -> None:
    assert config.session_config.tensorplex.update_schedule == 1.0
    recorded = Config.load_file(run.folder / "config.yaml").session_config.tensorplex
    assert recorded.update_schedule == 0.05
    assert "agent-0" in curves(run.folder / "tensorboard")


def test_loggerplex_logs_what_its_level_says(
    make_stage: Callable[[Config], Stage], config: Config
) -> None:
    config = config.copy()
    config.session_config.loggerplex.level = "warning"
    stage = make_stage(config)
    stage.start("ps", "loggerplex")
    log = stage.context("agent-0").log
    log.info("unheard")
    log.warning("heard")
    path = stage.folder.logs / "agent-0.log"
    stage.until(lambda: path.exists() and "heard" in path.read_text())
    assert "unheard" not in path.read_text()
    with pytest.raises(ConfigError, match=r"loggerplex\.level is 'warn'.*did you mean warning"):
        experiment("session_config.loggerplex.level=warn")


def test_the_sender_has_settings(stage: Stage) -> None:
    from surreal_like import ExpSenderWrapper
    from tests.api.parts import MyEnv

    sender = stage.config.session_config.sender
    assert {"flush_iteration", "flush_time", "max_unacked_chunks"} <= set(sender)
    env = ExpSenderWrapper(MyEnv(), session_config=stage.config.session_config)
    assert env._session.sender.flush_iteration == sender.flush_iteration == 4


def test_the_reference_documents_every_option() -> None:
    base = session.config.defaults.BASE_SESSION_CONFIG
    keys = keys_of(base)
    assert set(leaves(base)) <= set(keys)
    assert all(key.text.endswith(".") for key in keys.values())
    assert base.sender.flush_iteration == 100
    with pytest.raises(ConfigError, match=r"sendr.*did you mean"):
        experiment("session_config.sendr.flush_iteration=3")


def test_one_package_installs_all_of_it(run: Run) -> None:
    distribution = importlib.metadata.distribution("surreal-like")
    scripts = {entry.name: entry.value for entry in distribution.entry_points}
    assert scripts["surreal-like"] == "surreal_like.__main__:main"
    for name in (
        "session.tensorplex.metrics_server",
        "session.loggerplex.log_server",
        "surreal_like",
        "main",
    ):
        found = importlib.import_module(name).__file__
        assert found is not None
        assert Path(found).is_relative_to(ROOT)
    started = json.loads((run.folder / "topology.json").read_text())["components"]
    assert {"tensorplex", "loggerplex"} <= {each["name"] for each in started}
