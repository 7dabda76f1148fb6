"""The promises about the shipped example, one test for each."""

import importlib
from pathlib import Path

import pytest

from session.config import Config
from session.default_configs import BASE_CONFIG
from session.extension import leaves
from session.service import Service
from surreal_like.algorithm.dqn import DQN
from surreal_like.algorithm.registry import find_algorithm
from surreal_like.experiment import read_experiment, resolve
from surreal_like.run import Run
from tests.api.stage import Stage

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "configs" / "cartpole_dqn.yaml"


def test_G1_dqn_on_cartpole_is_a_full_example(run: Run) -> None:
    assert find_algorithm("dqn") is DQN
    assert (ROOT / "surreal_like" / "algorithm" / "dqn.py").is_file()
    result = run.result
    assert (result["algorithm"], result["env_name"]) == ("dqn", "gym:CartPole-v1")
    assert (result["status"], result["iterations"]) == ("stopped", 60)
    assert result["experience"]["pushed"] == result["experience"]["inserted"] > 0


@pytest.mark.parametrize(
    "name", ["learner", "agent-0", "replay-0", "ps", "eval-0", "tensorplex", "loggerplex"]
)
def test_G2_shared_main_functions_make_every_component(stage: Stage, name: str) -> None:
    component = stage.topology.component(name)
    module = importlib.import_module(component.module)
    assert module.__name__ == f"main.{component.kind}"
    stage.start(*{"ps", name})
    service = stage.service(name)
    assert isinstance(service, Service)
    service.tick()


def test_G3_the_example_s_config_extends_the_defaults() -> None:
    user = Config.load_file(EXAMPLE)
    assert set(user) == {"algorithm", "learner_config", "env_config", "session_config"}
    config = resolve(read_experiment(EXAMPLE))
    given, resolved = leaves(user), leaves(config)
    for path, value in given.items():
        # A number in place of a schedule is its start.
        assert resolved[path if path in resolved else f"{path}.start"] == value
    # An empty mapping among the defaults is one that others fill.
    empty = {path for path, value in leaves(BASE_CONFIG).items() if value == {}}
    assert set(leaves(BASE_CONFIG)) - empty <= set(resolved)
    assert len(given) < len(resolved) / 3, "it holds what differs"
