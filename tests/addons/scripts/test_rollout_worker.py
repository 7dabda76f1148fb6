"""Experience collected in this process: fragments that continue each other, and whole episodes."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import Any

import pytest
import torch

from session.config import Config
from session.errors import ConfigError
from surreal_like.addons.scripts import worker_set
from surreal_like.addons.scripts.policy import make_policy
from surreal_like.addons.scripts.worker_set import RolloutWorker, WorkerSet
from surreal_like.algorithm.catalog import describe_algorithms
from surreal_like.data.batch import Batch
from surreal_like.dataflow import concat
from surreal_like.dataflow.batches import inputs_before, state_before
from surreal_like.replay.kinds import UniformReplay
from surreal_like.replay.view.n_step import NStepView, View
from tests.add_ons import needs
from tests.surreal_like.agent.rig import Failing

SMALL = ("learner_config.model.hidden_sizes=[8]", "learner_config.device=cpu")
COLUMNS = ("obs", "actions", "rewards", "discounts")


def worker(algorithm: str, env: str = "toy:chain", **given: Any) -> RolloutWorker:
    return RolloutWorker(make_policy(algorithm, env=env, overrides=SMALL), **given)


def joined(batches: list[Batch], name: str) -> torch.Tensor:
    parts = [batch[name] for batch in batches]
    if "first" in batches[0] and name == "obs":
        # The last row is the first one of the next.
        parts = [*(part[:-1] for part in parts[:-1]), parts[-1]]
    return torch.cat(parts)


@pytest.mark.parametrize("num_envs", [1, 3])
def test_fragments_of_unrolls_continue_each_other(num_envs: int) -> None:
    short, long = (
        worker("impala", num_envs=num_envs, rollout_fragment_length=length) for length in (10, 40)
    )
    parts, whole = [short.sample() for _ in range(4)], long.sample()
    assert whole.rewards.shape == (40, num_envs)
    assert whole.obs.shape[:2] == whole.first.shape == (41, num_envs)
    assert {"logits"} == whole.extras.keys()
    for name in (*COLUMNS, "mask"):
        assert torch.equal(joined(parts, name), whole[name]), name
    assert short.pop_episodes() == long.pop_episodes()
    short.close()
    long.close()


def test_the_memory_of_a_stream_goes_on_until_its_episode_ends() -> None:
    memory = "learner_config.model.memory=gru"
    policy = make_policy("impala", env="toy:chain", overrides=[*SMALL, memory])
    with RolloutWorker(policy, rollout_fragment_length=10) as recurrent:
        batches = [recurrent.sample() for _ in range(3)]
    before = torch.cat([batch.extras["memory"] for batch in batches])[:, 0]
    first = torch.cat([batch.first[:-1] for batch in batches])[:, 0]
    with torch.no_grad():
        for t in range(1, len(before)):
            obs = torch.cat([batch.obs[:-1] for batch in batches])[t - 1]
            _, state = policy.agent.network.act(  # type: ignore[attr-defined]
                obs, before[t - 1 : t], first[t - 1 : t]
            )
            assert torch.allclose(state[0], before[t], atol=1e-6)


@pytest.mark.parametrize("algorithm", ["ppo", "impala", "a3c"])
def test_a_memory_gets_the_action_and_the_reward_before_each_row(algorithm: str) -> None:
    """T2, S5: what the learner gets for a row is what the agent had there."""
    settings = [
        "learner_config.model.memory=gru",
        "learner_config.model.memory_inputs=[action, reward]",
        "learner_config.algo.reward_scale=0.5",
    ]
    policy = make_policy(algorithm, env="toy:target", overrides=[*SMALL, *settings])
    with RolloutWorker(policy, rollout_fragment_length=10) as informed:
        batches = [informed.sample() for _ in range(4)]
    network: Any = policy.learner.module_dict()["network"]
    for batch in batches:
        acted = batch.mask != 0
        with torch.no_grad():
            state, before = state_before(batch), inputs_before(batch)
            found = network.unroll(batch.obs, state, batch.first, **before)[0].columns()["mean"]
        assert torch.allclose(found[:-1][acted], batch.extras["mean"][acted], atol=1e-6)
        expected = torch.where(batch.first[1:], torch.zeros(()), batch.rewards)
        assert torch.equal(batch.prev_rewards[1:][acted], expected[acted])
        assert expected.any()
        assert not batch.prev_rewards[batch.first].any()


def test_fragments_of_transitions_continue_each_other() -> None:
    with worker("dqn", rollout_fragment_length=10) as short:
        parts = [short.sample() for _ in range(4)]
    with worker("dqn", rollout_fragment_length=40) as long:
        whole = long.sample()
    assert {"obs_next", "weights", "indices"} <= whole.keys()
    for name in (*COLUMNS, "obs_next", "weights"):
        # In the order in which they are completed, the end of a fragment comes with the next one.
        assert torch.equal(joined(parts, name), whole[name]), name


@pytest.mark.parametrize("at", [3, 6])
@pytest.mark.parametrize("algorithm", ["dqn", "impala"])
def test_after_a_step_that_failed_the_next_sample_begins_an_episode(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, at: int
) -> None:
    policy = make_policy(algorithm, env="tests.surreal_like.agent.rig:Failing", overrides=SMALL)
    # Not while the policy tries the environment.
    monkeypatch.setattr(Failing, "at", at)
    with RolloutWorker(policy, rollout_fragment_length=5) as failed:
        batches = []
        for _ in range(6):
            with suppress(RuntimeError):
                batches.append(failed.sample())
    assert len(batches) == 5
    pairs = []
    for batch in batches:
        if algorithm == "dqn":
            pairs.append((batch.obs[:, 0], batch.obs_next[:, 0]))
        else:
            acted = batch.mask[:, 0] > 0
            pairs.append((batch.obs[:-1, 0, 0][acted], batch.obs[1:, 0, 0][acted]))
    for before, after in pairs:
        assert torch.equal(before, after)
    seen = {float(each) for before, _ in pairs for each in before}
    # Returns of three steps need as many before the failure.
    assert seen == ({1.0, 2.0} if (algorithm, at) == ("dqn", 3) else {0.0, 1.0})


SEQUENCES = ("learner_config.replay.sequence={length: 6, burn_in: 2, period: 3}",)


def sequences(fragment: int, **given: Any) -> RolloutWorker:
    policy = make_policy("r2d2", env="toy:chain", overrides=[*SMALL, *SEQUENCES])
    return RolloutWorker(policy, rollout_fragment_length=fragment, **given)


def test_fragments_of_sequences_continue_each_other() -> None:
    with sequences(5) as short:
        parts = [short.sample() for _ in range(8)]
    with sequences(60) as long:
        whole = long.sample()
    assert whole.obs.shape[0] == whole.first.shape[0] == 9
    assert whole.weights.shape == whole.indices.shape == (whole.rewards.shape[1],)
    for name in (*COLUMNS, "first", "mask"):
        seen = torch.cat([part[name] for part in parts], 1)
        assert torch.equal(seen, whole[name][:, : seen.shape[1]]), name
    assert seen.shape[1] > 8


def test_a_fragment_that_completes_no_sample_is_followed_by_the_next() -> None:
    with sequences(1, num_envs=2) as short:
        assert short.sample().rewards.shape[1] > 0
    words = [*SMALL, "learner_config.algo.n_step=9"]
    with RolloutWorker(make_policy("dqn", env="toy:chain", overrides=words)) as long:
        whole = long.sample()
    with RolloutWorker(
        make_policy("dqn", env="toy:chain", overrides=words), rollout_fragment_length=2
    ) as short:
        parts = [short.sample() for _ in range(20)]
    for name in (*COLUMNS, "obs_next"):
        seen = joined(parts, name)
        assert torch.equal(seen, whole[name][: len(seen)]), name
    assert len(seen) > 30


@pytest.mark.parametrize(
    "batch_mode",
    [pytest.param("truncate_episodes", marks=pytest.mark.slow), "complete_episodes"],
)
def test_a_policy_learns_from_what_its_worker_gives(batch_mode: str) -> None:
    for algorithm, registration in describe_algorithms().items():
        env = "toy:chain" if "discrete" in registration.actions else "toy:target"
        policy = make_policy(algorithm, env=env, overrides=SMALL)
        with RolloutWorker(policy, batch_mode=batch_mode) as each:
            assert policy.learn_on_batch(each.sample())["skipped"] == 0.0, algorithm


class Distant(UniformReplay):
    """Gives transitions over five steps, whatever the config says."""

    @classmethod
    def make_view(cls, learner_config: Config, env_config: Config, shape: tuple[int, int]) -> View:
        return NStepView(5, 0.5)


def test_a_replay_of_the_authors_defines_the_samples() -> None:
    words = [*SMALL, f"learner_config.replay.type={__name__}:Distant"]
    policy = make_policy("dqn", env="toy:chain", overrides=words)
    with RolloutWorker(policy, batch_mode="complete_episodes") as own:
        batch = own.sample()
    assert batch.discounts[0] == 0.5**5


@pytest.mark.parametrize("algorithm", ["impala", "dqn"])
def test_a_batch_is_one_whole_episode(algorithm: str) -> None:
    with worker(algorithm, batch_mode="complete_episodes") as whole:
        for _ in range(3):
            batch = whole.sample()
            (episode,) = whole.pop_episodes()
            assert len(batch.rewards) == episode["length"]
            if algorithm == "impala":
                assert batch.mask.all()
                assert batch.first[:, 0].tolist() == [True] + [False] * len(batch.rewards)
                assert float(batch.rewards.sum()) == pytest.approx(episode["return"])


def test_frames_are_stacked_from_the_first_row_of_an_episode() -> None:
    words = [*SMALL, "env_config.frame_stack=3"]
    policies = [make_policy("impala", env="toy:chain", overrides=words) for _ in range(2)]
    with RolloutWorker(policies[0], rollout_fragment_length=8) as unrolls:
        unroll = unrolls.sample()
    with RolloutWorker(policies[1], batch_mode="complete_episodes") as whole:
        episode = whole.sample()
    steps = min(len(episode.rewards), 8)
    assert episode.obs.shape == (len(episode.rewards) + 1, 1, 3, 8)
    assert torch.equal(episode.obs[: steps + 1], unroll.obs[: steps + 1])
    assert torch.equal(episode.obs[0, 0, 0], episode.obs[0, 0, 2])


def test_a_horizon_cuts_episodes() -> None:
    with worker("impala", batch_mode="complete_episodes", horizon=3) as whole:
        batch = whole.sample()
    assert len(batch.rewards) == 3
    assert batch.discounts[-1] > 0.0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"batch_mode": "episodes"}, "'episodes', expected truncate_episodes or complete"),
        (
            {"batch_mode": "complete_episodes", "num_envs": 2},
            "^batch_mode .* num_envs is 2, but",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        worker("impala", **given)


def test_learned_steps_move_the_schedules() -> None:
    policy = make_policy("dqn", env="toy:chain", overrides=SMALL)
    with RolloutWorker(policy, rollout_fragment_length=50) as single:
        assert policy.agent.epsilon == 1.0  # type: ignore[attr-defined]
        for _ in range(20):
            policy.learn_on_batch(single.sample())
    assert policy.learner.env_steps > 800
    assert policy.agent.epsilon < 1.0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("algorithm", "gives"),
    [("dqn", "single rows"), pytest.param("r2d2", "sequences", marks=needs("r2d2"))],
)
def test_a_worker_set_of_rows_or_sequences_is_refused(algorithm: str, gives: str) -> None:
    with pytest.raises(ConfigError, match=f"{algorithm} learns from {gives}"):
        WorkerSet(make_policy(algorithm, env="toy:chain", overrides=SMALL), num_workers=1)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_workers_sample_again_with_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_set, "_WAIT_SECONDS", 20.0)
    policy = make_policy(
        "impala", env="toy:chain", overrides=[*SMALL, "learner_config.parameter_publish.every=9"]
    )
    with WorkerSet(policy, num_workers=1) as workers:
        first = int(workers.sample().version.max())
        second = workers.sample().version
        assert int(second.min()) == int(second.max()) == first + 1
        # Nothing was learned, and yet these are newer weights.
        workers.set_weights(policy)
        workers.set_weights(policy)
        assert int(workers.sample().version.max()) in (first + 2, first + 3)
        flow = workers.rollouts().combine(concat(60))
        assert next(flow).rows >= 60
    assert policy.learner.iteration == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_four_lines_solve_cartpole(num_workers: int) -> None:
    words = ("learner_config.algo.learning_rate=1e-3", "session_config.sender.flush_iteration=128")
    policy = make_policy("ppo", env="gym:CartPole-v1", overrides=words)
    with WorkerSet(policy, num_workers=num_workers) as workers:
        for batch in islice(workers.rollouts(), 60 // max(1, num_workers)):
            policy.learn_on_batch(batch)
            workers.set_weights(policy)
    scores = []
    with RolloutWorker(policy, num_envs=8, rollout_fragment_length=500) as judge:
        judge.sample()
        judge.sample()
        scores = [episode["return"] for episode in judge.pop_episodes()]
    # Rows of two workers are older than their policy, by how much depends on the machine.
    assert sum(scores) / len(scores) > (100.0 if num_workers else 195.0)
