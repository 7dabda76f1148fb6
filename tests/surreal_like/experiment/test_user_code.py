"""Code of the user in files: their places, whose paths may have colons, and their copies."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from session.config import Config
from session.config.named_code import in_snapshot, split_place
from session.errors import ConfigError
from session.folder import RunFolder
from surreal_like import load_policy, train
from surreal_like.addons.join.admission_client import _write as write_admission
from surreal_like.addons.join.admission_server import JoinServer
from surreal_like.addons.join.agents import experiment_of as joined_experiment
from surreal_like.addons.join.tokens import NotAdmittedError
from surreal_like.addons.tuning.tune_file import read_tune_file
from surreal_like.experiment.checkpoints import checkpoint_of
from surreal_like.experiment.user_code import keep_code, keep_file
from surreal_like.run.folder import experiment_name
from tests.session.made_run import made_config

ALGORITHM = "from surreal_like.algorithm.dqn import DQN\n\nclass Odd(DQN):\n    pass\n"
PLAN = (
    "from surreal_like.dataflow import experience, train_one_step\n\n"
    "def plan(learner):\n    return experience(learner).for_each(train_one_step(learner))\n"
)
SMALL = {
    "learner_config.replay": {"min_size": 64, "batch_size": 16, "capacity": 2000},
    "learner_config.model": {"hidden_sizes": [8]},
    "env_config.num_envs": 4,
    "session_config.sender.flush_iteration": 8,
}


@pytest.mark.parametrize(
    ("place", "file", "name"),
    [
        ("dqn", "dqn", ""),
        ("package.module:Class", "package.module", "Class"),
        ("own.py", "own.py", ""),
        ("own.py:Own", "own.py", "Own"),
        ("runs/12:30/own.py", "runs/12:30/own.py", ""),
        ("runs/12:30:59/own.py:Own", "runs/12:30:59/own.py", "Own"),
        ("", "", ""),
    ],
)
def test_a_place_is_split_at_the_colon_behind_the_file(place: str, file: str, name: str) -> None:
    assert split_place(place) == (file, name)


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with colons in its name, which has an algorithm and a plan."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    odd = tmp_path / "12:30, a=b" / "at 1:2"
    odd.mkdir(parents=True)
    (odd / "odd.py").write_text(ALGORITHM)
    (odd / "steps.py").write_text(PLAN)
    monkeypatch.chdir(odd)
    return odd


@pytest.mark.slow
@pytest.mark.parametrize(("where", "name"), [("", ""), ("./12:30/a:b/", ":Odd")])
def test_a_run_below_a_folder_with_colons_begins_goes_on_and_is_a_start(
    odd: Path, where: str, name: str
) -> None:
    mine, run = Path(where), Path("2026-11-25T10:00")
    mine.mkdir(parents=True, exist_ok=True)
    for file in ("odd.py", "steps.py"):
        shutil.copy(odd / file, mine / f"my_{file}")
    words = {
        **SMALL,
        "learner_config.execution_plan": f"{where}my_steps.py:plan",
        "session_config.import_path": [str(odd / where)],
        "session_config.stop": {"iterations": 5},
    }
    given: dict[str, Any] = {
        "algorithm": f"{where}my_odd.py{name}",
        "env": "toy:chain",
        "launcher": "serial",
        "evals": 0,
    }
    assert train(overrides=words, folder=run, **given).ok
    for file in ("my_odd.py", "my_steps.py"):
        assert (run / "code" / file).is_file()
        (mine / file).unlink()
    longer = {"session_config.stop.iterations": 10}
    assert train(launcher="serial", folder=run, resume=True, overrides=longer).ok
    assert load_policy(run, checkpoint="latest").config.algorithm.endswith(f"my_odd.py{name}")
    assert checkpoint_of(str(run)).parent.parent == run / "checkpoints"
    assert checkpoint_of(f"{run}:latest").parent.parent == run / "checkpoints"


def test_every_reader_of_a_place_finds_the_file_behind_colons(odd: Path, tmp_path: Path) -> None:
    config = made_config()
    config.algorithm = "12:30/own.py:Odd"
    config.session_config.agent.num = 1
    folder = RunFolder(tmp_path / "joined")
    folder.create()
    kept = write_admission(
        {"config": config.to_dict(), "addresses": {}, "names": []}, folder, odd / "odd.py"
    )
    assert (folder.code / "own.py").read_text() == ALGORITHM
    assert joined_experiment(kept.config, folder).algorithm == f"{folder.code / 'own.py'}:Odd"
    assert in_snapshot("12:30/none.py:Odd", folder) == "12:30/none.py:Odd"
    assert experiment_name(None, config) == "Odd-chain"

    config["recorded"] = {"algorithm_sha256": "abc"}
    server: Any = SimpleNamespace(_context=SimpleNamespace(config=config))
    with pytest.raises(NotAdmittedError, match=r"algorithm is the file 12:30/own\.py \(SHA"):
        JoinServer._check_algorithm(server, None)


def test_an_explore_function_may_lie_behind_colons(odd: Path) -> None:
    (odd / "twice.py").write_text("def twice(settings):\n    return settings\n")
    (odd / "exp.yaml").write_text("algorithm: dqn\nenv_config: {env_name: 'toy:chain'}\n")
    (odd / "t.yaml").write_text(
        "experiment: exp.yaml\nspace: {learner_config.algo.gamma: {uniform: [0.9, 0.99]}}\n"
        "tune:\n  {scheduler: pbt, trials: 2, pbt: {perturbation_interval: 100, "
        f"explore: '{odd}/twice.py:twice'}}}}\n"
    )
    file = read_tune_file(odd / "t.yaml")
    assert file.explore is not None
    assert file.explore({"a": 1}) == {"a": 1}
    folder = RunFolder(odd / "tuning:1")
    keep_file(str(file.tune.pbt.explore), folder)
    assert (folder.code / "twice.py").is_file()


# -- files of one name -----------------------------------------------------------------------------


def own_config(**recorded: Any) -> Config:
    config = made_config(session_config__launcher__snapshot=False)
    config.algorithm = "one/my.py"
    config["recorded"] = recorded
    return config


@pytest.mark.parametrize("kind", ["plan", "module", "two modules"])
def test_two_files_of_one_name_are_refused(odd: Path, kind: str) -> None:
    for name, text in (("one", "A = 1\n"), ("two", "A = 2\n")):
        (odd / name).mkdir()
        (odd / name / "my.py").write_text(text)
    config = own_config()
    if kind == "plan":
        config.learner_config.execution_plan = "two/my.py:plan"
    else:
        config["recorded"] = {"modules": {"my.py": str(odd / "two" / "my.py")}}
    if kind == "two modules":
        (odd / "three").mkdir()
        config.algorithm = "three/other.py"
        (odd / "three" / "other.py").write_text("")
        (odd / "code").mkdir()
        config.learner_config.execution_plan = "one/my.py:plan"
    with pytest.raises(ConfigError, match=r"one/my\.py and .*two/my\.py are different files"):
        keep_code(config, RunFolder(odd / "run"))
    (odd / "two" / "my.py").write_text("A = 1\n")
    keep_code(config, RunFolder(odd / "run"))


def test_another_file_in_the_place_of_a_kept_one_is_refused(odd: Path) -> None:
    folder = RunFolder(odd / "tuning")
    keep_file("odd.py:twice", folder)
    keep_file("odd.py:twice", folder)
    (odd / "other").mkdir()
    (odd / "other" / "odd.py").write_text("A = 2\n")
    with pytest.raises(ConfigError, match=r"other/odd\.py differs from .*code/odd\.py"):
        keep_file("other/odd.py:twice", folder)
    assert (folder.code / "odd.py").read_text() == ALGORITHM
