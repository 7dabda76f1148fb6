"""What people write wrong in tune files: one line with a remedy, exit code 2, nothing made."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from session.config import Config
from session.folder import RunFolder
from surreal_like.experiment.resolve_process import try_all
from tests.main.conftest import Command

pytestmark = pytest.mark.usefixtures("quick")

RATE = "learner_config.algo.learning_rate"
GAMMA = "learner_config.algo.gamma"
PBT = {"scheduler": "pbt", "pbt": {"perturbation_interval": 100}}


@dataclass(frozen=True)
class Wrong:
    """A wrong tune file: its sections, the words after it, and what the line names."""

    name: str
    said: str
    space: Any = None
    tune: Any = None
    words: tuple[str, ...] = ()


def space(name: str, key: str, entry: Any, said: str) -> Wrong:
    return Wrong(f"space: {name}", said, {key: entry})


CASES = (
    Wrong("unknown key", "did you mean tune.trials", tune={"trails": 4}),
    Wrong("unknown key of a section", "perturbation_interval", tune={"pbt": {"interval": 4}}),
    space(
        "no such key",
        "learner_config.algo.gama",
        {"uniform": [0.5, 0.9]},
        "space.learner_config.algo.gama: there is no such key; did you mean",
    ),
    space("a section", "learner_config.algo", {"choice": [1]}, "learner_config.algo"),
    space("nested", "learner_config", {"algo": {"gamma": {"uniform": [0, 1]}}}, "whole dotted key"),
    space("misspelt kind", GAMMA, {"log_uniform": [0.5, 0.9]}, "did you mean loguniform"),
    space("words", GAMMA, {"uniform": ["a", 1]}, "expected two numbers"),
    space("one bound", GAMMA, {"uniform": [0.5]}, "expected two numbers"),
    space("turned round", GAMMA, {"uniform": [0.9, 0.5]}, "low must be less than high"),
    space("logarithm of 0", GAMMA, {"loguniform": [0.0, 0.5]}, "a logarithm needs low above 0"),
    space("beyond the range", GAMMA, {"uniform": [0.5, 1.5]}, GAMMA),
    space(
        "fractions",
        "learner_config.replay.batch_size",
        {"uniform": [4.0, 8.0]},
        "use randint or lograndint",
    ),
    space("no value", GAMMA, {"choice": []}, "expected a list of values"),
    space("step of 0", GAMMA, {"uniform": [0.5, 0.9], "step": 0}, "expected a number above 0"),
    space("step of a list", GAMMA, {"choice": [0.5], "step": 1}, "step belongs to"),
    Wrong(
        "one key contains the other",
        "learner_config.replay",
        {
            "learner_config.replay": {"choice": [{"batch_size": 8}]},
            "learner_config.replay.batch_size": {"choice": [8]},
        },
    ),
    space("folder", "session_config.folder", {"choice": ["x"]}, "session_config.folder"),
    space(
        "reports",
        "session_config.learner.report_every",
        {"choice": [5.0]},
        "session_config.learner.report_every",
    ),
    space("budget", "session_config.stop.env_steps", {"choice": [5]}, "the tuning itself sets"),
    Wrong("no trials", "tune.trials is 0", tune={"trials": 0}),
    Wrong(
        "many trials",
        "10002 trials",
        {GAMMA: {"grid": [0.5, 0.6, 0.9]}},
        {"trials": 3334},
    ),
    Wrong("pbt alone", "2 trials or more", {GAMMA: {"uniform": [0.5, 0.9]}}, {**PBT, "trials": 1}),
    Wrong(
        "pbt without interval",
        "needs tune.pbt.perturbation_interval",
        {GAMMA: {"uniform": [0.5, 0.9]}},
        {"scheduler": "pbt"},
    ),
    Wrong("pbt that changes nothing", "no key of space can be changed", None, PBT),
    Wrong(
        "pbt beyond the budget",
        "no trial would ever be compared",
        {GAMMA: {"uniform": [0.5, 0.9]}},
        {"scheduler": "pbt", "pbt": {"perturbation_interval": 500}},
    ),
    Wrong(
        "pbt of more than all",
        "quantile_fraction is 0.6, expected 0 to 0.5",
        {GAMMA: {"uniform": [0.5, 0.9]}},
        {"scheduler": "pbt", "pbt": {"perturbation_interval": 100, "quantile_fraction": 0.6}},
    ),
    Wrong(
        "pbt of named policies",
        "the experiment names its policies (left, right)",
        {GAMMA: {"uniform": [0.5, 0.9]}},
        PBT,
        (
            "env_config={env_name: toy:multi_cartpole, num_envs: 2}",
            "env_config.policy_mapping={cart_0: left, cart_1: right}",
            "policies={left: {}, right: {}}",
        ),
    ),
    Wrong(
        "asha without an end",
        "needs tune.asha.max_time",
        tune={"scheduler": "asha", "stop": {"env_steps": None}},
    ),
    Wrong(
        "asha that begins at its end",
        "grace_period",
        tune={"scheduler": "asha", "asha": {"grace_period": 400}},
    ),
    Wrong(
        "asha that keeps all",
        "reduction_factor",
        tune={"scheduler": "asha", "asha": {"reduction_factor": 1}},
    ),
    Wrong("no such metric", "did you mean train.mean", tune={"metric": "train.mean_retrun_100"}),
    Wrong("metric of nothing", "there is no evaluator", tune={"metric": "eval.mean_return"}),
    Wrong(
        "never ends",
        "would never end",
        tune={"stop": {"env_steps": None}},
        words=("session_config.stop.env_steps=null",),
    ),
    Wrong(
        "a goal that nobody sets",
        "tune.stop_at_goal is true, but the experiment has no goal",
        tune={"stop_at_goal": True},
    ),
    Wrong("cores", "tune.trial_cores is 8000", tune={"trial_cores": 8000.0}),
    Wrong("memory", "tune.trial_memory_bytes", tune={"trial_memory_bytes": 10**15}),
    Wrong("launcher", "trials run on this machine", tune={"launcher": "kubernetes"}),
    Wrong("scheduler", "did you mean median", tune={"scheduler": "mediam"}),
    Wrong("budget of words", "expected a number, or null", tune={"stop": {"env_steps": "many"}}),
    Wrong("experiment that is none", "nope.yaml", words=("experiment=nope.yaml",)),
    Wrong("experiment that is a tuning", "a tuning itself", words=("experiment=tuning.yaml",)),
    Wrong(
        "tpe that is not installed", "pip install", {GAMMA: {"choice": [0.5]}}, {"search": "tpe"}
    ),
    Wrong("a folder in use", "taken is not empty", words=("--folder", "taken")),
    Wrong("two files", "give one tune file", words=("small.yaml",)),
    Wrong("replay with a file", "leave FILE and --resume out", words=("--replay", "x/trial-000")),
    Wrong("resume of none", "there is none in runs/tuning-*", words=("--resume",)),
    Wrong("changes of a new one", "belongs to --resume", words=("--allow-change", "tune.seed")),
)


@pytest.fixture
def no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolves experiments in this process."""

    class Servers:
        def close(self) -> None:
            pass

    module = "surreal_like.addons.tuning.start"
    monkeypatch.setattr(f"{module}.fork_servers", lambda *given: Servers())
    monkeypatch.setattr(f"{module}.try_forked", lambda servers, users, **own: try_all(users))
    # As if it were not installed.
    monkeypatch.setitem(sys.modules, "optuna", None)


@pytest.mark.parametrize("wrong", CASES, ids=lambda wrong: wrong.name)
def test_wrong_tune_files(wrong: Wrong, command: Command, no_servers: None) -> None:
    given = {
        "experiment": "small.yaml",
        "session_config": {"evaluator": {"num": 0}},
        "space": wrong.space or {},
        "tune": {"stop": {"env_steps": 400}, **(wrong.tune or {})},
    }
    Config(given).dump_file("tuning.yaml")
    Path("taken").mkdir()
    Path("taken/config.yaml").write_text("{}")
    before = sorted(Path.cwd().rglob("*"))
    said = command("tune", "tuning.yaml", *wrong.words)
    assert said.code == 2, said
    assert said.err.count("\n") == 1
    assert wrong.said in said.err
    assert sorted(Path.cwd().rglob("*")) == before


@pytest.mark.parametrize("word", ["tune", "plan"])
def test_trials_that_cannot_run_are_refused_before_the_start(
    command: Command, no_servers: None, quick: None, word: str
) -> None:
    given = {
        "algorithm": "impala",
        "learner_config": {"replay": {"batch_size": 12}},
        "env_config": {"env_name": "toy:chain", "num_envs": 6},
        "session_config": {"evaluator": {"num": 0}},
        "space": {"learner_config.replay.batch_size": {"grid": [12, 20]}},
        "tune": {"trials": 1, "stop": {"env_steps": 400}},
    }
    Config(given).dump_file("tuning.yaml")
    before = sorted(Path.cwd().rglob("*"))
    said = command(word, "tuning.yaml")
    assert (said.code, said.err.count("\n")) == (2, 1), said
    assert "space.learner_config.replay.batch_size has 20, which cannot run: " in said.err
    assert sorted(Path.cwd().rglob("*")) == before


@pytest.mark.parametrize(
    "words", [("train",), ("train", "--on", "serial"), ("launch",), ("check",)]
)
@pytest.mark.parametrize(
    "given",
    [
        {"experiment": "small.yaml"},
        {"algorithm": "dqn", "tune": {"trials": 2}},
        {"algorithm": "dqn", "env_config": {"env_name": "toy:chain"}, "space": {}},
    ],
)
def test_commands_for_experiments_name_the_one_for_tunings(
    command: Command, words: tuple[str, ...], given: dict[str, Any]
) -> None:
    Config(given).dump_file("my tuning.yaml")
    before = sorted(Path.cwd().rglob("*"))
    said = command(*words, "my tuning.yaml")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "my tuning.yaml is a tuning: surreal-like tune 'my tuning.yaml'" in said.err
    assert sorted(Path.cwd().rglob("*")) == before


def test_a_replay_of_no_trial(command: Command) -> None:
    said = command("tune", "--replay", "runs/x/trial-000")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "runs/x/trial-000 is no trial of a tuning" in said.err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a run", {"config.yaml": "{}"}, "is no tuning to resume"),
        ("another format", {"tuning.json": json.dumps({"format": 99})}, "has format 99"),
        ("damage", {"tuning.json": "{"}, "not the state of a tuning"),
    ],
)
def test_what_cannot_be_resumed(
    command: Command, no_servers: None, name: str, content: dict[str, str], said: str
) -> None:
    folder = Path("runs/there")
    folder.mkdir(parents=True)
    if "tuning.json" in content:
        (folder / "tune.yaml").write_text(
            Path("small.yaml").read_text() + "tune: {stop: {env_steps: 400}}\n"
        )
    for file, text in content.items():
        (folder / file).write_text(text)
    before = sorted(folder.rglob("*"))
    found = command("tune", "--resume", "--folder", str(folder))
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert said in found.err
    assert sorted(folder.rglob("*")) == before


def test_a_tuning_that_runs_is_not_resumed(command: Command, no_servers: None) -> None:
    folder = RunFolder("runs/there")
    folder.path.mkdir(parents=True)
    words = Path("small.yaml").read_text() + "tune: {stop: {env_steps: 400}}\n"
    (folder.path / "tune.yaml").write_text(words)
    (folder.path / "tuning.json").write_text("{}")
    folder.lock()
    try:
        found = command("tune", "--resume", "--folder", "runs/there")
        alone = command("train", "--resume", "--folder", "runs/there/trial-000")
    finally:
        folder.unlock()
    for said in (found, alone):
        assert (said.code, said.err.count("\n")) == (2, 1)
    assert "in use" in found.err
    assert "no run to resume" in alone.err


@pytest.mark.slow
def test_a_file_without_an_experiment(command: Command) -> None:
    Path("none.yaml").write_text("tune: {stop: {env_steps: 400}}\n")
    said = command("tune", "none.yaml")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "no algorithm: write" in said.err
