"""Tune files: what is completed, and what is refused."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from session.config import Config
from session.config.named_code import as_overrides
from session.errors import ConfigError
from session.folder import RunFolder
from surreal_like.addons.tuning.reporter import TrialReporter
from surreal_like.addons.tuning.result import number_at, score_of, without_score
from surreal_like.addons.tuning.scheduler import SuccessiveHalving
from surreal_like.addons.tuning.trial import new_request, own_words
from surreal_like.addons.tuning.tune_file import TuneFile, has_goal, read_tune_file
from surreal_like.experiment.resolve import resolve
from surreal_like.experiment.user_code import keep_file
from tests.docs.examples import ROOT, write_files

EXPERIMENT = """
algorithm: dqn
learner_config: {algo: {gamma: 0.9, learning_rate: {kind: linear, start: 1e-3, steps: 9}}}
env_config: {env_name: "gym:CartPole-v1"}
session_config: {seed: 40, stop: {eval_return: 400, seconds: 60}}
"""
TUNING = """
experiment: base.yaml
learner_config: {algo: {learning_rate: {start: 2e-3}}}
space:
  learner_config.algo.gamma: {uniform: [0.5, 1.0]}
tune:
  trials: 3
  stop: {env_steps: 1e4}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(EXPERIMENT)
    (tmp_path / "my.yaml").write_text(TUNING)
    return tmp_path / "my.yaml"


def test_the_experiment_is_below_the_tune_file(path: Path) -> None:
    file = read_tune_file(path, ["learner_config.algo.batch=4", "tune.trials=2"])
    algo = file.experiment.learner_config.algo.to_dict()
    assert algo["learning_rate"] == {"kind": "linear", "start": 2e-3, "steps": 9}
    assert (algo["gamma"], algo["batch"]) == (0.9, 4)
    assert (file.name, file.tune.trials, file.tune.scheduler) == ("my", 2, "fifo")
    assert len(file.settings()) == 2


def test_what_is_written_is_read_again(path: Path, tmp_path: Path) -> None:
    file = read_tune_file(path)
    file.to_config().dump_file(tmp_path / "tune.yaml")
    again = read_tune_file(tmp_path / "tune.yaml")
    assert again.to_config() == file.to_config()
    assert again.settings() == file.settings()


def test_without_a_space_trials_differ_by_their_seed(path: Path) -> None:
    file = read_tune_file(path, ["space={}", "tune.trials=5"])
    assert file.settings() == [{}] * 5
    seeds = [new_request(file, {}, number).read().session_config.seed for number in range(5)]
    assert seeds == [40, 41, 42, 43, 44]


def test_settings_of_a_trial_replace_those_of_the_experiment(path: Path) -> None:
    file = read_tune_file(path)
    settings = {"learner_config.algo.learning_rate": 0.5, "session_config.seed": 7}
    config = new_request(file, settings, 2).read()
    assert config.learner_config.algo.learning_rate == 0.5
    assert config.session_config.seed == 7
    stop = config.session_config.stop
    assert (stop.eval_return, stop.env_steps, stop.seconds) == (400, 1e4, None)


def test_named_policies_are_tuned_too(tmp_path: Path) -> None:
    rate = "policies.left.learner_config.algo.learning_rate.start"
    path = tmp_path / "two.yaml"
    path.write_text(
        f"experiment: multi_cartpole_ppo\nspace: {{{rate}: {{grid: [0.1, 0.2]}}}}\n"
        "policies_plan: plan.py:alternate\ntune: {trials: 1, stop_at_goal: true}\n"
    )
    file = read_tune_file(path, ["policies.right.algorithm=dqn"])
    settings = file.settings()[1]
    given = new_request(file, settings, 1).read().to_dict()
    assert given["policies_plan"] == "plan.py:alternate"
    assert given["policies"]["right"] == {"algorithm": "dqn"}
    assert given["policies"]["left"]["learner_config"]["algo"]["learning_rate"]["start"] == 0.2
    said = file.train_words(settings, tmp_path)
    assert {f"{rate}=0.2", "policies.right.algorithm=dqn"} < set(said)
    assert "policies_plan=plan.py:alternate" in said
    # The goal of each policy is one, too.
    assert has_goal(new_request(file, settings, 1).read())


def test_schedulers_set_the_time_between_reports(path: Path) -> None:
    assert read_tune_file(path).report_every == 0
    words = ["tune.scheduler=asha", "tune.asha.grace_period=100"]
    file = read_tune_file(path, words)
    assert file.report_every == 100
    assert "session_config.learner.report_every=100.0" in own_words(file)
    scheduler = file.scheduler()
    assert isinstance(scheduler, SuccessiveHalving)
    assert scheduler.rungs == (100, 300, 900, 2700, 8100)
    assert read_tune_file(path, [*words, "tune.report_every=50"]).report_every == 50


GAMMA, STEPS = "learner_config.algo.gamma", "learner_config.algo.n_step"
HAS = {GAMMA: {"uniform": [0.5, 1.0]}}


@pytest.mark.parametrize(
    ("words", "entries"),
    [
        ([f"space.{STEPS}={{choice: [2, 4]}}"], {**HAS, STEPS: {"choice": [2, 4]}}),
        ([f"space.{GAMMA}={{grid: [0.5]}}"], {GAMMA: {"grid": [0.5]}}),
        ([f"space.{GAMMA}.uniform=[0.6, 0.7]"], {GAMMA: {"uniform": [0.6, 0.7]}}),
        ([f"space.{GAMMA}.mutate=false"], {GAMMA: {"uniform": [0.5, 1.0], "mutate": False}}),
        (
            [f"space.{STEPS}.ordered=[1, 3]", f"space.{STEPS}.mutate=false"],
            {**HAS, STEPS: {"ordered": [1, 3], "mutate": False}},
        ),
        (["space={}", f"space.{STEPS}={{choice: [2]}}"], {STEPS: {"choice": [2]}}),
        ([f"space.{STEPS}={{choice: [2]}}", "space={}"], {}),
        (
            as_overrides({f"space.{STEPS}": {"randint": [1, 9]}, "space.seed": {"choice": [1]}}),
            {**HAS, STEPS: {"randint": [1, 9]}, "seed": {"choice": [1]}},
        ),
    ],
)
def test_a_word_replaces_one_key_of_the_space(
    path: Path, words: list[str], entries: dict[str, Any]
) -> None:
    file = read_tune_file(path, words)
    assert file.entries == entries
    assert file.space.dimensions.keys() == entries.keys()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tune.trial=3"], "did you mean tune.trials"),
        (["spaces={}"], "unknown key spaces; did you mean space"),
        (["tune.trials=0"], "tune.trials is 0, expected 1 or more"),
        (["tune.trials=20000"], "20000 times 1 points of the grid are 20000 trials"),
        (["tune.scheduler=ahsa"], "did you mean asha"),
        (["tune.mode=best"], "expected one of max, min"),
        (["tune.stop.env_steps=0"], "tune.stop.env_steps"),
        (["tune.stop.env_steps=many"], "expected a number, or null"),
        (["tune.slots=-2"], "-1 or more"),
        (["tune.seconds=0"], r"tune\.seconds is 0, expected 0.001 or more"),
        (["tune.seconds=-3.5"], r"tune\.seconds is -3.5"),
        (["tune.seconds=an hour"], r"tune\.seconds is 'an hour', expected a number, or null"),
        (["tune.seconds=[60]"], r"tune\.seconds is \[60\], expected a number, or null"),
        (["tune.stop_at_goal=3"], r"tune\.stop_at_goal"),
        (["tune.max_failures=-2"], "-1 or more"),
        (["tune.scheduler=asha", "tune.stop.env_steps=null"], "needs tune.asha.max_time"),
        (["tune.scheduler=asha", "tune.asha.grace_period=2e4"], "grace_period"),
        (["tune.scheduler=asha", "tune.asha.reduction_factor=1"], "above 1"),
        (["tune.launcher=kubernetes"], "tune.launcher"),
        (["space=3"], "expected a mapping"),
        (["space={a: {uniform: [1, 0]}}"], "low must be less"),
        (["space=3", "space.a={choice: [1]}"], "space is 3, no mapping"),
        (["space.={choice: [1]}"], "write it as section.key=value"),
        (["space.a..b={choice: [1]}"], "write it as section.key=value"),
        (["space.a={choice: [1"], "space.a"),
        (["space.learner_config={algo: {gamma: {uniform: [0, 1]}}}"], "whole dotted key"),
        (["experiment=my.yaml"], "a tuning itself"),
        (["experiment=none.yaml"], "cannot be read"),
        (["experiment=3"], "expected a path"),
    ],
)
def test_refused(path: Path, words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_tune_file(path, words)


LINE: dict[str, Any] = {
    "episodes": 30,
    "train": {"mean_return_100": 7, "episode_length_100": None},
    "metrics": {"my/score": {"mean": 2.5, "min": 1}},
    "eval": None,
}


@pytest.mark.parametrize(
    ("metric", "number"),
    [
        ("train.mean_return_100", 7),
        ("train.episode_length_100", None),
        ("metrics.my/score", 2.5),
        ("metrics.other", None),
        ("eval.mean_return", None),
        ("train", None),
        ("episodes", 30),
    ],
)
def test_numbers_of_a_line(metric: str, number: float | None) -> None:
    assert number_at(LINE, metric) == number


def test_few_episodes_give_no_score(path: Path) -> None:
    file: TuneFile = read_tune_file(path)
    assert score_of(LINE, file.tune) == 7
    assert score_of({**LINE, "episodes": 19}, file.tune) is None
    assert score_of({**LINE, "episodes": 19}, Config({**file.tune, "metric": "episodes"})) == 19


def test_a_trial_without_a_score_says_why() -> None:
    tune = {"metric": "train.mean_return_100", "min_episodes": 20}
    line = {"episodes": 4, "train": {"mean_return_100": 2.5}}
    assert without_score(line, tune) == (
        "has no score: train.mean_return_100 is 2.5 after 4 episodes, fewer than "
        "tune.min_episodes, 20"
    )
    after_load = {**line, "episodes": 291, "episodes_since_load": 4}
    assert " after 4 episodes, " in without_score(after_load, tune)
    begun = {"episodes": 0, "train": {"mean_return_100": None}}
    assert without_score(begun, tune) == "has no score: none of its episodes has ended"
    tune["metric"] = "metrics.speed"
    line = {"episodes": 30, "metrics": {"wear": {"mean": 1.0}}}
    assert without_score(line, tune).endswith("which has under metrics: wear")
    assert without_score({"episodes": 30}, tune).endswith("which has under metrics: nothing")


def test_the_files_of_the_document_are_right(tmp_path: Path) -> None:
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    names = write_files(ROOT / "docs" / "tune.md", tmp_path)
    files = {name: read_tune_file(tmp_path / name) for name in names if name.endswith(".yaml")}
    schedulers = {each.tune.scheduler for each in files.values()}
    assert schedulers >= {"fifo", "asha", "median"}
    for file in files.values():
        file.space.check(resolve(new_request(file, {}, 0).read()))


POPULATION = """
algorithm: ppo
space: {learner_config.algo.gamma: {uniform: [0.5, 1.0]}}
tune: {scheduler: pbt, stop: {env_steps: 1000}, pbt: {perturbation_interval: 100}}
"""


@pytest.mark.parametrize(
    ("words", "every"),
    [
        ([], 10.0),
        (["tune.pbt.perturbation_interval=7"], 0.7),
        (["tune.report_every=25"], 25.0),
        # All trials report at the time at which they are compared.
        (["tune.pbt.synch=true"], 100.0),
    ],
)
def test_a_population_reports_more_often_than_it_is_compared(
    tmp_path: Path, words: list[str], every: float
) -> None:
    (tmp_path / "tune.yaml").write_text(POPULATION)
    assert read_tune_file(tmp_path / "tune.yaml", words).report_every == pytest.approx(every)


@pytest.mark.parametrize("update", [9, 33, 64, 90])
def test_a_trial_is_compared_at_each_interval(tmp_path: Path, update: int) -> None:
    (tmp_path / "tune.yaml").write_text(POPULATION)
    file = read_tune_file(tmp_path / "tune.yaml")
    scheduler, times = file.scheduler(), {"env_steps": 0.0}
    config = {
        "report_every": file.report_every,
        "report_by": file.tune.time,
        "report_timeout_seconds": 1.0,
    }
    reporter = TrialReporter(RunFolder(tmp_path), "trial-000", config, times)
    compared = []
    # 50 intervals of 100; updates are of unequal sizes.
    for number in range(5000 // update):
        times["env_steps"] += update + (-1) ** number * (update // 3)
        if reporter.due(times):
            reporter.begin(times)
            if scheduler.report(0, times["env_steps"], 1.0)[0].save:
                compared.append(times["env_steps"])
    # At the first report one interval after the last comparison, and so never an interval late.
    gaps = [late - early for early, late in itertools.pairwise([0.0, *compared])]
    assert max(gaps) < 100 + 10 + 2 * update


def test_a_function_explores_last(tmp_path: Path) -> None:
    (tmp_path / "tune.yaml").write_text(POPULATION)
    own = tmp_path / "own.py"
    own.write_text("def half(settings):\n    return {k: 0.625 for k in settings}\n")
    word = f"tune.pbt.explore={own}:half"
    file = read_tune_file(tmp_path / "tune.yaml", [word])
    scheduler = file.scheduler()
    for number in range(8):
        decisions = scheduler.report(number, 100.0, float(8 - number))
    load = decisions[7].load
    assert load is not None
    assert load.settings == {"learner_config.algo.gamma": 0.625}
    # A tuning goes on with its copy.
    keep_file(f"{own}:half", RunFolder(tmp_path))
    own.write_text("")
    assert read_tune_file(tmp_path / "tune.yaml", [word]).explore is not None
    for wrong, message in (
        ("half", "expected package.module:Name or file.py:Name"),
        (f"{own}:hlf", "mean half"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_tune_file(tmp_path / "tune.yaml", [f"tune.pbt.explore={wrong}"])
