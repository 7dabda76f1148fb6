"""What an environment gives is stored as it is, or refused by name: every way in."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from session.errors import ConfigError
from session.nest import flatten
from surreal_like import GymAdapter, check_env, make_policy
from surreal_like.addons.gateway.driving import _play
from surreal_like.addons.hindsight.view import GoalReward
from surreal_like.data.casts import unpack
from surreal_like.env.batched import BatchedVector
from surreal_like.env.check import tried_specs
from surreal_like.env.environment import Env, Step
from surreal_like.env.spaces import observation_reader
from surreal_like.env.vector import SyncVector, as_vector
from surreal_like.env.wrappers import ActionRepeat, FloatObservation
from surreal_like.errors import DataError
from surreal_like.replay.tuple_replay import ExpTuple
from tests.surreal_like.env.gym_samples import NativeCounter
from tests.surreal_like.env.samples import Counter
from tests.surreal_like.replay.test_tuple_replay import make_replay


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """A warning of numpy would reach the terminal, without a name."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=RuntimeWarning)
        yield


# Gymnasium takes it, its annotations do not.
FLAG: Any = np.bool_
# Space, a value that it must take, the value as stored, and one that it must refuse.
READ: list[tuple[Any, Any, Any, Any]] = [
    (spaces.Box(0, 255, (2,), np.uint8), [3.0, 255], [3, 255], [0.5, 0.25]),
    (spaces.Box(0, 255, (2,), np.uint8), np.array([1, 2]), [1, 2], [-1, 2]),
    (spaces.Box(-9, 9, (1,), np.int8), [-9], [-9], [200]),
    (spaces.Box(-9, 9, (1,), np.int16), [4.0], [4], [4.5]),
    (spaces.Box(-9, 9, (1,), np.int32), [4], [4], [2**31]),
    (spaces.Box(-9, 9, (1,), np.int64), [4], [4], [np.nan]),
    (spaces.Box(0, 9, (1,), np.uint16), [4], [4], [1 << 16]),
    (spaces.Box(0, 9, (1,), np.uint32), [4], [4], [-4]),
    (spaces.Box(0, 1, (2,), FLAG), [1, 0.0], [True, False], [0.3, 1]),
    (spaces.Box(-9, 9, (1,), np.float32), [0.1], [np.float32(0.1)], [1e39]),
    (spaces.Box(-9, 9, (1,), np.float64), [7], [7.0], [(1 << 24) + 1]),
    (spaces.Discrete(5), 4.0, 4, 3.5),
    (spaces.Discrete(5, start=2), 6, 4, 2.5),
    (spaces.MultiDiscrete([3, 3]), [2, 1], [2, 1], [0.5, 1]),
    (spaces.MultiDiscrete([3, 3], start=[1, 2]), [1, 4], [0, 2], [1.5, 2]),
    (spaces.MultiBinary(2), [1.0, 0], [1, 0], [0.9, 0]),
]
NESTS: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = [
    ("obs", lambda space: space, lambda value: value),
    ("obs/cam", lambda space: spaces.Dict({"cam": space}), lambda value: {"cam": value}),
    (
        "obs/a/1",
        lambda space: spaces.Dict({"a": spaces.Tuple((spaces.Discrete(2), space))}),
        lambda value: {"a": (0, value)},
    ),
]


@pytest.mark.parametrize(("path", "around", "inside"), NESTS)
@pytest.mark.parametrize(("space", "good", "stored", "bad"), READ)
def test_each_space_is_read_exactly(
    space: Any, good: Any, stored: Any, bad: Any, path: str, around: Any, inside: Any
) -> None:
    read = observation_reader(around(space))
    found = flatten(read(inside(good)), "obs")[path]
    assert np.array_equal(found, stored)
    with pytest.raises(DataError, match=f"^{path}: .* does not fit into {found.dtype}"):
        read(inside(bad))


class Camera(gymnasium.Env[Any, Any]):
    """Declares bytes and gives shares."""

    observation_space = spaces.Dict({"cam": spaces.Box(0, 255, (3,), np.uint8)})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return {"cam": 0.1 + 0.5 * self.np_random.random(3)}, {}

    def step(self, action: Any) -> Any:
        return {"cam": 0.1 + 0.5 * self.np_random.random(3)}, 0.0, False, False, {}


def test_a_gymnasium_environment_is_refused_where_it_is_tried() -> None:
    said = r"obs/cam: 0\.\d+ at \[0\] of \[3\] does not fit into uint8: .* from 0 to 255"
    name = f"{__name__}:Camera"
    with pytest.raises(DataError, match=f"^{said}"):
        GymAdapter(Camera()).reset()
    with pytest.raises(ConfigError, match=f"Camera.*{said}"):
        tried_specs({"env_name": name})
    for env in (name, Camera):
        report = check_env(env)
        assert "obs/cam" in str([one for one in report.findings if one.kind == "error"])


def stepped(**given: Any) -> dict[str, Any]:
    return {"obs": np.zeros(1), "reward": 1.0, "terminated": False, "truncated": 0, **given}


def of_one(**given: Any) -> Any:
    """The step of a single environment that gives this."""

    class Giving(Counter):
        def step(self, action: Any) -> Any:
            values = stepped(**given)
            info = values.pop("info", {})
            return (*values.values(), info)

    return Giving()


def sync(**given: Any) -> Any:
    keys = [key for key in given.get("info", {}) if key.startswith("my_")]
    env = as_vector(of_one(**given), keys)
    env.reset()
    return env.step(np.zeros(1, np.int64))


def native(**given: Any) -> Any:
    class Giving(NativeCounter):
        def step(self, actions: Any) -> Any:
            values = {name: np.array([value]) for name, value in stepped(**given).items()}
            return (*values.values(), {})

    with contextlib.closing(BatchedVector(Giving(1))) as env:
        env.reset()
        return env.step(np.zeros(1, np.int64))


def client(**given: Any) -> Any:
    class Session:
        def reset(self, obs: Any) -> int:
            return 0

        def step(self, *_: Any, **__: Any) -> int:
            raise EOFError

        end = step

    with contextlib.suppress(EOFError):
        _play(of_one(**given), Session())  # type: ignore[arg-type]


WAYS: list[tuple[Callable[..., Any], tuple[str, ...]]] = [
    (sync, ("reward", "terminated", "truncated")),
    (native, ("reward", "terminated", "truncated")),
    (client, ("terminated", "truncated")),
]
WRONG = {
    "reward": {1e39: r"1e\+39", np.nan: "NaN", -np.inf: "-inf"},
    "terminated": {np.nan: "NaN", 2: "2", -1.0: "-1"},
    "truncated": {np.nan: "NaN", 2: "2", 0.5: "0.5"},
}


@pytest.mark.parametrize(
    ("way", "field", "value"),
    [(way, field, value) for way, fields in WAYS for field in fields for value in WRONG[field]],
)
def test_rewards_and_flags_are_exact(way: Any, field: str, value: Any) -> None:
    with pytest.raises(DataError, match=f"^{field}: {WRONG[field][value]}"):
        way(**{field: value})


@pytest.mark.parametrize("way", [sync, native])
def test_flags_may_be_numbers(way: Any) -> None:
    _, reward, terminated, truncated, _ = way(terminated=1.0, truncated=np.int8(0), reward=3)
    assert (reward.tolist(), terminated.tolist(), truncated.tolist()) == ([3.0], [True], [False])
    assert (reward.dtype, terminated.dtype) == (np.float32, np.bool_)


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ({"raw_reward": 1e39}, r"info\['raw_reward'\]: 1e\+39"),
        ({"life_lost": 2}, r"info\['life_lost'\]: 2"),
        ({"my_key": 1e39}, r"info\['my_key'\]: 1e\+39"),
    ],
)
def test_numbers_of_info_are_exact(info: Any, said: str) -> None:
    with pytest.raises(DataError, match=f"^{said}.* does not fit"):
        sync(info=info)


def test_a_later_number_of_info_must_fit_the_type_of_the_first() -> None:
    class Narrow(Counter):
        def reset(self) -> Any:
            return super().reset()[0], {"my_key": np.int8(1)}

        def step(self, action: Any) -> Step:
            return (*super().step(action)[:4], {"my_key": 300})

    env = as_vector(Narrow(), ["my_key"])
    assert isinstance(env, SyncVector)
    assert env.reset()[1]["my_key"].tolist() == [1]
    with pytest.raises(DataError, match=r"^info\['my_key'\] in stream 0: 300 does not fit"):
        env.step(np.zeros(1, np.int64))


def test_a_policy_refuses_what_its_environment_could_not_have_given() -> None:
    words = ["learner_config.model.hidden_sizes=[8]", "learner_config.device=cpu"]
    policy = make_policy("dqn", env=f"{__name__}:Pixels", overrides=words)
    assert policy.compute_actions([0.0, 255])[0].shape == ()
    for call in (policy, policy.compute_actions):
        with pytest.raises(DataError, match=r"^obs: 0\.4 at \[0\] of \[2\] does not fit"):
            call([0.4, 1.0])


class Pixels(Counter):
    """Bytes, as they should be."""

    obs_spec = {"type": "uint8", "dim": [2]}  # noqa: RUF012

    def reset(self) -> Any:
        return np.zeros(2, np.uint8), super().reset()[1]

    def step(self, action: Any) -> Step:
        return (np.ones(2, np.uint8), *super().step(action)[1:])


def large(env: Env) -> Env:
    env.obs_spec = {"type": "int64", "dim": [1]}
    env.reset = lambda: (np.array([(1 << 24) + 1]), {})  # type: ignore[method-assign]
    return env


def test_whole_numbers_that_lose_digits_are_refused() -> None:
    with pytest.raises(DataError, match=r"^obs: 16777217 .* lose digits"):
        FloatObservation(large(Counter())).reset()


def test_numbers_of_an_authors_replay_and_goals_are_exact() -> None:
    zero = np.zeros(1, np.float32)
    info = {"discount": 1.0, "version": 0, "extras": {}}
    for change, name in (
        ({"reward": 1e39}, "rewards"),
        ({"info": {**info, "discount": 1e39}}, "discount"),
        ({"info": {**info, "version": 0.5}}, "version"),
    ):
        row = ExpTuple((zero, zero), zero, 0.0, False, info)._replace(**change)
        with pytest.raises(DataError, match=f"^{name}: .* does not fit"):
            make_replay().aggregate_batch([row])
    goals = GoalReward(lambda *_: np.full(2, 1e39), lambda *_: np.full(2, 2.0))
    two = np.zeros((2, 1))
    with pytest.raises(DataError, match=r"^compute_reward: 1e\+39"):
        goals.rewards(two, two, {})
    with pytest.raises(DataError, match=r"^compute_terminated: 2"):
        goals.terminated(two, two, {})


def test_an_action_too_large_for_its_type_is_refused() -> None:
    with pytest.raises(DataError, match=r"^action: 1e\+39"):
        unpack(np.array([1e39]), np.dtype(np.float32))


class _Paid(Env):
    """Gives one reward, and flags of the same form."""

    obs_spec = {"type": "float32", "dim": [1]}  # noqa: RUF012
    action_spec = {"type": "discrete", "dim": [2]}  # noqa: RUF012

    def __init__(self, reward: Any, over: Any = False) -> None:
        self.reward, self.over = reward, over

    def reset(self) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Step:
        return np.zeros(1, np.float32), self.reward, self.over, self.over, {"raw_reward": 2.0}


class _PaidGym(gymnasium.Env[Any, Any]):
    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def __init__(self, reward: Any) -> None:
        self.reward = reward

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), self.reward, False, False, {}


@pytest.mark.parametrize(
    "build",
    [_Paid, lambda given: GymAdapter(_PaidGym(given)), lambda given: ActionRepeat(_Paid(given), 1)],
)
def test_rewards_are_numbers_of_any_kind_or_refused(build: Callable[[Any], Any]) -> None:
    for given in (1, True, np.int64(1), np.array(1.0), np.array([1.0]), np.array([[True]])):
        vector = as_vector(build(given))
        vector.reset()
        assert vector.step(np.array([0]))[1].tolist() == [1.0]
    for wrong in (None, "1", b"1", [1.0], np.array([1, 2]), 1j, np.array("1"), 10**400):
        vector = as_vector(build(wrong))
        vector.reset()
        with pytest.raises(DataError, match=r"^reward: .* given, expected a number$") as caught:
            vector.step(np.array([0]))
        assert len(str(caught.value)) < 120


def test_flags_may_be_arrays_of_one_element() -> None:
    for given in (1, np.bool_(True), np.array([True]), np.array([[1.0]])):
        vector = as_vector(_Paid(0.0, given))
        vector.reset()
        assert [each.tolist() for each in vector.step(np.array([0]))[2:4]] == [[True], [True]]
    for wrong in (None, "yes", np.array([True, False])):
        vector = as_vector(_Paid(0.0, wrong))
        vector.reset()
        with pytest.raises(DataError, match=r"^terminated: "):
            vector.step(np.array([0]))
