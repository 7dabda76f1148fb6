"""Population based training as a user starts it: exploits in place, and by a start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from session.folder import RunFolder
from tests.addons.tuning.runs.test_tune import ended, read, start, trials, weights
from tests.runs.command import ROOT

FILE = f"""
experiment: {ROOT}/configs/cartpole_ppo.yaml
space:
  learner_config.algo.learning_rate.start: {{loguniform: [1.0e-5, 1.0e-1]}}
session_config: {{evaluator: {{num: 0}}, stop: {{eval_return: null}}}}
tune:
  trials: 3
  min_episodes: 5
  stop: {{env_steps: 12_000}}
  scheduler: pbt
  pbt: {{perturbation_interval: 4_096, synch: true}}
"""
PLAN = ("rows_taken", "rows_trained")
RATE = "learner_config.algo.learning_rate.start"
pytestmark = pytest.mark.slow


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(FILE)
    return tmp_path / "small.yaml"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def exploits(folder: Path) -> list[dict[str, Any]]:
    """Returns the exploits, without their times of day and durations."""
    found = [each for each in lines(folder / "pbt.jsonl") if "skipped" not in each]
    return [
        {k: v for k, v in each.items() if k not in ("time_of_day", "seconds")} for each in found
    ]


@pytest.mark.timeout(250)
def test_exploits_are_the_same_with_one_and_four_slots(file: Path, tmp_path: Path) -> None:
    found = []
    for slots in (1, 4):
        folder = tmp_path / f"slots-{slots}"
        ended(start(folder, str(file), f"tune.slots={slots}"), 0)
        found.append((exploits(folder), weights(folder)))
        assert {each["failures"] for each in trials(folder).values()} == {0}
    assert found[0] == found[1]
    assert found[0][0]
    loads = [
        (each["recipient"], each["recipient_time"], each["donor"], each["donor_time"])
        for each in exploits(folder)
    ]
    lineage = read(folder / "lineage.json")
    assert sorted(loads) == sorted((n, *load) for n, all in lineage.items() for load in all)
    for exploit in found[0][0]:
        assert exploit["in_place"]
        _check_recipient(folder, exploit)
    _check_replay(folder, found[0][0], tmp_path / "replay")


def _check_replay(folder: Path, found: list[dict[str, Any]], replay: Path) -> None:
    """Checks a run that follows the settings which led to the newest recipient."""
    last = max(found, key=lambda each: each["donor_time"])
    ended(start(replay, "--replay", str(folder / last["recipient"])), 0)
    changes = [each["new_settings"] for each in exploits(replay)]
    assert changes[-1] == last["new_settings"]
    assert trials(replay)["trial-000"]["generation"] == len(changes)


def _check_recipient(folder: Path, exploit: dict[str, Any]) -> None:
    run = RunFolder(folder / exploit["recipient"])
    generation = exploit["generation"]
    later = [each for each in lines(run.progress) if each["generation"] == generation]
    offset = exploit["donor_time"] - exploit["recipient_time"]
    assert later
    for line in later:
        assert line["time"]["env_steps"] - line["env_steps"] == offset
    # The schedule goes from its start to 0 in 150,000 steps of the time of the weights.
    rate, start = later[0]["learn"]["learning_rate"], exploit["new_settings"][RATE]
    assert 1 - later[0]["time"]["env_steps"] / 150_000 <= rate / start
    assert rate / start <= 1 - exploit["donor_time"] / 150_000
    counts = [[each["plan"][name] for each in lines(run.progress)] for name in PLAN]
    assert all(each == sorted(each) for each in counts)
    config = run.read_config()
    assert config["run"]["generation"] >= generation
    built = [each for each in lines(run.events) if each.get("event") == "generation"]
    assert f"{generation}, built anew" in [each["detail"] for each in built]
    assert read(run.result)["env_steps"] >= 12_000


@pytest.mark.timeout(250)
def test_settings_that_cannot_change_in_place(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tuning"
    space = "space={learner_config.algo.gamma: {uniform: [0.5, 0.99]}}"
    ended(start(folder, str(file), space), 0)
    found = exploits(folder)
    assert found
    assert not any(each["in_place"] for each in found)
    for name, trial in trials(folder).items():
        config = RunFolder(folder / name).read_config()
        assert (trial["state"], trial["failures"]) == ("terminated", 0)
        assert config["run"].get("generation", 0) == trial["generation"]
        assert config.learner_config.algo.gamma == trial["settings"]["learner_config.algo.gamma"]
