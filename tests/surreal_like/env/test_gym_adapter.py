import logging
import sys
import types
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import error, spaces

from session.errors import ConfigError, MissingExtra
from session.program import install_line
from surreal_like.env.environment import Env
from surreal_like.env.gym_adapter import GymAdapter, find_gym_spec
from surreal_like.env.spaces import specs_from_spaces
from surreal_like.errors import DataError, SpecError
from tests.contracts.env import EnvContract
from tests.surreal_like.env.gym_samples import Joint, Rich


class TestCartPole(EnvContract):
    def make(self) -> Env:
        return GymAdapter("gym:CartPole-v1")


class TestPendulum(EnvContract):
    def make(self) -> Env:
        return GymAdapter("Pendulum-v1")


class TestBlackjack(EnvContract):
    def make(self) -> Env:
        return GymAdapter("gym:Blackjack-v1")


class TestRich(EnvContract):
    def make(self) -> Env:
        return GymAdapter(Rich())


def test_a_gym_environment_has_five_values_and_our_dtypes() -> None:
    env = GymAdapter(gymnasium.make("Pendulum-v1"))
    obs, info = env.reset()
    assert (obs.dtype, info) == (np.float32, {})
    obs, reward, terminated, truncated, _ = env.step(np.zeros(1, np.float32))
    assert (obs.dtype, type(reward)) == (np.float32, float)
    assert (terminated, truncated) == (False, False)
    assert env.metadata["render_fps"] == 30
    env.close()


SPACES = [
    (spaces.Box(-1, 1, (2, 3), np.float64), {"type": "float32", "dim": [2, 3]}),
    (spaces.Box(0, 255, (4,), np.uint8), {"type": "uint8", "dim": [4]}),
    (spaces.Discrete(5, start=2), {"type": "int64", "dim": [], "num": 5}),
    (spaces.MultiDiscrete([2, 3]), {"type": "int64", "dim": [2], "num": [2, 3]}),
    (spaces.MultiBinary(3), {"type": "int8", "dim": [3], "num": 2}),
    (
        spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))),
        {
            "0": {"type": "int64", "dim": [], "num": 2},
            "1": {"type": "int64", "dim": [], "num": 3},
        },
    ),
    (spaces.Dict({"a": spaces.Discrete(2)}), {"a": {"type": "int64", "dim": [], "num": 2}}),
]

ACTIONS = [
    (spaces.Discrete(3), {"type": "discrete", "dim": [3]}),
    (
        spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
        {"type": "multi_discrete", "dim": [2, 3, 4, 5]},
    ),
    (spaces.MultiBinary(2), {"type": "multi_discrete", "dim": [2, 2]}),
    (
        spaces.Box(-0.4, 0.1, (2,)),
        {"type": "continuous", "dim": [2], "low": [-0.4, -0.4], "high": [0.1, 0.1]},
    ),
    (spaces.Box(-np.inf, np.inf, (1,)), {"type": "continuous", "dim": [1]}),
    (spaces.Box(-2, 0.5, ()), {"type": "continuous", "dim": [1], "low": [-2.0], "high": [0.5]}),
    (
        spaces.Box(np.array([0, -np.inf]), np.array([np.inf, np.inf]), dtype=np.float64),
        {"type": "continuous", "dim": [2], "low": [0.0, -np.inf]},
    ),
]


@pytest.mark.parametrize(("space", "spec"), SPACES)
def test_specs_of_observation_spaces(space: Any, spec: Any) -> None:
    assert specs_from_spaces(space, spaces.Discrete(2))[0] == spec


@pytest.mark.parametrize(("space", "spec"), ACTIONS)
def test_specs_of_action_spaces(space: Any, spec: Any) -> None:
    assert specs_from_spaces(spaces.Discrete(2), space)[1] == spec


@pytest.mark.parametrize(
    ("obs", "action", "message"),
    [
        (spaces.Text(3), spaces.Discrete(2), "observation space"),
        (spaces.Dict({"a/b": spaces.Discrete(2)}), spaces.Discrete(2), "'a/b' cannot .*rename it"),
        (spaces.Discrete(2), spaces.Tuple((spaces.Discrete(2),)), "action space"),
        (spaces.Discrete(2), spaces.Box(0, 3, (1,), np.int32), "action space"),
    ],
)
def test_spaces_without_a_spec_are_named(obs: Any, action: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        specs_from_spaces(obs, action)


def test_every_kind_of_observation_is_read() -> None:
    env = GymAdapter(Rich())
    env.seed(3)
    obs, info = env.reset()
    assert info == {"seed": 3}
    assert (obs["state"].dtype, obs["image"].dtype) == (np.float32, np.uint8)
    assert (obs["pair"][0].dtype, obs["pair"][0].item()) == (np.int64, 1)  # 6, counted from 5
    assert obs["pair"][1].tolist() == [1, 1]
    assert obs["many"].tolist() == [3, 4]
    assert env.reset()[1] == {"seed": None}  # later episodes go on with the same generator


def test_a_missing_part_of_an_observation_is_named() -> None:
    with pytest.raises(DataError, match="obs: the environment gave no part 'state'"):
        GymAdapter(Rich(bad=True)).reset()


def test_discrete_actions_are_counted_from_zero() -> None:
    inner = Rich()
    env = GymAdapter(inner)
    env.reset()
    for action in (0, np.int64(1), np.array(2)):
        env.step(action)
    assert inner.taken == [-1, 0, 1]
    assert all(type(action) is int for action in inner.taken)
    for wrong in (3, -1, 0.5, [0]):
        with pytest.raises(DataError, match="action:"):
            env.step(wrong)


def test_actions_arrive_in_the_shape_and_dtype_of_their_space() -> None:
    inner = Joint(
        spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[0, 1], [2, 3]]))
    )
    env = GymAdapter(inner)
    env.reset()
    env.step([1, 2, 3, 4])
    assert inner.taken[0].tolist() == [[1, 3], [5, 7]]
    assert inner.action_space.contains(inner.taken[0])
    inner = Joint(spaces.MultiBinary((2, 2)))
    GymAdapter(inner).step([1, 0, 0, 1])
    assert inner.taken[0].tolist() == [[1, 0], [0, 1]]
    assert inner.action_space.contains(inner.taken[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_space_of_one_number_gets_an_array_without_axes(dtype: Any) -> None:
    inner = Joint(spaces.Box(-1.0, 1.0, (), dtype))
    GymAdapter(inner).step([5.0])
    assert inner.action_space.contains(inner.taken[0])
    assert (inner.taken[0].tolist(), inner.taken[0].dtype) == (1.0, dtype)


class OldReset(Joint):
    """Resets as environments of gym did."""

    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class WrongReset(Joint):
    """Fails in its own code, with the same kind of error."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return len(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("env", "problem", "words"),
    [
        (OldReset(), DataError, r"reset\(\) of OldReset does not take seed: define reset\(self"),
        (WrongReset(), TypeError, "has no len"),
    ],
)
def test_a_reset_that_takes_no_seed_is_named(env: Any, problem: Any, words: str) -> None:
    with pytest.raises(problem, match=words):
        GymAdapter(env).reset()


@pytest.mark.parametrize("given", [None, (1, 2), {}])
def test_a_step_that_gives_something_else_is_named(
    given: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Joint, "step", lambda self, action: given)
    with pytest.raises(DataError, match=r"step\(\) gave .*, expected \(observation, reward"):
        GymAdapter(Joint()).step([0.0, 0.0])


def test_continuous_actions_are_clipped_by_default() -> None:
    inner = Joint()
    GymAdapter(inner).step([5.0, -5.0])
    assert (inner.taken[0].tolist(), inner.taken[0].dtype) == ([1, -1], np.float64)
    with pytest.raises(DataError, match=r"action: 5\.0"):
        GymAdapter(Joint(), {"clip_action": False}).step([5.0, 0.0])
    with pytest.raises(DataError, match="action: NaN"):
        GymAdapter(Joint()).step([np.nan, 0.0])


def test_an_observation_is_a_copy_of_the_environments_buffer() -> None:
    env = GymAdapter(Joint())
    first, _ = env.reset()
    env.step([0.0, 0.0])
    assert first.tolist() == [0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CartPol-v1", "no gym:CartPol-v1; did you mean gym:CartPole-v1"),
        ("gym:CartPole", "did you mean gym:CartPole-v"),
        ("LunarLander-v2", "did you mean gym:LunarLander"),
        ("zzzzzzzz", "list environments"),
        ("nowhere.at.all:CartPole-v1", "imports nowhere.at.all: No module named 'nowhere'"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GymAdapter(name)


def test_a_name_may_carry_the_module_that_registers_it() -> None:
    assert find_gym_spec("gym:gymnasium.envs:CartPole-v1").id == "CartPole-v1"


def test_a_name_that_gymnasium_retired_is_the_same_under_its_new_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for taxi in ("Taxi-v3", "Taxi-v4"):
        # Set first: what is only deleted would not be removed again after the test.
        monkeypatch.setitem(gymnasium.registry, taxi, gymnasium.registry["CartPole-v1"])
        del gymnasium.registry[taxi]
    gymnasium.register("Taxi-v4", entry_point="gymnasium.envs.toy_text.taxi:TaxiEnv")
    with caplog.at_level(logging.WARNING):
        env = GymAdapter("gym:Taxi-v3")
    assert env.obs_spec == {"type": "int64", "dim": [], "num": 500}
    assert "using Taxi-v4" in caplog.text
    with pytest.raises(ConfigError, match="did you mean gym:Taxi-v4"):
        find_gym_spec("gym:Taxi-v3", {"is_rainy": True})  # there the two differ


def test_arguments_that_it_does_not_take_are_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"env_args: gym:CartPole-v1 .*'gravty'"):
        GymAdapter("CartPole-v1", {"env_args": {"gravty": 1}})


def test_arguments_reach_the_constructor() -> None:
    env = GymAdapter("FrozenLake-v1", {"env_args": {"map_name": "8x8", "max_episode_steps": 3}})
    assert env.obs_spec["num"] == 64
    env.reset()
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize(
    ("problem", "extra"),
    [
        (error.DependencyNotInstalled("Box2D is not installed"), install_line("box2d")),
        (error.DependencyNotInstalled("MuJoCo is not installed"), install_line("mujoco")),
        (ModuleNotFoundError("No module named 'jax'"), "No module named 'jax'"),
    ],
)
def test_a_missing_package_names_the_extra(
    problem: Exception, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise problem

    monkeypatch.setattr(gymnasium, "make", fail)
    with pytest.raises(MissingExtra) as caught:
        GymAdapter("CartPole-v1")
    assert extra in str(caught.value)
    assert "gym:CartPole-v1 needs a package" in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("package", "name", "extra"),
    [
        ("ale_py", "gym:ALE/Pong-v5", "atari"),
        ("gymnasium_robotics", "gym:gymnasium_robotics:FetchReach-v4", "robotics"),
    ],
)
def test_without_its_package_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str, name: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"{name} .*\[{extra}\]"):
        GymAdapter(name)


def test_given_specs_are_checked_and_completed() -> None:
    env = gymnasium.make("CartPole-v1")
    plain = GymAdapter(env)
    given = {
        "obs_spec": {"type": "float32", "dim": [4]},
        "action_spec": {"type": "discrete", "dim": [2]},
    }
    same = GymAdapter(env, given)
    assert (same.obs_spec, same.action_spec) == (plain.obs_spec, plain.action_spec)
    for name, wrong in (
        ("obs_spec", {"type": "float32", "dim": [5]}),
        ("action_spec", {"type": "discrete", "dim": [3]}),
    ):
        with pytest.raises(SpecError, match=name):
            GymAdapter(env, {**given, name: wrong})


def test_a_module_that_registers_only_when_asked_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As MinAtar: a second registration of one name would be a warning."""
    asked: list[int] = []
    games = types.ModuleType("games_on_demand")

    def register_envs() -> None:
        asked.append(1)
        gymnasium.register(
            "OnDemand-v0", entry_point="tests.surreal_like.env.gym_samples:OneCounter"
        )

    monkeypatch.setattr(games, "register_envs", register_envs, raising=False)
    monkeypatch.setitem(sys.modules, "games_on_demand", games)
    try:
        for _ in range(2):
            assert find_gym_spec("gym:games_on_demand:OnDemand-v0").id == "OnDemand-v0"
    finally:
        gymnasium.registry.pop("OnDemand-v0", None)
    assert asked == [1]
