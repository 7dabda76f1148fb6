"""Every shipped experiment is planned as it stands; those that take seconds learn."""

import importlib
from pathlib import Path

import numpy as np
import pytest

import docs.generate  # noqa: F401
from session import nest
from session.config import Config
from surreal_like import RecordingWriter
from surreal_like.addons.tuning.trial import new_request
from surreal_like.addons.tuning.tune_file import check_experiment, read_tune_file
from surreal_like.algorithm.catalog import list_algorithms
from surreal_like.data.spec import parse_action_spec, parse_obs_spec
from surreal_like.experiment.resolve import resolve
from surreal_like.run.request import RunRequest
from tests.runs.command import ROOT, Train, clean

ALL = sorted((ROOT / "configs").glob("*.yaml"))
TUNINGS = [path for path in ALL if "\ntune:" in path.read_text()]
CONFIGS = [path for path in ALL if path not in TUNINGS]
# docs/generate.py has put the folder of benchmarks on the path.
ROWS = importlib.import_module("milestones").ROWS
# Experiments whose check builds the environment -> the package that has it.
PACKAGES = {"fetchreach_sac": "gymnasium_robotics"}
PACKAGES |= dict.fromkeys(("simple_spread_ppo", "speaker_listener_ppo"), "mpe2")
MILESTONES = {row.config for row in ROWS}
RECORDED = importlib.import_module("recorded")
# Shown elsewhere: by the tests of runs, and by benchmarks, for they take minutes and more.
ELSEWHERE = {"cartpole_browser", "cartpole_dqn", "cartpole_remote"}
ELSEWHERE.add("lunarlander_ppo")
# By `make learn-multi`; here run one of two algorithms, one against an opponent.
ELSEWHERE |= {"multi_cartpole_ppo", "multi_cartpole_impala", "rps_heuristic_lstm", "rps_league"}
ELSEWHERE |= {"simple_spread_ppo", "speaker_listener_ppo", "tictactoe_league", "connect_four_ppo"}
# By `make learn`; here run others of the same algorithms.
ELSEWHERE |= {"acrobot_dqn", "acrobot_ppo", "cartpole_rainbow", "memory_a3c", "memory_impala"}
ELSEWHERE.add("pendulum_td3")
# Each starts a process that looks at its environment: at once is checked one of each algorithm,
# that of a small environment where there is one.
SMALL_LAST = sorted(CONFIGS, key=lambda path: path.stem.startswith(("cartpole", "pendulum")))
BY_ALGORITHM = {path.stem.rpartition("_")[2]: path for path in SMALL_LAST}
QUICK = [BY_ALGORITHM[name] for name in list_algorithms()]


def need_packages(path: Path) -> None:
    """Skips the test of an experiment whose package is not installed."""
    if path.stem in PACKAGES:
        pytest.importorskip(PACKAGES[path.stem])


def write_recording(folder: Path, config: Path) -> None:
    """Writes some rows of the environment of an experiment."""
    env = Config.load_file(config).env_config.env_name
    with RecordingWriter.of_env(folder, env) as writer:
        obs = [part.zeros(1001) for part in nest.leaves(parse_obs_spec(writer.specs["obs_spec"]))]
        action = parse_action_spec(writer.specs["action_spec"]).array.zeros(1000)
        writer.add(obs[0], action, np.zeros(1000), truncated=True)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=() if path in QUICK else pytest.mark.slow)
        for path in CONFIGS
    ],
)
def test_a_shipped_experiment_has_a_goal_and_a_budget(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log there
    need_packages(path)
    needed = RECORDED.needed_by(path)
    for name in needed:
        write_recording(tmp_path / name, path)
    stop = resolve(RunRequest(path).read()).session_config.stop
    compared = {row.config for row in ROWS if row.goal is None}
    compared.add("rps_league")
    goal = stop.eval_return is not None or stop.metric is not None or bool(stop.eval_returns)
    assert goal != (path.stem in compared)
    assert stop.iterations if needed else stop.env_steps
    assert stop.seconds
    assert path.stem.rpartition("_")[2] in path.read_text()


@pytest.mark.parametrize("path", TUNINGS, ids=lambda path: path.stem)
@pytest.mark.usefixtures("quick")
def test_a_shipped_tuning_fits_its_experiment(path: Path) -> None:
    file = read_tune_file(path)
    check_experiment(file, new_request(file, file.settings()[0], 0).resolve().config)


@pytest.mark.slow
@pytest.mark.timeout(2000)
@pytest.mark.parametrize("name", sorted({path.stem for path in CONFIGS} - ELSEWHERE - MILESTONES))
def test_a_policy_is_learned(name: str, run_folder: Path) -> None:
    # The budget of environment steps decides: one of seconds would measure the machine.
    path, budget = ROOT / "configs" / f"{name}.yaml", "session_config.stop.seconds=null"
    need_packages(path)
    # `make learn` shows that CartPole reaches 475 and Pendulum -165: the last part takes longest.
    goals = {"cartpole": 195, "pendulum": -400}
    easier = goals.get(name.partition("_")[0])
    goal = [f"session_config.stop.eval_return={easier}"] if easier else []
    with Train(run_folder, str(path), "--quiet", budget, *goal) as train:
        assert train.wait(1900) == 0, train.words
    assert train.result["goal_met"] is True
    # A row of a3c is the gradient of many steps.
    assert clean(train.result, fewer_rows=name.endswith("_a3c"))
