"""The shipped experiment on other environments: no code, no spec, one word on the command line."""

import re
from pathlib import Path

import gymnasium
import pytest

from tests.runs.command import CARTPOLE, Train, clean

SHORT = "session_config.stop={env_steps: 3000, eval_episodes: 5}"


def newest(name: str) -> str:
    """The version of an environment that this gymnasium has."""
    # Atari has a Blackjack, too, where its package is installed.
    specs = [spec for spec in gymnasium.registry.values() if spec.namespace is None]
    versions = [spec.version for spec in specs if spec.name == name]
    return f"gym:{name}-v{max(version for version in versions if version is not None)}"


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", ["Taxi", "Blackjack"])
def test_discrete_and_tuple_observations(run_folder: Path, name: str) -> None:
    with Train(run_folder, CARTPOLE, f"env_config.env_name={newest(name)}", SHORT) as train:
        assert train.wait() == 0, train.words
    result = train.result
    assert result["env_steps"] >= 3000
    assert result["iterations"] > 0
    assert result["best_eval"]["episodes"] == 5
    assert clean(result)


@pytest.mark.slow
def test_pendulum_is_refused_in_one_line(run_folder: Path) -> None:
    with Train(run_folder, CARTPOLE, "env_config.env_name=gym:Pendulum-v1") as train:
        assert train.wait() == 2
    (line,) = [line for line in train.words.splitlines() if line.startswith("surreal-like: error:")]
    assert "discrete" in line
    assert re.search("continuous|box", line, re.IGNORECASE)
    assert "Traceback" not in train.words
    assert not run_folder.exists()
