"""Search by Optuna: proposals follow scores, are repeatable, and survive a lost journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session.errors import ConfigError
from surreal_like.addons.tuning.optuna_search import JOURNAL, OptunaSearch
from surreal_like.addons.tuning.space_and_mutation import Space
from surreal_like.addons.tuning.state import Trial, TrialState
from surreal_like.addons.tuning.tune_file import read_tune_file

optuna = pytest.importorskip("optuna", reason="needs Optuna, extra tune")
SPACE = Space.of(
    {
        "a.x": {"uniform": [0.0, 1.0]},
        "a.rate": {"loguniform": [1e-5, 1e-1]},
        "a.n": {"randint": [16, 260], "step": 16},
        "a.many": {"lograndint": [1, 1000]},
        "a.step": {"uniform": [0.0, 0.3], "step": 0.1},
        "a.sizes": {"choice": [[64], [64, 64]]},
        "a.on": {"ordered": [1, 2, 4]},
    }
)


def make(folder: Path, trials: list[Trial], **more: Any) -> OptunaSearch:
    folder.mkdir(exist_ok=True)
    options: dict[str, Any] = {
        "seed": 0,
        "mode": "max",
        "startup_trials": 5,
        "several": False,
        "note": print,
    }
    return OptunaSearch(folder, SPACE, trials, **{**options, **more})


def score(settings: dict[str, Any]) -> float:
    return -abs(float(settings["a.x"]) - 0.7)


def run(folder: Path, num: int, **more: Any) -> list[Trial]:
    trials = [Trial(f"trial-{number:03}", {}) for number in range(num)]
    search = make(folder, trials, **more)
    sign = -1.0 if more.get("mode") == "min" else 1.0
    for number, trial in enumerate(trials):
        trial.settings = search.ask(number)
        search.report(number, 100.0, 0.0)
        search.report(number, 100.0, 0.5)
        search.report(number, 200.0, float("nan"))
        trial.score, trial.state = sign * score(dict(trial.settings)), TrialState.terminated
        search.finish(number, trial)
    return trials


def test_the_study_keeps_a_bounded_number_of_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surreal_like.addons.tuning.optuna_search.REPORTS_LIMIT", 3)
    trials = [Trial("trial-000", {})]
    search = make(tmp_path, trials)
    search.ask(0)
    for time in range(9):
        search.report(0, float(time), 0.5)
    assert search._study.trials[0].intermediate_values == {0: 0.5, 1: 0.5, 2: 0.5}


def test_settings_lie_in_the_space(tmp_path: Path) -> None:
    for trial in run(tmp_path / "a", 12):
        found = trial.settings
        assert list(found) == list(SPACE.dimensions)
        assert 0 <= found["a.x"] <= 1
        assert 1e-5 <= found["a.rate"] <= 1e-1
        assert found["a.n"] in range(16, 261, 16)
        assert found["a.many"] in range(1, 1001)
        assert min(abs(found["a.step"] - 0.1 * step) for step in range(4)) < 1e-9
        assert found["a.sizes"] in ([64], [64, 64])
        assert found["a.on"] in (1, 2, 4)
    study = optuna.load_study(
        study_name="tuning",
        storage=optuna.storages.JournalStorage(
            optuna.storages.journal.JournalFileBackend(str(tmp_path / "a" / JOURNAL))
        ),
    )
    assert [each.state.name for each in study.trials] == ["COMPLETE"] * 12
    assert study.trials[0].intermediate_values == {100: 0.0}


def test_proposals_are_repeatable(tmp_path: Path) -> None:
    first, again, other = (run(tmp_path / f"{i}", 8, seed=i // 2) for i in range(3))
    assert [each.settings for each in first] == [each.settings for each in again]
    assert first[0].settings != other[0].settings


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["max", "min"])
def test_proposals_improve(tmp_path: Path, mode: str) -> None:
    trials = run(tmp_path / "a", 30, mode=mode)
    early, late = (
        sum(score(dict(each.settings)) for each in part) for part in (trials[:10], trials[20:])
    )
    assert late > early + 1


@pytest.mark.parametrize("lost", [False, True])
def test_a_study_goes_on(tmp_path: Path, lost: bool) -> None:
    trials = run(tmp_path / "a", 8)
    trials[6].state, trials[7].state = TrialState.error, TrialState.pending
    if lost:
        (tmp_path / "a" / JOURNAL).unlink()
    search = make(tmp_path / "a", [*trials, Trial("trial-008", {})])
    assert search.ask(7) == trials[7].settings
    assert search.ask(7) == trials[7].settings
    assert search.ask(8) == search.ask(8)
    search.finish(8, Trial("trial-008", {}, TrialState.terminated))
    states = [each.state.name for each in search._study.trials]
    middle = ["FAIL", "RUNNING"] if lost else ["COMPLETE", "COMPLETE"]
    assert states == ["COMPLETE"] * 6 + middle + ["FAIL"]


def test_a_full_disk_does_not_end_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials, notes = run(tmp_path / "a", 8), list[str]()
    trials[5].state = TrialState.error
    undisturbed = make(tmp_path / "b", trials, note=notes.append)
    search = make(tmp_path / "a", trials, note=notes.append)
    assert not notes

    def full(self: Any, logs: Any) -> None:
        raise OSError(28, "No space left on device")

    journal = optuna.storages.journal.JournalFileBackend
    with monkeypatch.context() as patch:
        patch.setattr(journal, "append_logs", full)
        trials.append(Trial("trial-008", {}))
        trials[8].settings = search.ask(8)
        search.report(8, 100.0, 0.5)
        trials[8].score, trials[8].state = 0.0, TrialState.terminated
        search.finish(8, trials[8])
        # A tuning begins on it, too.
        make(tmp_path / "c", trials, note=notes.append)
    assert trials[8].settings == undisturbed.ask(8)
    states = [each.state.name for each in search._study.trials]
    assert states == ["COMPLETE"] * 5 + ["FAIL"] + ["COMPLETE"] * 3
    line = (
        "optuna.journal cannot be written, the search goes on without it: [Errno 28] No space "
        "left on device"
    )
    assert notes == [line, line]
    # A resumed tuning makes the file again.
    assert not (tmp_path / "a" / JOURNAL).exists()
    assert len(make(tmp_path / "a", trials, note=notes.append)._study.trials) == 9
    assert (tmp_path / "a" / JOURNAL).exists()
    assert len(notes) == 2


@pytest.mark.parametrize(
    "text", ['{"op_code": 0}\n', "no JSON at all\n", '"a text"\n', '{"op_code": "x"}\n[]\n']
)
def test_a_journal_that_cannot_be_read_is_named_so(tmp_path: Path, text: str) -> None:
    trials, notes = run(tmp_path / "a", 6), list[str]()
    (tmp_path / "a" / JOURNAL).write_text(text)
    search = make(tmp_path / "a", trials, note=notes.append)
    assert len(notes) == 1
    assert notes[0].startswith("optuna.journal cannot be read, the search goes on without it: ")
    assert [each.state.name for each in search._study.trials] == ["COMPLETE"] * 6


def test_a_killed_tuner_leaves_half_a_line_and_a_lock(tmp_path: Path) -> None:
    trials = run(tmp_path / "a", 6)
    journal = tmp_path / "a" / JOURNAL
    journal.write_bytes(journal.read_bytes()[:-9])
    journal.with_name(f"{JOURNAL}.lock").symlink_to("runs/a/optuna.journal")
    search = make(tmp_path / "a", trials)
    assert [each.state.name for each in search._study.trials] == ["COMPLETE"] * 6
    search.ask(6)
    assert len(make(tmp_path / "a", trials)._study.trials) == 7


FILE = """
algorithm: ppo
space: {learner_config.algo.gamma: {uniform: [0.5, 1.0]}}
tune: {search: tpe, stop: {env_steps: 1000}}
"""


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("space={learner_config.algo.gamma: {grid: [0.5]}}", "gamma is a grid; use choice"),
        ("tune.scheduler=pbt", "does not go with tune.scheduler: pbt"),
        ("space={}", "space is empty"),
        ("tune.tpe.startup_trials=-1", "startup_trials is -1, expected 0 or more"),
    ],
)
def test_wrong_files(tmp_path: Path, word: str, message: str) -> None:
    (tmp_path / "a.yaml").write_text(FILE)
    assert read_tune_file(tmp_path / "a.yaml").settings() == [{}] * 8
    with pytest.raises(ConfigError, match=message):
        read_tune_file(tmp_path / "a.yaml", [word])
