"""The experiments that come with the library: found by name, described from their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from session.errors import ConfigError
from surreal_like.experiment.shipped import find_experiment, list_experiments
from surreal_like.run.request import RunRequest
from tests.add_ons import needs
from tests.main.conftest import CONFIG

ROOT = Path(__file__).resolve().parents[3]
# Beginning of an environment's name -> the extra that has its package.
EXTRAS = {
    "atari:": "atari",
    "pettingzoo:": "multi",
    "mpe2:": "multi",
    "gym:minatar": "minatar",
    "gym:minigrid": "minigrid",
    "gym:gymnasium_robotics": "robotics",
    "gym:LunarLander": "box2d",
    "gym:BipedalWalker": "box2d",
    **dict.fromkeys(("gym:HalfCheetah", "gym:Hopper", "gym:Walker2d"), "mujoco"),
}
# What else of an experiment needs one.
OTHERS = {"cartpole_browser": "gateway", "cartpole_tpe": "tune"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_file_of_configs_is_listed() -> None:
    names = [each.name for each in list_experiments()]
    assert names == sorted(path.stem for path in (ROOT / "configs").glob("*.yaml"))


def test_each_file_names_the_extra_that_it_needs() -> None:
    for each in list_experiments():
        wanted = [extra for word, extra in EXTRAS.items() if each.environment.startswith(word)]
        assert each.extra == OTHERS.get(each.name, "".join(wanted)), each.name


@pytest.mark.parametrize(
    ("name", "algorithm", "goal", "measured"),
    [
        ("cartpole_dqn", "dqn", "475", True),
        ("multi_cartpole_mixed", "ppo, dqn", "left 150, right 150", True),
        pytest.param("cartpole_remote", "dqn", "return/train 300", False, marks=needs("gateway")),
        ("halfcheetah_sac", "sac", "100,000 steps", False),
        ("halfcheetah_td3_bc", "td3", "200,000 updates", False),
        pytest.param("cartpole_pbt", "ppo", "8 trials", False, marks=needs("tuning")),
    ],
)
def test_it_is_described_by_its_file(name: str, algorithm: str, goal: str, measured: bool) -> None:
    found = {each.name: each for each in list_experiments()}[name]
    assert (found.algorithm, found.goal) == (algorithm, goal)
    assert (found.seconds is not None) is measured
    assert found.seconds is None or found.seconds > 0


def test_a_name_is_found_from_any_folder(folder: Path) -> None:
    assert find_experiment("cartpole_dqn") == ROOT / "configs" / "cartpole_dqn.yaml"


def test_a_path_is_that_of_the_user(folder: Path) -> None:
    Path("cartpole_dqn.yaml").write_text(CONFIG)
    assert find_experiment("cartpole_dqn.yaml") == Path("cartpole_dqn.yaml")


def test_a_folder_of_its_name_is_no_experiment(folder: Path) -> None:
    Path("cartpole_dqn").mkdir()
    assert RunRequest("cartpole_dqn").read().algorithm == "dqn"


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("cartpole_dqm", "did you mean cartpole_dqn?"),
        ("CartPole_DQN", "did you mean cartpole_dqn?"),
        ("configs/lunarlander_ppo.yaml", "did you mean lunarlander_ppo?"),
        ("mime", "did you mean configs/mine.yml?"),
        ("unheard", "surreal-like list experiments"),
    ],
)
def test_an_unknown_one_is_refused_with_the_nearest(word: str, nearest: str, folder: Path) -> None:
    Path("configs").mkdir()
    Path("configs/mine.yml").write_text(CONFIG)
    with pytest.raises(ConfigError) as error:
        find_experiment(word)
    assert str(error.value).startswith(f"{word}: ")
    assert nearest in str(error.value)
