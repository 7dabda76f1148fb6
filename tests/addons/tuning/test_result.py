"""The function `tune`: its result, its reports; wrong arguments are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import api_pb2, metadata

from session.errors import ConfigError, SurrealError, UsageError
from session.folder import RunFolder
from session.launchers.instruction import Event
from surreal_like import tune
from surreal_like.addons.tuning.result import (
    INTERRUPTED,
    TuningResult,
    result_of,
    write_experiment,
    write_session,
)
from surreal_like.addons.tuning.scheduler import Fifo
from surreal_like.addons.tuning.state import Trial, TrialState
from surreal_like.addons.tuning.tuning_state_machine import Tuning
from surreal_like.run.observer import RunObserver

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
        ({"watch": RunObserver}, UsageError, "RunObserver'>, expected an object of a class"),
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


def of_trials(*trials: Trial, ending: str = "", planned: bool = False) -> dict[str, Any]:
    tuning = Tuning(trials, Fifo(), slots=1)
    tuning.end(ending, planned=planned)
    tuning.skipped = 3
    return result_of(Path("nowhere"), tuning, 2.0)


def ended(number: int, score: float | None, **own: Any) -> Trial:
    given = {"state": TrialState.terminated, "score": score, **own}
    return Trial(f"trial-{number:03}", {"a.b": number}, **given)


@pytest.mark.parametrize(
    ("trials", "ending", "status", "reason"),
    [
        ([ended(0, 1.0)], "", "stopped", "all trials have ended"),
        ([ended(0, 1.0)], INTERRUPTED, "interrupted", INTERRUPTED),
        ([ended(0, None)], INTERRUPTED, "interrupted", INTERRUPTED),
        ([ended(0, 1.0)], "trial-001 was given up: x", "failed", "trial-001 was given up: x"),
        ([ended(0, None)], "", "failed", "no trial had a score: too few episodes"),
        (
            [ended(0, None), ended(1, 5.0, state=TrialState.error, reason="no env")],
            "",
            "failed",
            "1 of 2 trials were given up; the first: trial-001: no env",
        ),
    ],
)
def test_how_a_tuning_has_ended(
    trials: Sequence[Trial], ending: str, status: str, reason: str
) -> None:
    found = of_trials(*trials, ending=ending)
    assert found["status"] == status
    assert found["reason"].startswith(reason)


@pytest.mark.parametrize(
    ("score", "status", "reason"),
    [
        (1.0, "stopped", "budget of 60 seconds used"),
        (None, "failed", "budget of 60 seconds used; no trial had a score: too few episodes"),
    ],
)
def test_a_tuning_that_has_used_its_budget_ends_as_planned(
    score: float | None, status: str, reason: str
) -> None:
    paused = ended(0, score, state=TrialState.paused)
    found = of_trials(paused, ending="budget of 60 seconds used", planned=True)
    assert found["status"] == status
    assert found["reason"].startswith(reason)


def test_what_a_result_adds_up() -> None:
    trials = (
        ended(0, 1.0, generation=4, parent="trial-001", cpu_seconds=1.5),
        ended(1, 4.0, generation=1, failures=1, time=60.0, best_score=7.0, cpu_seconds=2.0),
    )
    found = of_trials(*trials)
    settings = {"a.b": 1}
    best = {"trial": "trial-001", "score": 4.0, "settings": settings, "path": "trial-001"}
    assert found["best"] == best
    sums = {name: found[name] for name in ("exploits", "skipped", "cpu_seconds", "seconds")}
    assert sums == {"exploits": 5, "skipped": 3, "cpu_seconds": 3.5, "seconds": 2.0}
    own = {
        "state": "terminated",
        "settings": settings,
        "score": 4.0,
        "best_score": 7.0,
        "time": 60.0,
        "generation": 1,
        "parent": "",
        "failures": 1,
        "reason": "",
        "cpu_seconds": 2.0,
    }
    without_run = dict.fromkeys(("env_steps", "iterations", "wall_seconds", "real_seconds"))
    assert found["trials"]["trial-001"] == own | without_run


class Broken(RunObserver):
    def __init__(self) -> None:
        self.events: list[str] = []

    def on_event(self, event: Event) -> None:
        self.events.append(str(event))
        raise KeyError(event.component)


@pytest.mark.slow
def test_a_tuning_ends_at_its_own_budget_and_at_a_goal(file: Path) -> None:
    folder = file.parent / "t"
    endless = {"tune.stop.env_steps": 10**9, "tune.slots": 2}
    found = tune(file, overrides={**endless, "tune.seconds": 4.0}, folder=folder)
    assert (found.exit_code, found.result["reason"]) == (0, "budget of 4 seconds used")
    assert [each["state"] for each in found.trials.values()] == ["paused"] * 2
    with pytest.raises(UsageError, match=r"has used its budget: tune\.seconds is 4"):
        tune(folder=folder, resume=True)
    goal = "session_config.stop={metric: return/train, above: 0.1}"
    found = tune(
        file,
        overrides=[goal, "tune.stop.env_steps=1000000000", "tune.stop_at_goal=true"],
        folder=file.parent / "goal",
    )
    assert found.exit_code == 0
    assert found.result["reason"] == "trial-000 has met its goal"
    assert [each["state"] for each in found.trials.values()] == ["terminated", "pending"]
    with pytest.raises(UsageError, match="trial-000 has met its goal"):
        tune(folder=found.folder, resume=True)


@pytest.mark.slow
def test_a_tuning_goes_on_without_a_watch_that_raises(file: Path) -> None:
    watch = Broken()
    with pytest.warns(RuntimeWarning, match="Broken has failed.*trial-000"):
        found = tune(file, overrides={"tune.seed": 3}, folder=file.parent / "t", watch=watch)
    assert watch.events == ["trial-000: running"]
    assert [each["state"] for each in found.trials.values()] == ["terminated"] * 2
    assert found.best is not None
    assert (found.folder / found.best["path"] / "config.yaml").is_file()
    assert found.exit_code == 0
    again = tune(folder=found.folder, resume=True, overrides=["tune.trials=3"])
    assert len(again.trials) == 3
    assert again.trials["trial-000"] == found.trials["trial-000"]


RATE = "learner_config.algo.learning_rate.start"


def read(folder: Path) -> Any:
    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def content(folder: Path, tag: str) -> bytes:
    plugin = read(folder).SummaryMetadata(tag).plugin_data
    assert plugin.plugin_name == "hparams"
    assert isinstance(plugin.content, bytes)
    return plugin.content


def test_a_session_has_settings_state_and_score(tmp_path: Path) -> None:
    write_experiment(RunFolder(tmp_path), [RATE, "learner_config.algo.rule"])
    found = metadata.parse_experiment_plugin_data(
        content(tmp_path / "tensorboard", metadata.EXPERIMENT_TAG)
    )
    assert [each.name for each in found.hparam_infos] == ["learning_rate", "rule"]
    assert [each.name.tag for each in found.metric_infos][:2] == ["score", "return/train"]

    settings = {RATE: 0.5, "learner_config.algo.rule": "adam", "learner_config.algo.on": True}
    trial = Trial("trial-003", settings, TrialState.terminated, time=700.0, score=12.5)
    board = tmp_path / "trial-003" / "tensorboard"
    for state, status in (("error", "STATUS_FAILURE"), ("terminated", "STATUS_SUCCESS")):
        trial.state = TrialState(state)
        # The second one replaces the first one.
        write_session(tmp_path, trial)
        assert len(list(board.iterdir())) == 1
        end = metadata.parse_session_end_info_plugin_data(
            content(board, metadata.SESSION_END_INFO_TAG)
        )
        assert api_pb2.Status.Name(end.status) == status
    start = metadata.parse_session_start_info_plugin_data(
        content(board, metadata.SESSION_START_INFO_TAG)
    )
    assert start.hparams["learning_rate"].number_value == 0.5
    assert start.hparams["rule"].string_value == "adam"
    assert start.hparams["on"].bool_value is True
    [score] = read(board).Scalars("score")
    assert (score.step, score.value) == (700, 12.5)
