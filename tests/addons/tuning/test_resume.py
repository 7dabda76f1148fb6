"""Which tuning goes on, with which settings, and what of it is restored."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from session.errors import ConfigError, UsageError
from session.folder import RunFolder
from surreal_like.addons.tuning.pbt import PopulationBased
from surreal_like.addons.tuning.start import _continue, read_given
from surreal_like.addons.tuning.state import Trial, TrialState
from surreal_like.addons.tuning.tune_file import TuneFile, read_tune_file
from surreal_like.run.folder import TUNING

GAMMA, RATE = "learner_config.algo.gamma", "learner_config.algo.learning_rate"
FILE = f"""
algorithm: dqn
env_config: {{env_name: "toy:chain"}}
space: {{{GAMMA}: {{uniform: [0.5, 0.9]}}}}
tune:
  trials: 4
  stop: {{env_steps: 400}}
  scheduler: asha
  asha: {{grace_period: 100}}
  pbt: {{perturbation_interval: 50}}
"""
PBT = "tune.scheduler=pbt"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(FILE)


def tuned(name: str, *words: str, age: float = 0.0) -> Path:
    """Returns the folder of a tuning that was made of the file with these words."""
    path = Path("runs", name)
    path.mkdir(parents=True)
    read_tune_file("mine.yaml", words).to_config().dump_file(path / "tune.yaml")
    (path / TUNING).write_text("{}")
    os.utime(path / TUNING, (1e9 - age, 1e9 - age))
    return path


def resumed(
    *words: str, file: str | None = None, folder: Path | None = None, allow: Sequence[str] = ()
) -> tuple[TuneFile, Path | None]:
    return read_given(file, words, folder, resume=True, retry_errors=False, allow_change=allow)


def test_without_a_folder_the_newest_tuning_goes_on() -> None:
    with pytest.raises(UsageError, match="no tuning to resume: there is none in runs/mine-"):
        resumed(file="mine.yaml")
    # A run is none.
    Path("runs/run-20250101-000000").mkdir(parents=True)
    Path("runs/run-20250101-000000/config.yaml").touch()
    with pytest.raises(UsageError, match=r"there is none in runs/; name one with --folder"):
        resumed()
    tuned("mine-20250101-000000", "tune.slots=3", age=1)
    tuned("mine-20240101-000000", age=2)
    other = tuned("mine-too-20250101-000000")
    found, path = resumed(file="mine.yaml")
    assert path == Path("runs/mine-20250101-000000")
    # As the file says now.
    assert found.tune.slots == 0
    assert resumed()[1] == other
    assert resumed(file="mine.yaml", folder=other)[1] == other


def test_changed_settings_are_listed_unless_they_are_allowed() -> None:
    folder = tuned("mine-20250101-000000", "tune.asha.reduction_factor=4")
    words = (
        "tune.seed=3",
        "env_config.env_name=toy:bandit",
        f"space={{{GAMMA}: {{uniform: [0.6, 0.9]}}}}",
    )
    with pytest.raises(UsageError) as refused:
        resumed(*words, file="mine.yaml")
    keys = f"env_config.env_name,space.{GAMMA}.uniform,tune.asha.reduction_factor,tune.seed"
    assert str(refused.value) == (
        f"tuning {folder} cannot go on with other settings: "
        "env_config.env_name was 'toy:chain', is 'toy:bandit', "
        f"space.{GAMMA}.uniform was [0.5, 0.9], is [0.6, 0.9], "
        "tune.asha.reduction_factor was 4.0, is 3.0, tune.seed was 0, is 3; put it back, leave the "
        f"file out to go on as recorded, or allow it: --allow-change {keys}"
    )
    allow = ["env_config.env_name", "space", "tune.asha", "tune.seed"]
    assert resumed(*words, file="mine.yaml", allow=allow)[0].tune.seed == 3
    with pytest.raises(UsageError, match=r"toy:bandit.*--allow-change env_config.env_name$"):
        resumed(*words, file="mine.yaml", allow=allow[1:])
    with pytest.raises(UsageError, match=r"tune.sede: there is no such key; did you mean tune.see"):
        resumed(allow=["tune.sede"])


def test_resources_and_budgets_may_change() -> None:
    tuned("mine-20250101-000000")
    words = ["tune.slots=2", "tune.stop.env_steps=9e3", "tune.stop.seconds=9", "tune.trials=5"]
    found, _ = resumed(*words, "tune.max_failures=0")
    assert (found.tune.trials, found.budget) == (5, 9e3)
    with pytest.raises(ConfigError, match=r"tune.trials is 3, expected 4 or more"):
        resumed("tune.trials=3")


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ([], ["tune.metric=episodes"], "tune.metric was 'train.mean_return_100', is 'episodes'"),
        ([], ["tune.mode=min"], "tune.mode"),
        ([], ["tune.time=iterations", "tune.stop.iterations=900"], "tune.time"),
        ([PBT], [f"space={{{GAMMA}: {{uniform: [0, 1]}}, {RATE}: {{choice: [1]}}}}"], "the space"),
    ],
)
def test_what_gives_scores_another_meaning_is_never_allowed(
    before: list[str], now: list[str], said: str
) -> None:
    tuned("mine-20250101-000000", *before)
    with pytest.raises(UsageError, match="begin a new tuning") as refused:
        resumed(*now, allow=["tune", "space"])
    assert said in str(refused.value)


def make_trials() -> list[Trial]:
    states = (TrialState.terminated, *[TrialState.pending] * 3)
    return [Trial(f"trial-{n:03}", {GAMMA: 0.5}, state) for n, state in enumerate(states)]


def continued(folder: Path, state: dict[str, Any], *words: str) -> tuple[list[Trial], Any]:
    file = read_tune_file("mine.yaml", words)
    trials, scheduler = make_trials(), file.scheduler()
    for run in (RunFolder(folder / each.name) for each in trials[:2]):
        run.path.mkdir()
        file.experiment.extend({"learner_config": {}, "session_config": {}}).dump_file(run.config)
    _continue(trials, scheduler, state, RunFolder(folder), file)
    return trials, scheduler


def test_a_scheduler_goes_on_if_its_settings_are_the_same() -> None:
    folder = tuned("mine-20250101-000000")
    state = {"scores": [[7.0], []], "passed": {"0": 1}}
    _, scheduler = continued(folder, state, "tune.stop.env_steps=4000")
    # A larger budget has more rungs.
    assert scheduler.rungs == (100, 300, 900, 2700)
    assert scheduler.state() == {"scores": [[7.0], [], [], []], "passed": {"0": 1}}
    scheduler.report(1, 2700.0, 1.0)


def test_a_scheduler_with_other_settings_begins_anew() -> None:
    folder = tuned("mine-20250101-000000")
    state = {"scores": [[7.0], []], "passed": {"0": 1}}
    trials, scheduler = continued(folder, state, PBT, f"space={{{GAMMA}: {{choice: [0.8]}}}}")
    assert isinstance(scheduler, PopulationBased)
    # Trials that have begun keep their settings.
    assert [each.settings[GAMMA] for each in trials] == [0.5, 0.5, 0.8, 0.8]
    assert [each.settings for each in scheduler.members] == [each.settings for each in trials]
    assert [each.finished for each in scheduler.members] == [True, False, False, False]
