import contextlib
from typing import Any

import numpy as np
import pytest

from session.errors import ConfigError
from surreal_like.env.batched import BatchedVector
from surreal_like.env.environment import Env, VectorEnv
from surreal_like.env.gym_adapter import GymAdapter
from surreal_like.env.vector import SyncVector, as_vector, make_vector_env, stream_seeds
from surreal_like.errors import DataError, SpecError
from tests.contracts.env import VectorEnvContract
from tests.surreal_like.env.gym_samples import register_counters
from tests.surreal_like.env.samples import Counter, Scripted

SAMPLES = "tests.surreal_like.env.samples"


class TestSyncCartPole(VectorEnvContract):
    def make(self, num_envs: int, seed: int) -> VectorEnv:
        config = {"env_name": "gym:CartPole-v1", "vector": "sync"}
        return make_vector_env(config, num_envs=num_envs, seed=seed)


class TestNativeCartPole(VectorEnvContract):
    def make(self, num_envs: int, seed: int) -> VectorEnv:
        env = make_vector_env({"env_name": "gym:CartPole-v1"}, num_envs=num_envs, seed=seed)
        assert isinstance(env, BatchedVector)
        return env


class TestSyncBlackjack(VectorEnvContract):
    def make(self, num_envs: int, seed: int) -> VectorEnv:
        return make_vector_env({"env_name": "gym:Blackjack-v1"}, num_envs=num_envs, seed=seed)


class TestSyncGrid(VectorEnvContract):
    def make(self, num_envs: int, seed: int) -> VectorEnv:
        return make_vector_env({"env_name": "toy:grid"}, num_envs=num_envs, seed=seed)


class TestSyncTarget(VectorEnvContract):
    def make(self, num_envs: int, seed: int) -> VectorEnv:
        return make_vector_env({"env_name": "toy:target"}, num_envs=num_envs, seed=seed)


class TestNativeCounter(VectorEnvContract):
    def make(self, num_envs: int, seed: int) -> VectorEnv:
        register_counters()
        env = make_vector_env({"env_name": "gym:SampleCounter-v0"}, num_envs=num_envs, seed=seed)
        assert isinstance(env, BatchedVector)
        return env


def build(num_envs: int = 2, **config: Any) -> VectorEnv:
    register_counters()
    config = {"env_name": "gym:CartPole-v1", **config}
    return make_vector_env(config, num_envs=num_envs, seed=0)


def test_rows_of_a_stream_follow_each_other() -> None:
    env = SyncVector(
        [Counter(2), Counter(3)],
        obs_spec=Counter.obs_spec,
        action_spec=Counter.action_spec,
        info_keys=("count",),
    )
    obs, info = env.reset()
    assert (obs.tolist(), info["count"].tolist()) == ([[0], [0]], [0, 0])
    rows = [env.step(np.array([0, 0])) for _ in range(5)]
    assert [row[0][:, 0].tolist() for row in rows] == [[1, 1], [2, 2], [0, 3], [1, 0], [2, 1]]
    assert [row[1].tolist() for row in rows] == [[1, 1], [2, 2], [0, 3], [1, 0], [2, 1]]
    ends = [[False, False], [True, False], [False, True], [False, False], [True, False]]
    assert [row[2].tolist() for row in rows] == ends
    assert rows[1][4]["metrics"] == [{"my/steps": 2}, None]
    assert "metrics" not in rows[0][4]
    assert rows[2][4]["count"].tolist() == [0, 3]


def test_a_single_env_is_a_vector_of_one() -> None:
    env = as_vector(GymAdapter("CartPole-v1"))
    assert (env.num_envs, env.obs_spec) == (1, {"type": "float32", "dim": [4]})
    obs, _ = env.reset()
    assert obs.shape == (1, 4)
    obs, _, terminated, _, _ = env.step(np.array([1]))
    assert (obs.shape, terminated.shape) == ((1, 4), (1,))
    assert as_vector(env) is env
    assert as_vector(Counter(), ["count"]).reset()[1]["count"].tolist() == [0]


def test_raw_rewards_are_kept_beside_changed_ones() -> None:
    env = build(env_name=f"{SAMPLES}:Counter", wrappers=[f"{SAMPLES}:Scaled"])
    env.reset()
    _, reward, _, _, info = env.step(np.array([0, 0]))
    assert (reward.tolist(), info["raw_reward"].tolist()) == ([2, 2], [1, 1])


def test_discrete_actions_arrive_as_int() -> None:
    class Asking(Counter):
        def step(self, action: int) -> Any:
            assert type(action) is int
            return super().step(action)

    env = as_vector(Asking())
    env.reset()
    env.step(np.array([2]))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (
            (np.zeros(1), 0.0, False, {}),
            r"step\(\) gave 4 values \(ndarray, float, bool, dict\), expected",
        ),
        (np.zeros(1), r"step\(\) gave a ndarray"),
        ((np.zeros(1), 0.0, False, False, None), r"NoneType\), expected"),
        ((np.zeros(1), "x", False, False, {}), r"reward: 'x' given, expected a number"),
        ((np.zeros(2), 0.0, False, False, {}), r"obs: shape \[2\] given in stream 0"),
    ],
)
def test_what_step_must_not_give(result: Any, message: str) -> None:
    env = as_vector(Scripted(result))
    env.reset()
    with pytest.raises(DataError, match=message):
        env.step(np.array([0]))


def test_what_reset_must_not_give() -> None:
    with pytest.raises(DataError, match=r"reset\(\) gave a ndarray, expected \(observation, info"):
        as_vector(Scripted(np.zeros(1), at_reset=True)).reset()


def test_streams_have_seeds_of_their_own() -> None:
    seeds = stream_seeds(3, 100)
    assert len(set(seeds)) == 100
    assert stream_seeds(3, 5) == seeds[:5]
    assert set(stream_seeds(4, 100)).isdisjoint(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)


@pytest.mark.parametrize("mode", ["native", "sync"])
def test_streams_differ_and_seeds_matter(mode: str) -> None:
    config = {"env_name": "gym:CartPole-v1", "vector": mode}
    first, again, other = (
        make_vector_env(config, num_envs=3, seed=seed).reset()[0] for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first[0], first[1])


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({}, BatchedVector),
        ({"vector": "native", "limit_episode_length": 7}, BatchedVector),
        ({"vector": "sync"}, SyncVector),
        ({"env_name": "toy:chain"}, SyncVector),
        ({"env_name": "gym:Acrobot-v1"}, SyncVector),
        ({"wrappers": [f"{SAMPLES}:Scaled"]}, SyncVector),
        ({"action_repeat": 2}, SyncVector),
        ({"metric_keys": ["lives"]}, SyncVector),
        ({"env_args": {"max_episode_steps": -1}, "limit_episode_length": 9}, SyncVector),
        ({"env_name": "gym:SampleOther-v0"}, SyncVector),  # native gives other observations
    ],
)
def test_native_code_only_where_it_gives_the_same(config: Any, kind: type) -> None:
    assert type(build(**config)) is kind


def test_native_code_gives_what_the_spec_of_the_config_says() -> None:
    obs_spec = {"type": "float32", "dim": [4]}
    assert isinstance(build(obs_spec=obs_spec, action_spec={"dim": [2]}), BatchedVector)
    with pytest.raises(SpecError, match=r"obs_spec.dim differs.*\[5\].*\[4\]"):
        build(obs_spec={"type": "float32", "dim": [5]})


@pytest.mark.parametrize("mode", ["native", "sync"])
@pytest.mark.parametrize(("limit", "steps"), [(3, 3), (3.0, 3), (0, 4), (-1, 4), (None, 4), (9, 4)])
def test_the_horizon_cuts_episodes(mode: str, limit: Any, steps: int) -> None:
    env = build(env_name="gym:SampleCounter-v0", vector=mode, limit_episode_length=limit)
    env.reset()
    rows = [env.step(np.array([0, 0])) for _ in range(steps)]
    assert [bool(row[3].all()) for row in rows] == [False] * (steps - 1) + [True]
    assert not any(row[2].any() for row in rows)


@pytest.mark.parametrize("mode", ["native", "sync"])
def test_a_second_reset_goes_on_with_the_same_generator(mode: str) -> None:
    env = build(vector=mode)
    assert not np.array_equal(env.reset()[0], env.reset()[0])


def test_native_info_keys_are_columns_from_the_start() -> None:
    env = build(env_name="gym:SampleCounter-v0", info_keys=["count"])
    assert isinstance(env, BatchedVector)
    assert env.reset()[1]["count"].tolist() == [0, 0]
    _, reward, _, _, info = env.step(np.array([0, 0]))
    assert (info["count"].dtype, info["count"].tolist()) == (np.float32, [1, 1])
    assert reward.tolist() == [1, 1]


def test_native_arguments_are_checked() -> None:
    with pytest.raises(ConfigError, match="'sutton'"):
        build(env_args={"sutton": True})


def test_evaluation_arguments_reach_every_mode() -> None:
    config: dict[str, Any] = {
        "env_name": "gym:CartPole-v1",
        "eval_mode": {"sutton_barto_reward": True},
    }
    for mode in ("native", "sync"):
        config["vector"] = mode
        for evaluation, reward in ((False, 1.0), (True, 0.0)):
            env = make_vector_env(config, num_envs=1, seed=0, evaluation=evaluation)
            env.reset()
            assert env.step(np.array([0]))[1].tolist() == [reward]


@pytest.mark.parametrize(
    ("config", "message"),
    [({"vector": "natve"}, "'natve', expected one of native, sync"), ({"num_envs": 0}, "is 0")],
)
def test_wrong_settings_are_named(config: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(**config)


def test_environments_are_closed_when_one_cannot_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Env] = []
    monkeypatch.setattr(Counter, "close", lambda self: closed.append(self))
    config = {"env_name": f"{SAMPLES}:Counter", "obs_spec": {"type": "uint8", "dim": [1]}}
    with pytest.raises(SpecError):
        make_vector_env(config, num_envs=3, seed=0)
    assert len(closed) == 3


def test_render_shows_the_first_stream() -> None:
    with contextlib.closing(build(env_name="toy:chain")) as env:
        assert env.render() is None


def test_a_pulse_goes_between_the_environments() -> None:
    calls: list[str] = []
    config = {"env_name": "toy:chain", "vector": "sync"}
    env = make_vector_env(config, num_envs=3, seed=0, pulse=lambda: calls.append(""))
    env.reset()
    env.step(np.zeros(3, np.int64))
    assert len(calls) == 6


def test_a_reward_that_is_no_number_is_named() -> None:
    config = {
        "env_name": "tests.surreal_like.env.samples:Spoiled",
        "env_args": {"what": "nan reward"},
    }
    env = make_vector_env(config, num_envs=2, seed=0)
    env.reset()
    with pytest.raises(DataError, match=r"^reward: NaN at"):
        env.step(np.zeros(2, np.int64))
