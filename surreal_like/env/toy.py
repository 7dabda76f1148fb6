"""Small environments whose optimum is known in closed form, for tests of algorithms and plumbing.

`optimal_return` is the expected undiscounted return of the best policy, raw rewards.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from session.errors import ConfigError
from surreal_like.env.environment import Env, Info, Step

Array = npt.NDArray[np.float32]


class Chain(Env):
    """A row of `length` states: start at the left end, 0 goes left, 1 goes right.

    Each step costs `cost`, reaching the right end pays 1 and terminates; after 5 * length steps
    the episode is truncated. The observation is one-hot, float32 [length].
    Optimum: always right, 1 - cost * (length - 1).
    """

    def __init__(self, length: int = 8, *, cost: float = 0.05) -> None:
        _require(length >= 2, f"toy:chain: length is {length}, expected 2 or more")
        self.length, self.cost = length, cost
        self.obs_spec = {"type": "float32", "dim": [length]}
        self.action_spec = {"type": "discrete", "dim": [2]}
        self.optimal_return = 1.0 - cost * (length - 1)
        self._place = self._steps = 0

    def reset(self) -> tuple[Array, Info]:
        """Goes to the left end."""
        self._place = self._steps = 0
        return _one_hot(0, self.length), {}

    def step(self, action: int) -> Step:
        """Moves by one, not beyond the left end."""
        self._place = max(0, self._place + (1 if action == 1 else -1))
        self._steps += 1
        arrived = self._place == self.length - 1
        late = self._steps >= 5 * self.length
        obs = _one_hot(self._place, self.length)
        return obs, float(arrived) - self.cost, arrived, late and not arrived, {}


class Bandit(Env):
    """Episodes of one step: the observation shows which of `arms` pays 1, the others pay 0.

    The observation is one-hot, float32 [arms]. Optimum: pull the arm that is shown, 1. Guessing
    gives 1 / arms.
    """

    def __init__(self, arms: int = 4) -> None:
        _require(arms >= 2, f"toy:bandit: arms is {arms}, expected 2 or more")
        self.arms = arms
        self.obs_spec = {"type": "float32", "dim": [arms]}
        self.action_spec = {"type": "discrete", "dim": [arms]}
        self.optimal_return = 1.0
        self._best = 0

    def reset(self) -> tuple[Array, Info]:
        """Draws the arm that pays."""
        self._best = int(self.rng.integers(self.arms))
        return _one_hot(self._best, self.arms), {}

    def step(self, action: int) -> Step:
        """Pays and terminates."""
        return _one_hot(self._best, self.arms), float(action == self._best), True, False, {}


class Grid(Env):
    """A square of `size` cells: from one corner to the opposite one, walls around.

    Actions: 0 up, 1 right, 2 down, 3 left. Each step costs 1 / (2 * size), arriving pays 1 and
    terminates; after 10 * size steps the episode is truncated. The observation is a dict: `row`
    and `column`, each one-hot, float32 [size].
    Optimum: any shortest path, 1 - (2 * size - 2) / (2 * size), which is 1 / size.
    """

    _MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))

    def __init__(self, size: int = 4) -> None:
        _require(size >= 2, f"toy:grid: size is {size}, expected 2 or more")
        self.size = size
        line = {"type": "float32", "dim": [size]}
        self.obs_spec = {"row": line, "column": dict(line)}
        self.action_spec = {"type": "discrete", "dim": [4]}
        self.optimal_return = 1.0 / size
        self._place = (0, 0)
        self._steps = 0

    def reset(self) -> tuple[dict[str, Array], Info]:
        """Goes to the corner at row 0, column 0."""
        self._place, self._steps = (0, 0), 0
        return self._observe(), {}

    def step(self, action: int) -> Step:
        """Moves by one cell; into a wall is no move, but costs."""
        end = self.size - 1
        down, right = self._MOVES[action]
        row, column = self._place
        self._place = (min(max(row + down, 0), end), min(max(column + right, 0), end))
        self._steps += 1
        arrived = self._place == (end, end)
        late = self._steps >= 10 * self.size
        reward = float(arrived) - 0.5 / self.size
        return self._observe(), reward, arrived, late and not arrived, {}

    def _observe(self) -> dict[str, Array]:
        row, column = self._place
        return {"row": _one_hot(row, self.size), "column": _one_hot(column, self.size)}


class Clock(Env):
    """The truncation trap: a time limit that the observation does not show.

    At the start, action 1 takes 0.75 * limit and terminates; action 0 starts a clock that pays 1
    per step, whatever is done, and is truncated after `limit` steps. Actions that are
    `continuous`, float32 [1] in [-1, 1], take where they are above 0. The observation is one-hot,
    float32 [2]: at the start, or running.
    Optimum: start the clock, `limit`. A learner that bootstraps the time limit values the clock
    at 1 / (1 - discount); one that treats it as a terminal state values it, for a discount of
    1 - 1 / limit, at little more than half of that, and takes 0.75 * limit.
    """

    def __init__(self, limit: int = 10, *, continuous: bool = False) -> None:
        _require(limit >= 2, f"toy:clock: limit is {limit}, expected 2 or more")
        self.limit = limit
        self.obs_spec = {"type": "float32", "dim": [2]}
        self.action_spec: dict[str, Any] = {"type": "discrete", "dim": [2]}
        if continuous:
            self.action_spec = {"type": "continuous", "dim": [1], "low": [-1.0], "high": [1.0]}
        self.optimal_return = float(limit)
        self._steps = 0

    def reset(self) -> tuple[Array, Info]:
        """Returns to the choice."""
        self._steps = 0
        return _one_hot(0, 2), {}

    def step(self, action: Any) -> Step:
        """Steps; only the first action has an effect."""
        self._steps += 1
        if self._steps == 1 and np.asarray(action).item() > 0:
            return _one_hot(0, 2), 0.75 * self.limit, True, False, {}
        return _one_hot(1, 2), 1.0, False, self._steps >= self.limit, {}


class Target(Env):
    """Continuous actions: each step shows a point, the cost is the squared distance from it.

    The observation is the point, float32 [size], uniform in [-1, 1]; the action, float32 [size],
    lies in [-2, 2]; the reward is minus the mean squared difference. Episodes have `steps` steps
    and are then truncated. Optimum: the action equals the observation, 0. Actions uniform in
    their bounds give -5/3 per step.
    """

    def __init__(self, size: int = 2, *, steps: int = 10) -> None:
        _require(size >= 1 and steps >= 1, "toy:target: size and steps must be 1 or more")
        self.size, self.steps = size, steps
        self.obs_spec = {"type": "float32", "dim": [size]}
        self.action_spec = {
            "type": "continuous",
            "dim": [size],
            "low": [-2.0] * size,
            "high": [2.0] * size,
        }
        self.optimal_return = 0.0
        self._point: Array = np.zeros(size, np.float32)
        self._steps = 0

    def reset(self) -> tuple[Array, Info]:
        """Draws the first point."""
        self._steps = 0
        return self._draw(), {}

    def step(self, action: npt.NDArray[Any]) -> Step:
        """Pays and draws the next point."""
        reward = -float(np.mean(np.square(np.asarray(action) - self._point)))
        self._steps += 1
        return self._draw(), reward, False, self._steps >= self.steps, {}

    def _draw(self) -> Array:
        self._point = self.rng.uniform(-1.0, 1.0, self.size).astype(np.float32)
        return self._point.copy()


class Recall(Env):
    """Memory task: the one of `arms` that was shown at the start pays 1 at the end.

    The first observation shows the arm, float32 [arms + 1], one-hot; those that follow show
    nothing, and the last one, after `delay` more steps, that it is time (its last element is 1).
    Only the action taken then counts; it pays and terminates.
    Optimum: pull the arm that was shown, 1. A policy without memory gets 1 / arms.
    """

    def __init__(self, arms: int = 3, *, delay: int = 4) -> None:
        _require(arms >= 2 and delay >= 1, "toy:recall: arms must be 2 or more, delay 1 or more")
        self.arms, self.delay = arms, delay
        self.obs_spec = {"type": "float32", "dim": [arms + 1]}
        self.action_spec = {"type": "discrete", "dim": [arms]}
        self.optimal_return = 1.0
        self._shown = self._steps = 0

    def reset(self) -> tuple[Array, Info]:
        """Draws the arm and shows it."""
        self._shown, self._steps = int(self.rng.integers(self.arms)), 0
        return _one_hot(self._shown, self.arms + 1), {}

    def step(self, action: int) -> Step:
        """Waits, and in the end pays."""
        self._steps += 1
        blank = np.zeros(self.arms + 1, np.float32)
        if self._steps > self.delay:
            return blank, float(action == self._shown), True, False, {}
        if self._steps == self.delay:
            blank[self.arms] = 1.0
        return blank, 0.0, False, False, {}


class BitFlip(Env):
    """Goals: flip `bits` bits, one per step, until they are those of the goal.

    The observation is a dict of `observation` and `achieved_goal`, both the bits, and
    `desired_goal`, each float32 [bits] of 0 and 1; start and goal are drawn, never equal. The
    reward is 0 at the goal, which terminates, else -1; after `bits` steps the episode is truncated.
    `compute_reward` and `compute_terminated` are those of any goal, for hindsight.
    Optimum: flip each wrong bit once, 1 - (bits / 2) / (1 - 2 ** -bits) on average.
    """

    def __init__(self, bits: int = 15) -> None:
        _require(bits >= 1, f"toy:bitflip: bits is {bits}, expected 1 or more")
        self.bits = bits
        line = {"type": "float32", "dim": [bits]}
        self.obs_spec = {
            name: dict(line) for name in ("observation", "achieved_goal", "desired_goal")
        }
        self.action_spec = {"type": "discrete", "dim": [bits]}
        self.optimal_return = 1.0 - 0.5 * bits / (1.0 - 2.0**-bits)
        self._state: Array = np.zeros(bits, np.float32)
        self._goal: Array = np.ones(bits, np.float32)
        self._steps = 0

    def reset(self) -> tuple[dict[str, Array], Info]:
        """Draws start and goal."""
        self._state = self._goal = self._draw()
        while (self._state == self._goal).all():
            self._goal = self._draw()
        self._steps = 0
        return self._observe(), {}

    def step(self, action: int) -> Step:
        """Flips one bit."""
        self._state = self._state.copy()
        self._state[action] = 1.0 - self._state[action]
        self._steps += 1
        arrived = bool(self.compute_terminated(self._state, self._goal, {}))
        reward = float(self.compute_reward(self._state, self._goal, {}))
        return self._observe(), reward, arrived, self._steps >= self.bits and not arrived, {}

    def compute_reward(self, achieved: Array, desired: Array, info: Any) -> Array:
        """Returns 0 where the goal is achieved, else -1; goals `[..., bits]`."""
        return self.compute_terminated(achieved, desired, info).astype(np.float32) - 1.0

    def compute_terminated(
        self, achieved: Array, desired: Array, info: Any
    ) -> npt.NDArray[np.bool_]:
        """Returns True where the goal is achieved; goals `[..., bits]`."""
        return np.asarray((achieved == desired).all(axis=-1))

    def _draw(self) -> Array:
        return self.rng.integers(2, size=self.bits).astype(np.float32)

    def _observe(self) -> dict[str, Array]:
        return {
            "observation": self._state.copy(),
            "achieved_goal": self._state.copy(),
            "desired_goal": self._goal.copy(),
        }


class MultiCartPole:
    """Independent carts, each with its own pole: an environment of several agents.

    It has PettingZoo's parallel interface. `agents` agents cart_0, cart_1, ... each get the
    observations and rewards of CartPole-v1. An agent whose pole fell is gone until all are;
    after `limit` steps the others are truncated.
    Optimum: `limit` for each agent.
    """

    metadata: Mapping[str, Any] = MappingProxyType(
        {"name": "multi_cartpole", "render_modes": ["rgb_array"], "render_fps": 50}
    )

    def __init__(
        self, agents: int = 2, *, limit: int = 500, render_mode: str | None = None
    ) -> None:
        import gymnasium

        _require(agents >= 1, f"toy:multi_cartpole: agents is {agents}, expected 1 or more")
        _require(limit >= 1, f"toy:multi_cartpole: limit is {limit}, expected 1 or more")
        self.possible_agents = [f"cart_{number}" for number in range(agents)]
        self.agents: list[str] = []
        self.optimal_return = float(agents * limit)
        self._limit, self._steps = limit, 0
        self._carts: dict[str, Any] = {
            name: gymnasium.make("CartPole-v1", render_mode=render_mode).unwrapped
            for name in self.possible_agents
        }

    def observation_space(self, agent: str) -> Any:
        """Returns the space of the four numbers of a cart and its pole."""
        return self._carts[agent].observation_space

    def action_space(self, agent: str) -> Any:
        """Returns the space of two actions, left and right."""
        return self._carts[agent].action_space

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Info]]:
        """Sets all poles up; returns observations and infos by agent."""
        self.agents, self._steps = list(self.possible_agents), 0
        observations = {}
        for number, name in enumerate(self.agents):
            own = None if seed is None else seed + number
            observations[name] = self._carts[name].reset(seed=own)[0]
        return observations, {name: {} for name in self.agents}

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """Moves the carts of the agents that are left.

        Returns:
            Observations, rewards, terminations, truncations and infos, by agent.
        """
        self._steps += 1
        late, left = self._steps >= self._limit, []
        found: tuple[dict[str, Any], ...] = ({}, {}, {}, {}, {})
        observations, rewards, terminations, truncations, infos = found
        # One pass: this is most of the work of an agent process.
        for name in self.agents:
            observations[name], reward, fell, _, infos[name] = self._carts[name].step(actions[name])
            rewards[name], terminations[name] = float(reward), fell
            truncations[name] = late and not fell
            if not fell:
                left.append(name)
        self.agents = [] if late else left
        return found

    def render(self) -> Any:
        """Returns an image, the carts one below the other; None without a render mode."""
        images = [cart.render() for cart in self._carts.values()]
        return None if images[0] is None else np.concatenate([each[::2, ::2] for each in images])

    def close(self) -> None:
        """Frees the carts."""
        for cart in self._carts.values():
            cart.close()


TOYS: Mapping[str, type[Env]] = MappingProxyType(
    {
        "bandit": Bandit,
        "bitflip": BitFlip,
        "chain": Chain,
        "clock": Clock,
        "grid": Grid,
        "recall": Recall,
        "target": Target,
    }
)
# Toys of several agents.
JOINT_TOYS: Mapping[str, type[MultiCartPole]] = MappingProxyType({"multi_cartpole": MultiCartPole})


def _one_hot(index: int, size: int) -> Array:
    row = np.zeros(size, np.float32)
    row[index] = 1.0
    return row


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)
