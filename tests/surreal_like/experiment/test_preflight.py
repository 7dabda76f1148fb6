"""What a component would refuse after the start is refused before it; bugs are left to the run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from session.config import Config
from session.errors import ConfigError
from surreal_like.algorithm.dqn import DQN, DQNAgent, DQNLearner
from surreal_like.experiment.preflight import check_device, rehearse
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve

FIFO = "FIFOReplay"


@pytest.fixture(scope="module")
def resolved() -> Config:
    return resolve(read_experiment(None, algorithm="dqn", env_name="toy:chain"))


@pytest.mark.parametrize(
    ("section", "key", "value", "said"),
    [
        ("learner_config.algo.epsilon", "kind", "linaer", "algo.epsilon.kind is 'linaer'"),
        ("learner_config.algo.target", "mode", "sotf", "expected hard or soft"),
        ("learner_config.model", "activation", "rleu", "expected one of elu"),
        ("learner_config.model", "hidden_sizes", ["a"], "expected widths of 1 or more"),
        ("learner_config.model", "hidden_sizes", [64, 0], "expected widths of 1 or more"),
        ("learner_config.replay", "capacity", 10, "sampling would never start"),
        ("learner_config.replay", "type", "no.such:Replay", "No module named 'no'"),
        ("learner_config.replay", "type", "os.path:join", "extends surreal_like.Replay"),
        ("learner_config.replay", "type", "nothing", "package.module:Class"),
        ("learner_config", "device", "gpu", "expected auto, cpu, cuda"),
        ("session_config.agent", "fetch_parameter_mode", "often", "expected episode"),
    ],
)
def test_a_setting_is_refused(
    resolved: Config, section: str, key: str, value: object, said: str
) -> None:
    config = resolved.copy()
    place: Any = config
    for part in section.split("."):
        place = place[part]
    place[key] = value
    with pytest.raises(ConfigError) as error:
        rehearse(config, DQN, starts_here=True)
    assert said in str(error.value)


def test_what_is_right_passes_and_draws_no_random_number(resolved: Config) -> None:
    before = torch.random.get_rng_state()
    rehearse(resolved, DQN, starts_here=True)
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_config_stays_as_it_is(resolved: Config) -> None:
    before = resolved.to_dict()
    rehearse(resolved, DQN, starts_here=True)
    assert resolved.to_dict() == before
    assert resolved.learner_config.device == "auto"


def test_a_bug_is_left_to_the_run(resolved: Config) -> None:
    class Broken(DQNLearner):
        def __init__(self, **configs: Any) -> None:
            raise KeyError("a bug in an algorithm")

    class WithBug(DQN):
        learner = Broken

    rehearse(resolved, WithBug, starts_here=True)


def test_a_device_must_be_here_only_where_the_learner_will_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    check_device("cuda", must_be_here=True)
    check_device("cuda:0", must_be_here=True)
    with pytest.raises(ConfigError, match="1 CUDA devices here"):
        check_device("cuda:1", must_be_here=True)
    check_device("cuda:7", must_be_here=False)
    check_device("auto", must_be_here=True)


def test_learners_that_learn_together_have_a_device_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in ("cuda", "auto"):
        check_device(name, must_be_here=True, ranks=2)
        with pytest.raises(ConfigError, match="num is 3, but torch finds 2 CUDA devices here"):
            check_device(name, must_be_here=True, ranks=3)
        check_device(name, must_be_here=False, ranks=3)
    with pytest.raises(ConfigError, match="two learners on one device wait for each other"):
        check_device("cuda:0", must_be_here=True, ranks=2)
    check_device("cpu", must_be_here=True, ranks=9)


class LearnsItself(DQNLearner):
    """Changes its parameters where no other learner sees it."""

    def learn(self, batch: Any) -> Any:
        return {}


class Own(DQN):
    learner = LearnsItself


@pytest.mark.parametrize(
    ("algorithm", "changed", "words"),
    [
        (DQN, {"batch_size": 31}, "31, which 2 learners cannot share equally: set it to 30 or 32"),
        (DQN, {"batch_size": 1}, "batch_size is 1, which 2 learners .* set it to 2"),
        (Own, {}, r"LearnsItself has a learn\(\) of its own"),
    ],
)
def test_learners_that_cannot_learn_together_are_refused(
    resolved: Config, algorithm: Any, changed: dict[str, Any], words: str
) -> None:
    config = resolved.copy()
    config.learner_config.replay.update({"batch_size": 32} | changed)
    rehearse(config.copy(), algorithm, starts_here=True)
    config.session_config.learner.num = 2
    with pytest.raises(ConfigError, match=f"session_config.learner.num is 2.*{words}"):
        rehearse(config, algorithm, starts_here=True)


class Patient(DQNAgent):
    """Waits for the version that follows each of its chunks."""

    def __init__(self, **configs: Any) -> None:
        super().__init__(**configs)
        self.synchronous = True


class PatientDQN(DQN):
    agent = Patient


class UnrollLearner(DQNLearner):
    """Would learn from batches of any kind."""

    def learn(self, batch: Any) -> Any:
        return {}


class OnUnrolls(PatientDQN):
    learner = UnrollLearner
    replay = FIFO


def waiting(resolved: Config, *, agents: int, shards: int, batch_size: int, every: int = 1) -> None:
    config = resolved.copy()
    config.session_config.agent.num = agents
    config.learner_config.algo.n_step = 1
    replay = {"replay_shards": shards, "batch_size": batch_size, "type": FIFO, "min_size": 1}
    config.learner_config.replay.update(replay | {"samples_per_insert": 0.0})
    config.learner_config.parameter_publish.every = every
    rehearse(config, OnUnrolls, starts_here=True)


def test_any_agents_that_would_wait_for_ever_are_refused(resolved: Config) -> None:
    waiting(resolved, agents=4, shards=1, batch_size=32)
    waiting(resolved, agents=5, shards=2, batch_size=24)
    with pytest.raises(ConfigError, match=r"32 streams .* 3 agents x 8 .* 1 .*= 24 streams"):
        waiting(resolved, agents=3, shards=1, batch_size=32)
    with pytest.raises(ConfigError, match="2 shards = 16 streams"):
        waiting(resolved, agents=4, shards=2, batch_size=24)
    with pytest.raises(ConfigError, match=r"parameter_publish\.every is 2: set it to 1"):
        waiting(resolved, agents=4, shards=1, batch_size=32, every=2)


def test_agents_that_wait_before_sampling_starts_are_refused(resolved: Config) -> None:
    config = resolved.copy()
    # 2 agents of 8 environments, chunks of 100 steps of which the newest waits for its successor.
    config.session_config.sender.flush_iteration = 100
    config.learner_config.algo.n_step = 1
    config.learner_config.replay.min_size = 16 * 99
    rehearse(config, PatientDQN, starts_here=True)
    config.learner_config.replay.min_size += 1
    with pytest.raises(ConfigError, match="min_size 1585 is more than the first chunks"):
        rehearse(config, PatientDQN, starts_here=True)
