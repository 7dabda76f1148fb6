from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.config import Config
from session.errors import ConfigError
from surreal_like.env.environment import Env
from surreal_like.env.toy import TOYS, Bandit, BitFlip, Chain, Clock, Grid, Recall, Target
from tests.contracts.env import EnvContract

ROOT = Path(__file__).parents[3]


class TestBandit(EnvContract):
    def make(self) -> Env:
        return Bandit()


class TestBitFlip(EnvContract):
    def make(self) -> Env:
        return BitFlip(bits=4)


class TestChain(EnvContract):
    def make(self) -> Env:
        return Chain()


class TestClock(EnvContract):
    def make(self) -> Env:
        return Clock()


class TestContinuousClock(EnvContract):
    def make(self) -> Env:
        return Clock(continuous=True)


class TestGrid(EnvContract):
    def make(self) -> Env:
        return Grid()


class TestRecall(EnvContract):
    def make(self) -> Env:
        return Recall()


class TestTarget(EnvContract):
    def make(self) -> Env:
        return Target()


class Remembers:
    """Keeps what was shown last."""

    def __init__(self) -> None:
        self.shown = 0

    def __call__(self, obs: Any) -> int:
        if obs[:-1].any():
            self.shown = int(obs.argmax())
        return self.shown


BEST: list[tuple[Env, Callable[[Any], Any]]] = [
    (Bandit(), lambda obs: int(obs.argmax())),
    (Chain(), lambda obs: 1),
    (Chain(length=2, cost=0.5), lambda obs: 1),
    (Clock(), lambda obs: 0),
    (Clock(continuous=True), lambda obs: np.array([-0.1], np.float32)),
    (Grid(), lambda obs: 1 if obs["column"][-1] == 0 else 2),
    (Recall(), Remembers()),
    (Recall(arms=5, delay=1), Remembers()),
    (Target(), lambda obs: obs),
]


def play(env: Env, policy: Callable[[Any], Any]) -> float:
    obs, _ = env.reset()
    total, ended = 0.0, False
    while not ended:
        obs, reward, terminated, truncated, _ = env.step(policy(obs))
        total += reward
        ended = terminated or truncated
    return total


@pytest.mark.parametrize(("env", "policy"), BEST)
def test_the_best_policy_earns_the_optimal_return(env: Any, policy: Any) -> None:
    env.seed(0)
    for _ in range(5):
        assert play(env, policy) == pytest.approx(env.optimal_return, abs=1e-6)


@pytest.mark.parametrize(("env", "policy"), BEST)
def test_random_policies_earn_less(env: Any, policy: Any) -> None:
    rng = np.random.default_rng(1)  # not the environment's, or guesses would always be right
    env.seed(0)
    counts = env.action_spec["dim"][0]

    def act(obs: Any) -> Any:
        if env.action_spec["type"] == "continuous":
            return rng.uniform(-2, 2, counts)
        return int(rng.integers(counts))

    returns = [play(env, act) for _ in range(100)]
    assert np.mean(returns) < env.optimal_return - 0.1
    if not isinstance(env, Clock):  # its other choice is nearly as good, that is the trap
        assert max(returns) <= env.optimal_return + 1e-6


def test_every_toy_is_listed_and_says_its_optimum() -> None:
    assert set(TOYS) == {"bandit", "bitflip", "chain", "clock", "grid", "recall", "target"}
    for toy in TOYS.values():
        assert "Optimum" in (toy.__doc__ or "")
        assert isinstance(toy().optimal_return, float)  # type: ignore[attr-defined]


def test_bitflip_ends_at_its_goal_or_after_as_many_steps_as_bits() -> None:
    """H8: the optimum is 1 less than the bits that differ on average, start and goal unequal."""
    assert BitFlip().optimal_return == pytest.approx(-6.500229, abs=1e-6)
    env = BitFlip(bits=3)
    env.seed(0)
    returns, seen = [], set()
    for _ in range(300):
        obs, _ = env.reset()
        wrong = np.flatnonzero(obs["achieved_goal"] != obs["desired_goal"])
        seen.add((tuple(obs["achieved_goal"]), tuple(obs["desired_goal"])))
        for place, bit in enumerate(wrong):
            obs, reward, terminated, truncated, _ = env.step(int(bit))
            assert (reward == 0.0) == terminated == (place == len(wrong) - 1)
            assert not truncated
        returns.append(1.0 - len(wrong))
    assert len(seen) == 8 * 7
    assert np.mean(returns) == pytest.approx(env.optimal_return, abs=0.15)
    env.reset()
    env._goal = 1.0 - env._state
    ends = [env.step(0)[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]
    goals = np.array([[0, 1], [1, 1]], np.float32)
    assert env.compute_reward(goals, goals[:1], {}).tolist() == [0.0, -1.0]


def test_only_the_first_observation_shows_what_is_to_be_recalled() -> None:
    env = Recall(arms=3, delay=2)
    first, _ = env.reset()
    assert first.sum() == 1.0
    blank, reward, over, _, _ = env.step(0)
    assert (blank.any(), reward, over) == (False, 0.0, False)
    now, reward, over, _, _ = env.step(0)
    assert (now.tolist(), reward, over) == ([0, 0, 0, 1], 0.0, False)
    _, reward, over, _, _ = env.step(int(first.argmax()))
    assert (reward, over) == (1.0, True)


@pytest.mark.parametrize("config", ["memory_ppo", "memory_impala"])
def test_without_a_memory_the_shipped_configs_stay_far_from_the_optimum(config: str) -> None:
    """The paying action is taken at an observation that is the same whatever was shown.

    So a policy without a memory takes arm a there with some probability p(a), and earns
    sum over the shown arms of 1 / arms * p(shown) = 1 / arms.
    """
    env_config = Config.load_file(f"{ROOT}/configs/{config}.yaml").env_config
    assert env_config.env_name == "toy:recall"
    env = Recall(**env_config.env_args)
    assert "frame_stack" not in env_config
    decisive = set()
    for shown in range(env.arms):
        env._shown, env._steps = shown, 0
        seen = [env.step(0)[0].tobytes() for _ in range(env.delay)]
        decisive.add(seen[-1])
    assert len(decisive) == 1
    best = max(recall_return(env, arm) for arm in range(env.arms))
    assert best == pytest.approx(1.0 / env.arms)
    assert best < 0.6 * env.optimal_return


def recall_return(env: Recall, arm: int) -> float:
    """The mean return, over all that may be shown, of taking one arm in the end."""
    total = 0.0
    for shown in range(env.arms):
        env._shown, env._steps = shown, 0
        over = False
        while not over:
            _, reward, over, _, _ = env.step(arm)
            total += reward
    return total / env.arms


def test_arriving_at_the_time_limit_is_a_termination_only() -> None:
    env = Chain(length=2)
    env.reset()
    flags = [env.step(action)[2:4] for action in [0] * 9 + [1]]
    assert flags == [(False, False)] * 9 + [(True, False)]


def test_a_point_that_an_agent_overwrites_still_counts() -> None:
    env = Target(size=1)
    point, _ = env.reset()
    kept = float(point[0])
    point[:] = 50
    assert env.step(np.array([kept]))[1] == pytest.approx(0.0)


@pytest.mark.parametrize("limit", [10, 100])
def test_the_trap_of_the_clock(limit: int) -> None:
    """Tabular values of the running clock, over all its steps, with both readings of the end."""
    env, discount = Clock(limit=limit), 1.0 - 1.0 / limit
    bootstrapped = trapped = 0.0
    env.reset()
    steps = [env.step(0) for _ in range(limit)][1:]  # those that start with the clock running
    for _ in range(20 * limit):
        targets = [step[1] + discount * bootstrapped for step in steps]
        bootstrapped = float(np.mean(targets))
        trapped = float(np.mean([s[1] + (0.0 if s[3] else discount * trapped) for s in steps]))
    cash = 0.75 * limit
    assert bootstrapped == pytest.approx(1.0 / (1.0 - discount), rel=1e-3)
    assert 1.0 + discount * trapped < cash < bootstrapped
    assert cash < env.optimal_return


@pytest.mark.parametrize(
    ("toy", "arguments"),
    [("chain", {"length": 1}), ("bandit", {"arms": 1}), ("grid", {"size": 1}),
     ("clock", {"limit": 1}), ("recall", {"arms": 1}), ("recall", {"delay": 0}),
     ("target", {"steps": 0})],
)  # fmt: skip
def test_sizes_without_meaning_are_refused(toy: str, arguments: Any) -> None:
    with pytest.raises(ConfigError, match=f"toy:{toy}"):
        TOYS[toy](**arguments)
