"""Tables of a tuning: columns that fit, the best trials if not all fit, and what is shown live."""

from __future__ import annotations

import io
import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from main.addons.tuning.tune import LiveTuning
from main.addons.tuning.tune_table import head_lines, summary, trial_table
from main.cli import plan
from session.errors import ConfigError, UsageError
from session.folder import RunFolder
from session.launchers.instruction import Event
from surreal_like.addons.tuning.space_and_mutation import settings_text, short_names
from surreal_like.addons.tuning.state import Trial, TrialState
from surreal_like.addons.tuning.tune_file import EXPERIMENT_FILE, read_tune_file
from surreal_like.experiment.read import read_experiment

RATE, ENTROPY = "learner_config.algo.learning_rate.start", "learner_config.algo.entropy.start"
ROOT = Path(__file__).parents[3]


def trial(number: int, score: float | None = None, **more: Any) -> Trial:
    settings = {RATE: 0.000626549123, "learner_config.algo.minibatches": 4}
    return Trial(f"trial-{number:03}", settings, score=score, best_score=score, **more)


def rows(*trials: Trial, doing: str = "") -> list[dict[str, Any]]:
    return [{**asdict(each), "doing": doing} for each in trials]


def test_a_wide_table_has_all_columns() -> None:
    loaded = trial(1, 312.4, time=30_000, generation=2, parent="trial-000", failures=1)
    lines = trial_table(rows(trial(0), loaded, doing="waits for a slot"), budget=60_000)
    for word in ("learning_rate", "minibatches", "failures", "of budget"):
        assert word in lines[0]
    for word in ("2 <- trial-000", "0.000626549", "312.4", "30,000", "━━━━━━──────", "a slot"):
        assert word in lines[2]


@pytest.mark.parametrize("width", [60, 70, 80, 90, 100, 120])
def test_a_narrow_table_leaves_columns_out(width: int) -> None:
    loaded = trial(1, 312.4, time=30_000, generation=2, parent="trial-000", failures=1)
    table = rows(trial(0), loaded, doing="waits for 7 trials")
    lines = trial_table(table, width=width, budget=60_000)
    assert max(map(len, lines)) <= width
    assert "312.4" in lines[2]
    assert "2 <- " in lines[2]


@pytest.mark.parametrize(("mode", "names"), [("max", "4 3 2"), ("min", "1 2 3")])
def test_the_best_trials_are_shown_if_not_all_fit(mode: str, names: str) -> None:
    scored = [trial(number, float(number)) for number in range(1, 5)]
    lines = trial_table(rows(trial(0), *scored), height=5, mode=mode)
    assert [line.split()[0] for line in lines[1:4]] == [f"trial-00{each}" for each in names.split()]
    assert lines[4:] == ["2 more"]
    assert len(trial_table(rows(trial(0), *scored), height=6, mode=mode)) == 6


def test_short_names_are_unique() -> None:
    alone = short_names([RATE, ENTROPY, "learner_config.algo.gamma"])
    assert list(alone.values()) == ["learning_rate", "entropy", "gamma"]
    both = short_names([RATE, RATE.replace(".start", ".end")])
    assert list(both.values()) == ["learning_rate.start", "learning_rate.end"]
    alike = short_names(["learner_config.algo.size", "learner_config.replay.size"])
    assert list(alike.values()) == ["algo.size", "replay.size"]
    assert settings_text({RATE: 0.00353059123, "a.n": 8}) == "learning_rate=0.00353059,n=8"


def test_the_head_counts_states_slots_and_exploits() -> None:
    trials = [trial(0, 5.0, generation=2), trial(1, 7.0, state=TrialState.terminated)]
    states, more = head_lines(rows(*trials), 3, 1, "max")
    assert states == "1 of 2 trials over: 1 pending, 1 terminated"
    assert more.startswith("slots 0 of 3 · 2 exploits, 1 skipped · best 7.0 trial-001 · ")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_live_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    stream, file = Terminal(), read_tune_file(ROOT / "configs" / "cartpole_pbt.yaml")
    live = LiveTuning(stream, time.time(), file)
    live.prepare(Path("runs/x"))
    live.begin(RunFolder("runs/x"), file.to_config())
    trials = rows(*(trial(number, float(number)) for number in range(40)))
    live.on_components({each["name"]: each for each in trials})
    text = stream.getvalue()
    assert "trial-039" in text
    assert "24 more" in text
    assert "trial-023" not in text
    live.on_event(Event("trial-000", "skipped", "no checkpoint"))
    live.on_event(Event("trial-001", "running"))
    live.on_event(Event("trial-002", "pending", "out of luck"))
    live.end()
    assert "trial-000: skipped: no checkpoint" in stream.getvalue()
    assert "trial-001: running" not in stream.getvalue()
    assert "trial-002: pending: out of luck" in stream.getvalue()


def test_lines_at_the_end_can_be_pasted(tmp_path: Path) -> None:
    file = read_tune_file(ROOT / "configs" / "cartpole_pbt.yaml", ["learner_config.algo.gamma=.9"])
    entry = {**asdict(trial(0, 9.5)), "env_steps": 4000}
    lost = {**asdict(trial(1)), "env_steps": None, "state": "error", "reason": "no luck"}
    best = {"trial": "trial-000", "score": 9.5, "settings": entry["settings"], "path": "trial-000"}
    result = {
        "status": "stopped",
        "reason": "all trials have ended",
        "trials": {"trial-000": entry, "trial-001": lost},
        "best": best,
        "exploits": 3,
        "skipped": 0,
        "cpu_seconds": 12.4,
        "seconds": 30.0,
    }
    text = "\n".join(summary(Path("runs/a"), result, file))
    assert "4,000 env steps, 12 processor seconds, 3 exploits, 0 skipped" in text
    assert "best: trial-000@learning_rate=0.000626549,minibatches=4, score 9.5" in text
    assert "trial-001 was given up: no luck" in text
    line = next(each for each in text.splitlines() if each.startswith("surreal-like train"))
    assert f"{ROOT}/configs/cartpole_ppo.yaml session_config.stop.eval_return=null" in line
    for word in ("learner_config.algo.gamma=0.9", f"{RATE}=0.000626549123"):
        assert word in line
    for words in ("evaluate runs/a", "plot runs/a --lineage", "tune --replay runs/a/trial-000"):
        assert f"surreal-like {words}" in text


def test_a_line_that_trains_once_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("algorithm: dqn\n")
    (tmp_path / "tuning.yaml").write_text("experiment: mine.yaml\ntune: {stop: {env_steps: 700}}\n")
    file = read_tune_file(tmp_path / "tuning.yaml")
    assert file.train_words({"a.b": 3}, tmp_path) == [
        f"{tmp_path}/mine.yaml",
        "a.b=3",
        "session_config.stop={env_steps: 700}",
    ]
    (tmp_path / "mine.yaml").write_text("algorithm: dqn\nsession_config: {stop: {seconds: 9}}\n")
    assert read_tune_file(tmp_path / "tuning.yaml").train_words({}, tmp_path)[1:] == []


def result_with(*states: str, **own: Any) -> dict[str, Any]:
    """The result of a tuning whose trials are in these states."""
    trials = [
        {**asdict(trial(number, 1.0)), "state": state, "env_steps": 10}
        for number, state in enumerate(states)
    ]
    best = {"trial": "trial-000", "score": 1.0, "settings": {RATE: 0.1}, "path": "trial-000"}
    return {
        "status": "stopped",
        "reason": "all trials have ended",
        "trials": {each["name"]: each for each in trials},
        "best": best,
        "exploits": 0,
        "skipped": 0,
        "cpu_seconds": 1.0,
        "seconds": 1.0,
        **own,
    }


@pytest.mark.parametrize(
    ("states", "resumes", "retries"),
    [
        (["terminated"], False, False),
        (["terminated", "paused"], True, False),
        (["pending", "terminated"], True, False),
        (["terminated", "error"], False, True),
        (["error", "paused"], False, True),
    ],
)
def test_the_line_that_resumes_is_shown_if_a_trial_is_left(
    tmp_path: Path, states: list[str], resumes: bool, retries: bool
) -> None:
    file = read_tune_file(ROOT / "configs" / "cartpole_asha.yaml")
    lines = summary(Path("runs/a b"), result_with(*states), file)
    line = "go on with: surreal-like tune --resume --folder 'runs/a b'"
    assert (line in lines) == resumes
    again = "go on, also with trials given up: surreal-like tune --resume --retry-errors --folder"
    assert any(each.startswith(again) for each in lines) == retries


@pytest.mark.parametrize(
    ("exploits", "skipped", "words"),
    [(1, 2, "1 exploit, 2 skipped"), (2, 1, "2 exploits, 1 skipped"), (0, 0, "")],
)
def test_one_exploit_is_one(exploits: int, skipped: int, words: str) -> None:
    file = read_tune_file(ROOT / "configs" / "cartpole_pbt.yaml")
    result = result_with("terminated", exploits=exploits, skipped=skipped)
    text = "\n".join(summary(Path("a"), result, file))
    assert ("exploit" in text) == bool(words)
    assert words in text


def test_the_line_that_trains_is_short_after_a_resume(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "algorithm: dqn\nenv_config: {env_name: 'toy:chain', num_envs: 3}\n"
        "session_config: {stop: {env_steps: 9}}\n"
    )
    (tmp_path / "tuning.yaml").write_text("experiment: mine.yaml\ntune: {trials: 1}\n")
    folder = tmp_path / "t"
    folder.mkdir()
    begun = read_tune_file(tmp_path / "tuning.yaml")
    begun.to_config().dump_file(folder / "tune.yaml")
    begun.experiment.dump_file(folder / EXPERIMENT_FILE)
    resumed = read_tune_file(folder / "tune.yaml")
    (line,) = [
        each
        for each in summary(folder, result_with("terminated"), resumed)
        if each.startswith("surreal-like train")
    ]
    words = shlex.split(line)[2:]
    assert words == [f"{folder}/experiment.yaml", f"{RATE}=0.1"]
    # It is the experiment that the tuning has.
    user = read_experiment(words[0])
    assert (user.algorithm, user.env_config.num_envs) == ("dqn", 3)
    assert user.session_config.stop.env_steps == 9


@pytest.mark.slow
def test_the_plan_of_a_tuning(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(ROOT / "configs" / "cartpole_pbt.yaml")
    assert plan.run([file, "tune.trials=3", "tune.slots=2"]) == 0
    shown = capsys.readouterr().out
    for words in ("3, pbt, settings by random", "2, 1 cores each", "env_steps 61,440"):
        assert words in shown
    assert "trial-002" in shown
    assert "0.00353059" in shown
    with pytest.raises(UsageError, match="leave the options out"):
        plan.run([file, "--explain"])
    with pytest.raises(ConfigError, match=r"tune\.slotz"):
        plan.run([file, "tune.slotz=2"])
