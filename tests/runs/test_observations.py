"""Whole runs with observations and actions of every kind, by configuration only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surreal_like import load_policy, train
from tests.runs.command import ROOT
from tests.runs.shown import STEPS
from tests.surreal_like.algorithm.unrolls import play

# Half way between what a policy that sees nothing earns at best, and the optimum.
GOALS = {"one": 0.625 * STEPS, "several": 0.625 * STEPS, "bits": 0.625 * STEPS, "box": -0.5 * STEPS}
ROWS: dict[str, Any] = {
    "learner_config__replay__batch_size": 32,
    "learner_config__replay__min_size": 200,
    "learner_config__replay__samples_per_insert": 16.0,
    "learner_config__algo__learning_rate": 3e-3,
}
CRITIC: dict[str, Any] = {
    "learner_config__algo__critic_learning_rate": 3e-3,
    "learner_config__algo__tau": 0.05,
}
NOISE: dict[str, Any] = {"learner_config__algo__noise__sigma": 0.3}
SETTINGS: dict[str, dict[str, Any]] = {
    "dqn": {**ROWS, "learner_config__algo__epsilon__steps": 1000},
    "ddpg": {**ROWS, **CRITIC, **NOISE},
    "td3": {**ROWS, **CRITIC, **NOISE},
    "sac": {
        **ROWS,
        **CRITIC,
        "learner_config__algo__temperature": {"start": 0.1, "learning_rate": 3e-3},
    },
    "ppo": {"learner_config__algo__learning_rate": 5e-3},
    "impala": {"learner_config__algo__learning_rate": 1e-2},
}
LSTM = {"learner_config__model__memory": "lstm"}
# A policy that is at the bounds of its actions before its critic sees anything stays there.
SLOWLY: dict[str, Any] = {
    "learner_config__algo__learning_rate": 3e-4,
    "learner_config__algo__random_steps": 2500,
    "learner_config__model__hidden_sizes": [64],
}
GRU = {"learner_config__model__memory": "gru"}


SLOW = pytest.mark.slow


def learns(folder: Path, name: str, shown: str, done: str, **changed: Any) -> None:
    """Trains until the goal is met."""
    words = {
        **SETTINGS[name],
        # What is shown next has nothing to do with what is done.
        "learner_config__algo__gamma": 0.1,
        "learner_config__model__hidden_sizes": [32],
        "env_config__env_args": {"shown": shown, "done": done},
        "session_config__import_path": [str(ROOT)],
        **changed,
    }
    run = play(folder, name, "tests.runs.shown:Shown", env_steps=6000, goal=GOALS[done], **words)
    assert run.result["goal_met"] is True, run.result["best_eval"]


@pytest.mark.parametrize(
    ("name", "shown", "done"),
    [
        pytest.param("dqn", "dict", "one", marks=SLOW),
        ("sac", "dict", "box"),
        pytest.param("ppo", "tuple", "several", marks=SLOW),
    ],
)
def test_what_is_shown_is_seen(name: str, shown: str, done: str, tmp_path: Path) -> None:
    learns(tmp_path / "run", name, shown, done)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shown", "done", "changed"),
    [
        ("dqn", "number", "one", {"env_config__frame_stack": 2}),
        ("ddpg", "bits", "box", {}),
        ("td3", "tuple", "box", {}),
        ("ppo", "dict", "box", {}),
        ("ppo", "number", "one", GRU),
        ("impala", "dict", "bits", {}),
        ("impala", "numbers", "one", LSTM),
    ],
)
def test_other_kinds_are_seen(
    name: str, shown: str, done: str, changed: dict[str, Any], tmp_path: Path
) -> None:
    learns(tmp_path / "run", name, shown, done, **changed)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("name", "done", "changed"),
    [
        ("dqn", "one", {"env_config__frame_stack": 2}),
        ("ppo", "one", {}),
        ("ppo", "several", LSTM),
        ("impala", "one", GRU),
        ("ddpg", "box", SLOWLY),
        ("sac", "box", {}),
    ],
)
def test_images_are_seen(name: str, done: str, changed: dict[str, Any], tmp_path: Path) -> None:
    image = {"learner_config__model__image_features": 32}
    learns(tmp_path / "run", name, "image", done, **image, **changed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param("dqn", marks=SLOW), pytest.param("sac", marks=SLOW), "ppo"]
)
def test_what_is_far_from_0_is_seen_when_it_is_normalised(name: str, tmp_path: Path) -> None:
    normalised = {"learner_config__model__normalize_obs": True}
    done = "box" if name == "sac" else "one"
    learns(tmp_path / "run", name, "far", done, **normalised)


@pytest.mark.slow
def test_a_resumed_run_goes_on_with_its_moments(tmp_path: Path) -> None:
    words: dict[str, Any] = {
        "learner_config__model__normalize_obs": True,
        "learner_config__model__hidden_sizes": [8],
        "env_config__env_args": {"shown": "far"},
        "session_config__import_path": [str(ROOT)],
    }
    folder, name = tmp_path / "run", "tests.runs.shown:Shown"
    run = play(folder, "ppo", name, env_steps=1000, **words)
    before, mean = moments(folder)
    # A batch is 16 steps of 8 streams.
    assert before == 128 * run.result["iterations"] > 500
    assert mean == pytest.approx([3000.5, -490.0], abs=1.0)
    longer = {"session_config.stop": {"env_steps": 2000, "eval_episodes": 5}}
    run = train(folder=folder, resume=True, launcher="serial", overrides=longer)
    after, mean = moments(folder)
    assert after == 128 * run.result["iterations"] > before
    assert mean == pytest.approx([3000.5, -490.0], abs=1.0)


def moments(folder: Path) -> tuple[float, list[float]]:
    """Rows that the normaliser of a run has learned from, and their mean."""
    policy: Any = load_policy(folder, "latest")
    [part] = policy._agents[True].network.normalizer.parts
    return float(part.count), part.mean.tolist()
