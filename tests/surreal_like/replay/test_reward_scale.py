"""The scale of rewards: golden numbers, a slow twin, shards, replies, restored learners."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from session.errors import ConfigError
from surreal_like import train
from surreal_like.addons.gradients.a3c import A3C
from surreal_like.algorithm.dqn import DQN
from surreal_like.algorithm.impala import Impala
from surreal_like.data.batch import Batch, Sampled
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.reward_scale import Moments, ReturnCounter, RewardScale
from surreal_like.transform.reward import RewardTransform
from tests.surreal_like.algorithm import transitions, unrolls
from tests.surreal_like.replay.chunks import Sender, chunk_of, counting

ON = {"normalize_rewards": True}


def test_a_reward_is_divided_by_the_deviation_of_what_was_known() -> None:
    """With gamma 0 a return is its reward."""
    counter, scale = ReturnCounter(0.0, RewardTransform()), RewardScale()
    found = []
    for rewards in ([0, 1, 0, 0, -1, 2], [0, 10, 0, 5], [0, 1]):
        counter.add(chunk_of("F" + "M" * (len(rewards) - 1), rewards=rewards))
        scale.add("replay-0/1", counter.moments)
        found.append(3.0 / scale.deviation)
    # The newest reply does not count for its own batch.
    assert found == pytest.approx([3.0, 2.941742, 0.871145], abs=1e-6)


def slow(chunks: Sequence[Chunk], gamma: float) -> list[float]:
    """All returns, stream by stream and row by row."""
    found: list[float] = []
    known: dict[Any, float] = {}
    for chunk in chunks:
        for n, stream in enumerate(chunk.streams):
            key = chunk.sender, chunk.incarnation, stream
            for t in range(chunk.overlap, chunk.shape[0]):
                if chunk.columns["step_type"][t, n] == 0:
                    known[key] = 0.0
                    continue
                reward = max(-2.0, min(2.0, float(chunk.columns["reward"][t, n]))) * 0.5
                known[key] = gamma * known.get(key, 0.0) + reward
                found.append(known[key])
    return found


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
def test_returns_are_counted_as_by_the_slow_twin(gamma: float) -> None:
    random, ids = Random(3), counting()
    senders = [Sender(f"agent-{k}", k + 1, random, ids) for k in range(3)]
    counter, chunks = ReturnCounter(gamma, RewardTransform(clip=2.0, scale=0.5)), []
    for number in range(60):
        sender = random.choice(senders)
        if number % 20 == 19:
            sender.restart()
        chunks.append(sender.cut(random.randint(1, 6), tail=number % 17 == 16))
        counter.add(chunks[-1])
    expected = slow(chunks, gamma)
    assert counter.moments.number == len(expected)
    assert counter.moments.mean == pytest.approx(np.mean(expected), rel=1e-9)
    assert counter.moments.deviation == pytest.approx(np.std(expected), rel=1e-6)


def test_a_row_that_two_unrolls_have_is_counted_once() -> None:
    counter = ReturnCounter(0.5, RewardTransform())
    for number, text in enumerate(("FMM", "MMT", "TFM"), 1):
        chunk = chunk_of(
            text, sequence=number, rewards=[2 * number - 1, 2 * number, 2 * number + 1]
        )
        chunk.overlap = 1 if number > 1 else 0
        counter.add(chunk)
    # 2, 3; then 4, 5; the next episode begins with 0, then 7.
    returns = [2.0, 4.0, 6.0, 8.0, 7.0]
    assert counter.moments.number == 5
    assert counter.moments.mean == pytest.approx(np.mean(returns))
    assert counter.moments.deviation == pytest.approx(np.std(returns))


def test_streams_that_never_end_are_kept_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surreal_like.replay.reward_scale._OPEN", 2)
    counter = ReturnCounter(1.0, RewardTransform())
    begin, go_on = ("FM", [0, 5]), ("M", [5])
    steps = [(0, begin), (1, begin), (2, begin), (1, go_on), (0, go_on)]
    for number, (stream, (text, rewards)) in enumerate(steps, 1):
        counter.add(chunk_of(text, sequence=number, streams=[stream], rewards=rewards))
    # Stream 0 was the one without a step for the longest time.
    assert counter.moments.mean == pytest.approx(np.mean([5, 5, 5, 10, 5]))


def test_returns_that_are_all_equal_leave_rewards_as_they_are() -> None:
    counter = ReturnCounter(0.9, RewardTransform())
    counter.add(chunk_of("FMMM", rewards=[0, 0, 0, 0]))
    assert (counter.moments.number, counter.moments.deviation) == (3, 1.0)
    assert Moments().deviation == Moments(1.0, 5.0, 0.0).deviation == 1.0


def moments(*numbers: float) -> list[float]:
    return list(Moments.of(np.array(numbers)))


def test_shards_and_earlier_incarnations_are_merged() -> None:
    scale = RewardScale()
    for shard, numbers in (
        ("0/1", (1, 2)),
        ("1/1", (5, 7)),
        ("0/1", (1, 2, 4)),  # all since its start
        ("0/2", (8, 8)),  # a new incarnation begins with nothing
    ):
        scale.add(shard, moments(*numbers))
    assert scale.deviation == pytest.approx(np.std([1, 2, 4, 5, 7]), rel=1e-6)
    scale.add("1/1", moments(5, 7, 9))
    assert scale.deviation == pytest.approx(np.std([1, 2, 4, 5, 7, 8, 8]), rel=1e-6)


def learner(algorithm: Any = DQN, **changed: Any) -> Any:
    torch.manual_seed(0)
    algo: dict[str, Any] = {**ON, **({"n_step": 1} if algorithm is DQN else {})}
    return algorithm.learner(**unrolls.configs(algorithm, **algo, **changed))


def rows(seed: int, *returns: float) -> Batch:
    batch = transitions.make_transitions(seed)
    batch["actions"] = torch.randint(0, 3, batch.rewards.shape)
    batch.origin = Sampled({}, 0, 1, {}, returns=moments(*returns) if returns else None)
    return batch


def test_batches_of_one_reply_are_divided_by_the_same_and_a_restored_learner_goes_on() -> None:
    made, again = learner(), learner()
    assert made.flow.describe().startswith("replay -> normalize_rewards -> train_one_step")
    found = []
    for number, returns in enumerate(((1, 3), (1, 3), (1, 3, 8), (1, 3, 8, 8))):
        batch = rows(number, *returns)
        before = batch.rewards.clone()
        metrics = made.learn(batch)
        found.append(metrics["reward_deviation"])
        torch.testing.assert_close(batch.rewards, before / found[-1])
        if number == 2:
            state = {k: copy.deepcopy(v.state_dict()) for k, v in made.checkpointed().items()}
    expected = [1.0, 1.0, np.std([1, 3]), np.std([1, 3, 8])]
    assert found == pytest.approx(expected, rel=1e-6)
    for name, saveable in again.checkpointed().items():
        saveable.load_state_dict(state[name])
    assert again.learn(rows(3, 1, 3, 8, 8))["reward_deviation"] == found[-1]


def test_normalized_rewards_are_clipped_if_they_are_to_be() -> None:
    found = []
    for changed in ({}, {"normalized_reward_clip": 0.5}):
        made = learner(**changed)
        for number, returns in enumerate(((1, 3), (1, 3, 8))):
            batch = rows(number, *returns)
            before = batch.rewards.clone()
            made.learn(batch)
        found.append(batch.rewards)
    assert found[0].abs().max() > 0.5
    torch.testing.assert_close(found[1], found[0].clamp(-0.5, 0.5))
    torch.testing.assert_close(found[0], before)


def test_counts_are_those_of_gymnasium_from_the_second_return_on() -> None:
    """Golden: NormalizeReward, which begins with 1e-4 numbers of variance 1, then a clip of 10."""
    counter, found = ReturnCounter(0.99, RewardTransform()), []
    counter.moments = Moments(1e-4, 0.0, 1e-4)
    for number, (step, reward) in enumerate(
        zip("FMMTFMM", (0, 1, 0, -5, 0, 2, 40), strict=True), 1
    ):
        counter.add(chunk_of(step, sequence=number, rewards=[reward]))
        if step != "F":
            found.append(max(-10.0, min(10.0, reward / counter.moments.deviation)))
    # It counts a return before it divides by the deviation of one number: 1 gives 10.
    assert found == pytest.approx([1.0, 0.0, -2.11504, 0.850121, 2.363204], abs=1e-5)


def test_it_comes_before_parts() -> None:
    parts = {"parts": [{"part": "tests.surreal_like.dataflow.test_parts:doubled"}]}
    described = learner(Impala, learner=parts).flow.describe()
    assert described.startswith("rollouts -> normalize_rewards -> doubled(2) -> train_one_step")


def test_a_batch_of_a_script_counts_nothing() -> None:
    made = learner()
    assert made.learn(rows(0))["reward_deviation"] == 1.0


def test_gradients_of_agents_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"normalize_rewards is true, but agents make the grad"):
        _ = learner(A3C).flow
    at_learner = learner(A3C, learner={"gradients_at": "learner"})
    assert at_learner.flow.describe().startswith("rollouts -> normalize_rewards")


def test_the_part_without_the_setting_is_refused() -> None:
    given = {"parts": [{"part": "normalize_rewards"}]}
    made = DQN.learner(**unrolls.configs(DQN, learner=given))
    with pytest.raises(ConfigError, match=r"set learner_config\.algo\.normalize_rewards to true"):
        _ = made.flow


@pytest.mark.slow
def test_a_run_goes_on_with_its_scale_and_reports_raw_returns(tmp_path: Path) -> None:
    """A random episode of Pendulum has a return far below -200."""
    settings = {
        "learner_config.algo.normalize_rewards": True,
        "learner_config.replay.batch_size": 4,
        "env_config.num_envs": 4,
        "session_config.agent.num": 1,
        "session_config.stop": {"iterations": 4, "eval_episodes": 2},
    }
    options: dict[str, Any] = {"launcher": "serial", "folder": tmp_path / "run"}
    first = train(algorithm="ppo", env="gym:Pendulum-v1", overrides=settings, **options)
    assert first.result["eval"]["mean_return"] < -200.0
    before = first.progress()[-1]["learn"]["reward_deviation"]
    more = {"session_config.stop.iterations": 5}
    again = train(resume=True, overrides=more, **options)
    # The mean of four updates, the first of which divides by 1; then that of the fifth alone.
    assert 1.0 < before < again.progress()[-1]["learn"]["reward_deviation"]
