"""Environments that draw from `random` and `numpy.random`: one seed, equal numbers, everywhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.process.seeding import seed_all, seed_globals
from surreal_like import load_policy, make_vector_env, train
from surreal_like.addons.analysis import play as playing
from surreal_like.addons.analysis.evaluate import evaluate
from surreal_like.addons.scripts.policy import make_policy
from surreal_like.addons.scripts.worker_set import RolloutWorker
from surreal_like.env.check import tried_specs
from tests.add_ons import needs
from tests.drawing import draw
from tests.surreal_like.env.samples import Drawing

NAME = "tests.surreal_like.env.samples:Drawing"
SMALL = {
    "learner_config.model.hidden_sizes": [8],
    "learner_config.replay.min_size": 20,
    "env_config.num_envs": 2,
    "session_config.stop": {"env_steps": 60, "eval_episodes": 2},
}


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    """Give the generators back to the other tests as they were."""
    with seed_all(0):
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the folders of three small runs; the first two have one seed."""
    folders = []
    for number, seed in enumerate((5, 5, 6)):
        # As two commands, which begin with other numbers.
        seed_globals(100 + number)
        folders.append(tmp_path_factory.mktemp("drawing") / "run")
        train(
            algorithm="dqn",
            env=NAME,
            overrides=SMALL | {"session_config.seed": seed},
            launcher="serial",
            folder=folders[-1],
        )
    return folders


def evaluated(run: Path, seed: int) -> Any:
    return evaluate(run, episodes=3, seed=seed, checkpoint="latest")["mean_return"]


def played(run: Path, seed: int) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Drawing, "render", lambda env: np.zeros((2, 2, 3), np.uint8))
        patch.setattr(playing, "check_screen", lambda: None)
        patch.setattr(playing, "show_frames", lambda frames, *_: len(list(frames)))
        return playing.play(run, seed=seed, checkpoint="latest")["returns"]


def processes(run: Path, seed: int) -> Any:
    config = {"env_name": NAME, "vector": "process", "workers": 2}
    with contextlib.closing(make_vector_env(config, num_envs=2, seed=seed)) as env:
        rows = [env.reset()[0], env.step(np.zeros(2, np.int64))[0]]
    numbers = np.stack(rows)
    # No worker draws the numbers of another one.
    assert len(np.unique(numbers)) == numbers.size
    return numbers.tolist()


def sampled(run: Path, seed: int) -> Any:
    overrides = ["learner_config.model.hidden_sizes=[8]", f"session_config.seed={seed}"]
    policy = make_policy("impala", env=NAME, overrides=overrides)
    with RolloutWorker(policy, num_envs=2, rollout_fragment_length=5) as worker:
        return worker.sample().obs.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", [evaluated, played, pytest.param(processes, marks=needs("workers")), sampled]
)
def test_one_seed_gives_the_same_numbers_and_another_one_others(
    runs: list[Path], place: Callable[[Path, int], Any]
) -> None:
    first = place(runs[0], 3)
    draw()
    assert place(runs[0], 3) == first
    assert place(runs[0], 4) != first


@pytest.mark.slow
def test_a_serial_run_is_repeatable(runs: list[Path]) -> None:
    weights = [load_policy(run, "latest").get_weights() for run in runs]
    first, same, other = (np.concatenate([each.ravel() for each in w.values()]) for w in weights)
    assert first.tolist() == same.tolist() != other.tolist()


def test_a_launch_that_tries_the_environment_leaves_the_numbers_of_its_script_alone() -> None:
    seed_globals(9)
    expected = draw()
    seed_globals(9)
    tried_specs({"env_name": NAME})
    assert draw() == expected
