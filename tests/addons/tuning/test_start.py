"""Settings with which no trial can run: refused before the start, or not explored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from session.config import Config
from session.errors import ConfigError, SurrealError
from session.folder import RunFolder
from surreal_like.addons.tuning.pbt import PopulationBased
from surreal_like.addons.tuning.start import make_explore_check, notes, resolve_all
from surreal_like.addons.tuning.tune_file import TuneFile, read_tune_file
from surreal_like.experiment.resolve_process import Resolved, try_all

pytestmark = pytest.mark.usefixtures("quick")

ROWS = "learner_config.replay.batch_size"
ENVS = "env_config.num_envs"
RATE = "learner_config.algo.learning_rate.start"
PBT = {"scheduler": "pbt", "pbt": {"perturbation_interval": 50}}


def made(path: Path, space: dict[str, Any], **tune: Any) -> TuneFile:
    """A tuning of PPO, whose batches must be multiples of four environments."""
    given = {
        "algorithm": "ppo",
        "env_config": {"env_name": "toy:chain", "num_envs": 4},
        "learner_config": {"replay": {"batch_size": 8}},
        "session_config": {"evaluator": {"num": 0}},
        "space": space,
        "tune": {"trials": 2, "stop": {"env_steps": 100}, **tune},
    }
    Config(given).dump_file(path / "mine.yaml")
    return read_tune_file(path / "mine.yaml")


@pytest.mark.parametrize(
    ("space", "tune", "named"),
    [
        ({ROWS: {"grid": [8, 10]}}, {}, f"space.{ROWS} has 10"),
        # No trial would draw it; another one could be added later.
        ({ROWS: {"choice": [8] * 30 + [9]}}, {}, f"space.{ROWS} has 9"),
        ({ROWS: {"ordered": [6, 8]}}, PBT, f"space.{ROWS} has 6"),
        ({ROWS: {"randint": [5, 7]}}, {}, "trial-000 would have batch_size="),
        ({ROWS: {"randint": [7, 12]}}, PBT, f"space.{ROWS} has 7"),
        ({ROWS: {"randint": [8, 13], "step": 5}}, PBT, f"space.{ROWS} has 13"),
        ({ENVS: {"choice": [3, 4]}}, {}, f"space.{ENVS} has 3"),
        ({"env_config.env_name": {"choice": ["toy:chain", "toy:chian"]}}, {}, "toy:chian"),
        ({"algorithm": {"choice": ["ppo", "dqnn"]}}, {}, "space.algorithm has 'dqnn'"),
        ({ROWS: {"randint": [8, 9]}}, {"search": "tpe"}, f"space.{ROWS} has 9"),
    ],
)
def test_a_value_that_cannot_run_is_refused(
    tmp_path: Path, space: dict[str, Any], tune: dict[str, Any], named: str
) -> None:
    if tune.get("search"):
        pytest.importorskip("optuna")
    with pytest.raises(ConfigError) as refused:
        resolve_all(made(tmp_path, space, **tune), try_all)
    assert named in str(refused.value)
    assert ", which cannot run: " in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("space", "tune"),
    [
        ({}, {}),
        ({ROWS: {"grid": [8, 12]}, RATE: {"loguniform": [1e-5, 1e-1]}}, {}),
        # The last step is 12; 15 is never reached.
        ({ROWS: {"randint": [8, 15], "step": 4}}, PBT),
        # Six rows fit to no other number of environments.
        ({ROWS: {"choice": [6]}, ENVS: {"choice": [3]}}, {}),
    ],
)
def test_values_that_can_run_are_not_refused(
    tmp_path: Path, space: dict[str, Any], tune: dict[str, Any]
) -> None:
    config = resolve_all(made(tmp_path, space, **tune), try_all)
    assert (config.learner_config.replay.batch_size, config.env_config.num_envs) == (8, 4)


def test_each_setting_is_resolved_once(tmp_path: Path) -> None:
    asked: list[list[int]] = []

    def answer(users: Sequence[Config]) -> list[Resolved]:
        asked.append([user.learner_config.replay.batch_size for user in users])
        return try_all(users[:1])

    file = made(tmp_path, {ROWS: {"grid": [8, 12, 16]}}, trials=40)
    # What takes too long is left to the trials.
    resolve_all(file, answer)
    assert asked == [[8, 8, 12, 16, 8, 12, 16]]
    for name in ("trial-000", "trial-002"):
        (tmp_path / "t" / name).mkdir(parents=True)
        RunFolder(tmp_path / "t" / name).config.write_text("{}")
    resolve_all(file, answer, tmp_path / "t")
    assert asked[1:] == [[8, 8, 12, 16, 12]]


def test_an_explored_value_that_cannot_run_is_skipped(tmp_path: Path) -> None:
    file = made(tmp_path, {ROWS: {"choice": [8, 12]}}, **PBT)
    known = resolve_all(file, try_all)
    check = make_explore_check(file, partial(try_all, known=known))
    assert check({ROWS: 8}) == ""
    assert "10" in check({ROWS: 10})
    assert "\n" not in check({ROWS: 10})


def test_a_process_that_dies_is_a_reason(tmp_path: Path) -> None:
    def dead(users: Sequence[Config]) -> list[Resolved]:
        raise SurrealError("the experiment could not be resolved: killed")

    assert "killed" in make_explore_check(made(tmp_path, {}), dead)({})


def test_settings_that_cannot_run_are_not_drawn_again(tmp_path: Path) -> None:
    file = made(tmp_path, {ROWS: {"randint": [4, 400]}, RATE: {"uniform": [0.1, 0.9]}}, **PBT)
    tried: list[Any] = []

    def check(settings: dict[str, Any]) -> str:
        tried.append(settings)
        return "no multiple" if len(tried) < 3 else ""

    scheduler = file.scheduler(check)
    assert isinstance(scheduler, PopulationBased)
    before = dict(scheduler.members[0].settings)
    scheduler.report(1, 50.0, 9.0)
    decisions = [scheduler.report(0, 50.0 * number, 1.0)[0] for number in (1, 2, 3)]
    assert [each.skipped.partition(": ")[2] for each in decisions] == ["no multiple"] * 2 + [""]
    assert "batch_size=" in decisions[0].skipped
    assert [each.load is None for each in decisions] == [True, True, False]
    assert tried[0] != tried[1] != tried[2] != tried[0]
    member = scheduler.members[0]
    assert (member.exploits, member.refused) == (1, 2)
    assert (member.settings, before == tried[2]) == (tried[2], False)
    # A tuning that goes on draws further settings, too.
    again = file.scheduler(check)
    again.restore(scheduler.state())
    assert again.state() == scheduler.state()


@pytest.mark.parametrize(
    ("stop", "tune", "said"),
    [
        ({}, {"scheduler": "asha"}, []),
        ({"eval_return": 9}, {}, []),
        (
            {"eval_return": 9},
            {"scheduler": "asha"},
            ["asha", "session_config.stop.eval_return=null"],
        ),
        ({"eval_return": 9}, PBT, ["pbt", "session_config.stop.eval_return=null"]),
        (
            {"metric": "a/b", "above": 1},
            {"scheduler": "median"},
            ["median", "session_config.stop={}"],
        ),
        ({"eval_return": 9}, {"scheduler": "asha", "stop_at_goal": True}, []),
    ],
)
def test_a_goal_that_ends_trials_early_is_said_at_the_start(
    tmp_path: Path, stop: dict[str, Any], tune: dict[str, Any], said: list[str]
) -> None:
    file = made(tmp_path, {RATE: {"uniform": [0.1, 0.2]}}, **tune)
    config = Config({"session_config": {"seed": 3, "stop": {"eval_return": None, "metric": None}}})
    config.session_config.stop.update(stop)
    found = notes(file, config)
    assert len(found) == bool(said)
    assert all(word in found[0] for word in said)


@pytest.mark.parametrize(
    ("space", "trials", "said"),
    [
        ({}, 3, "space is empty: 3 trials have equal settings, and differ by their seeds, 5 to 7"),
        ({}, 1, ""),
        ({RATE: {"uniform": [0.1, 0.2]}}, 3, ""),
    ],
)
def test_trials_of_equal_settings_are_said_at_the_start(
    tmp_path: Path, space: dict[str, Any], trials: int, said: str
) -> None:
    file = made(tmp_path, space, trials=trials)
    config = Config({"session_config": {"seed": 5, "stop": {"eval_return": None, "metric": None}}})
    assert notes(file, config) == [said] * bool(said)
