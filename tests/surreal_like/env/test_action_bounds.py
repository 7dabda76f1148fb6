"""No environment and no caller gets an action outside of bounds that float32 cannot hold."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

from session.config import Config
from surreal_like import GymAdapter, check_env, make_policy, make_vector_env
from surreal_like.addons.gateway.policies import Policies
from surreal_like.agent.agent import AgentMode
from surreal_like.data.spec import inner_bounds, parse_action_spec
from surreal_like.env.actions import random_action
from surreal_like.env.batched import BatchedVector
from surreal_like.env.environment import Env, Step
from surreal_like.env.registry import make_env
from surreal_like.env.spaces import specs_from_spaces
from surreal_like.errors import DataError
from surreal_like.network.distribution import ActionScale
from tests.add_ons import needs

# None of these numbers is one of float32; below the last two there is none between them.
LOW = np.array([-0.1, -0.7, 0.3, 0.1])
HIGH = np.array([0.1, 0.7, 1.0 / 3.0, 0.1])
FLOAT64 = spaces.Box(LOW, HIGH, dtype=np.float64)
SPEC = specs_from_spaces(spaces.Discrete(2), FLOAT64)[1]
GIVEN = [LOW, HIGH, HIGH + 5.0, LOW - 5.0, HIGH.astype(np.float32), LOW.astype(np.float32)]


class Strict(gymnasium.Env[Any, Any]):
    """Accepts actions of its space only."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, space: Any = FLOAT64) -> None:
        self.action_space = space
        self.taken: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.taken.append(action)
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is outside")
        return np.zeros(1, np.float32), 0.0, False, False, {}


class StrictOwn(Env):
    """The same as an Env of this library: an action is float32, its bounds are numbers."""

    obs_spec = {"type": "float32", "dim": [1]}  # noqa: RUF012
    # float32 has no number between equal bounds.
    action_spec = {  # noqa: RUF012
        "type": "continuous",
        "dim": [3],
        "low": LOW[:3].tolist(),
        "high": HIGH[:3].tolist(),
    }

    def reset(self) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Step:
        if not ((action >= LOW[:3]) & (action <= HIGH[:3])).all():
            raise ValueError(f"{action!r} is outside")
        return np.zeros(1, np.float32), 0.0, False, False, {}


def adapter(actions: Any) -> None:
    env = GymAdapter(Strict())
    env.reset()
    for action in actions:
        env.step(action)


def configured(name: str, vector: str, size: int) -> Callable[[Any], None]:
    def play(actions: Any) -> None:
        config = {"env_name": f"{__name__}:{name}", "vector": vector, "workers": 1}
        with contextlib.closing(make_vector_env(config, num_envs=2, seed=0)) as env:
            env.reset()
            for action in actions:
                env.step(np.stack([action[:size]] * 2))

    return play


def native(actions: Any) -> None:
    vector = SyncVectorEnv([Strict, Strict])
    with contextlib.closing(BatchedVector(vector)) as env:
        env.reset()
        for action in actions:
            env.step(np.stack([action] * 2))


WAYS: dict[str, Callable[[Any], None]] = {
    "adapter": adapter,
    "sync": configured("Strict", "sync", 4),
    "process": configured("Strict", "process", 4),
    "own": configured("StrictOwn", "sync", 3),
    "native": native,
}


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=needs("workers")) if way == "process" else way for way in WAYS]
)
def test_every_way_to_step_clips_to_the_bounds_as_they_are(way: str) -> None:
    WAYS[way](GIVEN)


def test_a_bound_is_reached() -> None:
    space = spaces.Box(-0.4, 0.4, (1,), np.float32)
    gym_env = Strict(space)
    GymAdapter(gym_env).step([9.0])
    assert gym_env.taken[0] == space.high
    gym_env = Strict()
    GymAdapter(gym_env).step(HIGH)
    np.testing.assert_allclose(gym_env.taken[0], HIGH, rtol=1e-7)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_what_is_legal_is_taken_and_nothing_else(dtype: Any) -> None:
    space = spaces.Box(-0.1, 0.1, (1,), dtype)
    gym_env = Strict(space)
    env = GymAdapter(gym_env, {"clip_action": False})
    env.reset()
    high = space.high.astype(np.float64)
    for legal in (high, -high, high.astype(np.float32)):
        env.step(legal)
    for illegal in (np.nextafter(high, 1.0), np.nextafter(-high, -1.0), [1e30]):
        with pytest.raises(DataError, match="expected a value between"):
            env.step(illegal)


def test_random_actions_of_a_check_lie_inside() -> None:
    rng = np.random.default_rng(0)
    spec = {"type": "continuous", "dim": [3], "low": LOW[:3].tolist(), "high": HIGH[:3].tolist()}
    spec["low"][1] = np.nextafter(HIGH[1], 0.0) - 1e-7
    actions = np.stack([random_action(spec, rng) for _ in range(200)])
    assert (actions <= HIGH[:3]).all()
    assert (actions >= spec["low"]).all()
    assert check_env(Strict, steps=20).ok
    assert check_env(StrictOwn, steps=20).ok


class Squeezed(Strict):
    """The bounds of which three can be told apart in float32."""

    def __init__(self) -> None:
        super().__init__(spaces.Box(LOW[:3], HIGH[:3], dtype=np.float64))


@pytest.fixture(params=["sac", "td3", "ddpg", "ppo beta", "impala squashed_gaussian"])
def policy(request: pytest.FixtureRequest) -> Any:
    name, _, kind = request.param.partition(" ")
    words = ["learner_config.device=cpu"]
    words += [f"learner_config.model.policy={kind}"] if kind else []
    return make_policy(name, env=f"{__name__}:Squeezed", overrides=words)


def test_a_policy_gives_its_caller_actions_inside_the_bounds(policy: Any) -> None:
    space = Squeezed().action_space
    for factor in (1e4, -1e4):
        policy.set_weights({k: factor * np.abs(v) for k, v in policy.get_weights().items()})
        for deterministic in (True, False):
            for obs in ([1.0], [-1.0]):
                action = policy.compute_actions(obs, deterministic=deterministic)[0]
                assert space.contains(action.astype(np.float64)), (action, factor)


@given(st.floats(-1e30, 1e30), st.floats(-1e30, 1e30))
def test_inner_bounds_are_the_nearest_numbers_inside(one: float, other: float) -> None:
    ends = np.array([min(one, other)]), np.array([max(one, other)])
    low, high = inner_bounds(*ends)
    assert low is not None
    assert high is not None
    assert low.dtype == high.dtype == np.float32
    assert (float(low[0]) >= ends[0][0]) & (float(high[0]) <= ends[1][0])
    assert float(np.nextafter(low, np.float32(-np.inf))[0]) < ends[0][0]
    assert float(np.nextafter(high, np.float32(np.inf))[0]) > ends[1][0]


def test_numbers_beyond_float32_are_no_bounds() -> None:
    spec = parse_action_spec({"type": "continuous", "dim": [1], "low": -1e39, "high": 1e300})
    assert [end.tolist() for end in spec.inner_bounds if end is not None] == [[-np.inf], [np.inf]]


def test_positions_become_actions_inside_the_bounds() -> None:
    spec = {"type": "continuous", "dim": [3], "low": LOW[:3].tolist(), "high": HIGH[:3].tolist()}
    for from_zero in (False, True):
        actions = ActionScale(spec, from_zero=from_zero).to_env(torch.ones(1, 3)).double().numpy()
        assert (actions <= HIGH[:3]).all()
        np.testing.assert_allclose(actions[0], HIGH[:3], rtol=1e-6)


def test_clients_are_shown_actions_inside_the_bounds() -> None:
    policy = make_policy("ppo", env=f"{__name__}:Squeezed", overrides=["learner_config.device=cpu"])
    agent = policy.agent
    agent.act = lambda obs: np.full((1, 3), 9.0, np.float32)  # type: ignore[method-assign]
    config: Config = policy.config.env_config
    served = Policies(lambda mode: agent, config, 1, {"train": AgentMode.training})
    first = np.ones(1, np.bool_)
    shown = served.act("train", np.arange(1), np.zeros((1, 1), np.float32), first).actions
    assert Squeezed().action_space.contains(shown[0].astype(np.float64))


def test_a_config_may_write_the_bounds_as_they_are_or_rounded() -> None:
    rounded = {**SPEC, "high": HIGH.astype(np.float32).tolist()}
    for spec in (SPEC, rounded):
        config = {"env_name": f"{__name__}:Strict", "action_spec": spec}
        with contextlib.closing(make_env(config)) as env:
            env.reset()
            env.step(HIGH)
