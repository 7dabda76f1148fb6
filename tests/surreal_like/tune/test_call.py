"""The package `surreal_like.tune` is called like a function; wrong arguments are refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import surreal_like
from session.errors import ConfigError, SurrealError, UsageError
from surreal_like import tune
from surreal_like.tune.result import TuningResult
from surreal_like.tune.state import Trial
from surreal_like.tune.watch import TuneWatch

TUNING = """
algorithm: dqn
env_config: {env_name: "toy:chain"}
session_config: {evaluator: {num: 0}}
space:
  learner_config.algo.gamma: {uniform: [0.5, 0.9]}
tune: {trials: 2, min_episodes: 1, slots: 1, stop: {env_steps: 300}, report_every: 100}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "chain.yaml"
    path.write_text(TUNING)
    return path


@pytest.mark.parametrize("first", ["surreal_like.tune.space", "surreal_like"])
def test_the_name_is_the_package_whatever_is_imported_first(first: str) -> None:
    code = (
        f"import sys, {first}\n"
        "from surreal_like import tune\n"
        "import surreal_like.tune.scheduler\n"
        "print(callable(tune), tune is surreal_like.tune is sys.modules['surreal_like.tune'],\n"
        "      'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "False"]
    assert surreal_like.tune is tune


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({}, UsageError, "give one tune file"),
        ({"file": "nope.yaml"}, ConfigError, "nope.yaml"),
        ({"file": 3}, ConfigError, "3"),
        ({"overrides": {"tune.trails": 3}}, ConfigError, "did you mean tune.trials"),
        ({"overrides": ["tune.trials"]}, ConfigError, "tune.trials"),
        ({"overrides": "tune.trails=3"}, ConfigError, "did you mean tune.trials"),
        ({"retry_errors": True}, UsageError, "belongs to --resume"),
        ({"file": None, "resume": True, "folder": "none"}, UsageError, "none is no tuning"),
        ({"watch": TuneWatch}, UsageError, "TuneWatch'>, expected an object of a class"),
    ],
)
def test_wrong_arguments(
    file: Path, given: Mapping[str, Any], error: type[SurrealError], said: str
) -> None:
    words = {"file": file, **given} if given else {}
    with pytest.raises(error) as refused:
        tune(**words)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize(("status", "code"), [("stopped", 0), ("failed", 1), ("interrupted", 130)])
def test_the_result(status: str, code: int) -> None:
    best = {"trial": "trial-001", "score": 2.0, "settings": {}, "path": "trial-001"}
    trials = {"trial-000": {"state": "error"}, "trial-001": {"state": "terminated"}}
    found = TuningResult(Path("x"), {"status": status, "best": best, "trials": trials})
    assert (found.folder, found.best, found.trials) == (Path("x"), best, trials)
    assert found.exit_code == code


class Broken(TuneWatch):
    def __init__(self) -> None:
        self.started_trials: list[str] = []

    def started(self, trial: Trial) -> None:
        self.started_trials.append(trial.name)
        raise KeyError(trial.name)


@pytest.mark.slow
def test_a_tuning_goes_on_without_a_watch_that_raises(file: Path) -> None:
    watch = Broken()
    with pytest.warns(RuntimeWarning, match="Broken has failed.*trial-000"):
        found = tune(file, overrides={"tune.seed": 3}, folder=file.parent / "t", watch=watch)
    assert watch.started_trials == ["trial-000"]
    assert [each["state"] for each in found.trials.values()] == ["terminated"] * 2
    assert found.best is not None
    assert (found.folder / found.best["path"] / "config.yaml").is_file()
    assert found.exit_code == 0
    again = tune(folder=found.folder, resume=True, overrides=["tune.trials=3"])
    assert len(again.trials) == 3
    assert again.trials["trial-000"] == found.trials["trial-000"]
