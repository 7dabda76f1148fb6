"""A policy out of a run folder: one observation or a batch, the best or a drawn action."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.errors import UsageError
from session.folder import RunFolder
from surreal_like import load_policy, make_policy, train
from surreal_like.addons.analysis.evaluate import evaluate
from surreal_like.addons.scripts.worker_set import RolloutWorker
from surreal_like.errors import DataError
from surreal_like.experiment.checkpoints import whole_checkpoint

OVERRIDES = {
    "learner_config.replay.min_size": 64,
    "learner_config.model.hidden_sizes": [16],
    "learner_config.algo.eval_epsilon": 0.5,
    "env_config.num_envs": 4,
    "session_config.sender.flush_iteration": 8,
    "session_config.stop": {"env_steps": 400, "eval_episodes": 4},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small run that has ended."""
    folder = tmp_path_factory.mktemp("policy") / "run"
    train(
        algorithm="dqn",
        env="toy:chain",
        overrides=OVERRIDES,
        launcher="serial",
        folder=folder,
    )
    return folder


def observation(place: int) -> np.ndarray[Any, Any]:
    one_hot: np.ndarray[Any, Any] = np.eye(8, dtype=np.float32)[place]
    return one_hot


def test_a_policy_that_reads_rewards_needs_them() -> None:
    settings = ["memory=lstm", "memory_inputs=[action, reward]"]
    words = [f"learner_config.model.{each}" for each in settings]
    policy = make_policy("ppo", env="toy:target", overrides=words)
    obs = np.zeros((2, *policy.config.env_config.obs_spec.dim), np.float32)
    first, state = policy(obs)
    for wrong, message in ((None, r"call policy\(obs, state, reward=reward\)"), (1.0, r"\[2\]")):
        with pytest.raises((UsageError, DataError), match=message):
            policy(obs, state, reward=wrong)
    found = [policy(obs, state, reward=[0.0, reward])[0] for reward in (0.0, 5.0)]
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert not np.allclose(found[0][1], found[1][1], atol=1e-5)
    # The action before is part of the state.
    assert state[:, -first[0].size :] == pytest.approx(first.reshape(2, -1))


def test_one_observation_or_a_batch(run: Path) -> None:
    policy = load_policy(run, checkpoint="latest")
    one, state = policy(observation(3))
    assert np.shape(one) == ()
    assert state is None
    batch, state = policy(np.stack([observation(place) for place in range(8)]), state)
    assert batch.shape == (8,)
    assert batch[3] == one
    assert set(batch.tolist()) <= {0, 1}
    # What is no float32 yet becomes it, as an environment's own observation would.
    assert policy(observation(3).astype(np.float64))[0] == one
    assert policy(observation(3).tolist())[0] == one


def test_the_best_action_is_always_the_same_and_a_drawn_one_is_not(run: Path) -> None:
    policy = load_policy(run)
    batch = np.stack([observation(2)] * 200)
    greedy, _ = policy(batch)
    drawn, _ = policy(batch, deterministic=False)
    assert len(set(greedy.tolist())) == 1
    assert len(set(drawn.tolist())) == 2


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 2, 8), ()])
def test_an_observation_of_another_shape_is_refused(run: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="neither as one observation nor as a batch"):
        load_policy(run)(np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"a": np.zeros(8, np.float32)}, "does not fit env_config.obs_spec"),
        ((np.zeros(8, np.float32),), "does not fit env_config.obs_spec"),
        ({}, "does not fit env_config.obs_spec"),
        (np.full(8, np.nan, np.float32), "obs has numbers that are NaN or infinite"),
        (np.full((2, 8), np.inf, np.float32), "obs has numbers that are NaN or infinite"),
        (None, "obs"),
        ("text", "obs"),
    ],
)
def test_an_observation_that_is_no_such_nest_or_no_number_is_refused(
    run: Path, wrong: Any, words: str
) -> None:
    with pytest.raises(DataError, match=words) as caught:
        load_policy(run)(wrong)
    assert "\n" not in str(caught.value)


def test_checkpoints_by_name_and_number(run: Path) -> None:
    folder = RunFolder(run)
    latest = whole_checkpoint(folder, "latest")
    assert whole_checkpoint(folder, latest.name) == latest
    assert whole_checkpoint(folder, "best").name == "best"
    with pytest.raises(UsageError, match=f"it has {latest.name}, latest, best"):
        whole_checkpoint(folder, "17")
    with pytest.raises(UsageError, match="is not a run folder"):
        load_policy(run / "logs")


def test_evaluating_plays_so_many_episodes(run: Path) -> None:
    found = evaluate(run, episodes=5, checkpoint="latest", seed=1)
    assert found["episodes"] == 5
    assert found["min_return"] <= found["mean_return"] <= found["max_return"] <= 1.0
    # Deterministic play of a deterministic environment: every episode is the same.
    assert found["std_return"] == 0.0
    drawn = evaluate(run, episodes=5, checkpoint="latest", seed=1, deterministic=False)
    assert drawn["std_return"] > 0.0


def test_a_loaded_policy_goes_on_learning_if_it_is_asked(run: Path) -> None:
    policy = load_policy(run, "latest", trainable=True)
    assert policy.learner.iteration == int(policy.checkpoint) > 0
    # 400 environment steps at least, of 10,000 in which epsilon falls.
    assert policy.learner.env_steps >= 400
    assert policy.agent.epsilon < 0.99  # type: ignore[attr-defined]
    moments = policy.learner.optimizers["optimizer"].state_dict()["adam"]
    assert moments["steps"] == policy.learner.iteration
    greedy = load_policy(run, "latest")
    obs = np.eye(8, dtype=np.float32)
    assert np.array_equal(policy(obs)[0], greedy(obs)[0])
    before = policy.get_weights()
    with RolloutWorker(policy, rollout_fragment_length=40) as worker:
        policy.learn_on_batch(worker.sample())
    after = policy.get_weights()
    assert any(not np.array_equal(before[name], after[name]) for name in before)
    best = load_policy(run, trainable=True).learner
    assert (best.iteration, best.env_steps) == (0, 0)
