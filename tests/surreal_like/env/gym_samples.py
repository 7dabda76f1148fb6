"""Gymnasium environments that tests build or name by dotted path."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space


class Rich(gymnasium.Env[Any, Any]):
    """A Gymnasium environment with every kind of observation and an offset discrete action."""

    def __init__(self, *, bad: bool = False) -> None:
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (2, 3), np.uint8),
                "pair": spaces.Tuple((spaces.Discrete(3, start=5), spaces.MultiBinary(2))),
                "state": spaces.Box(-1.0, np.inf, (2,), np.float64),
                "many": spaces.MultiDiscrete([4, 5]),
            }
        )
        self.action_space = spaces.Discrete(3, start=-1)
        self.taken: list[Any] = []
        self.bad = bad

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._observe(), {"seed": seed}

    def step(self, action: Any) -> Any:
        self.taken.append(action)
        return self._observe(), np.float64(1.5), self.np_random.random() < 0.2, False, {}

    def _observe(self) -> Any:
        obs: dict[str, Any] = {
            "state": self.np_random.random(2),
            "image": self.np_random.integers(0, 255, (2, 3), np.uint8),
            "pair": (6, np.ones(2, np.int8)),
            "many": np.array([3, 4]),
        }
        if self.bad:
            del obs["state"]
        return obs


class Joint(gymnasium.Env[Any, Any]):
    """Takes any action space; keeps the actions that arrive."""

    def __init__(self, action_space: Any = None) -> None:
        free = spaces.Box(-1.0, 1.0, (2,), np.float64)
        self.action_space = free if action_space is None else action_space
        self.observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.taken: list[Any] = []
        self.buffer = np.zeros(1, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.buffer[:] = 0
        return self.buffer, {}

    def step(self, action: Any) -> Any:
        self.taken.append(action)
        self.buffer += 1
        return self.buffer, 0.0, len(self.taken) % 20 == 0, False, {}


class NativeCounter(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Native vector code: counts up to `max_episode_steps`, and rewards even what it ignores."""

    def __init__(
        self, num_envs: int = 1, max_episode_steps: int = 4, mode: Any = AutoresetMode.NEXT_STEP
    ) -> None:
        self.num_envs, self.max_episode_steps = num_envs, max_episode_steps
        self.metadata = {"autoreset_mode": AutoresetMode(mode)}
        self.single_observation_space = spaces.Box(0.0, np.inf, (1,), np.float64)
        self.single_action_space = spaces.Discrete(3)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.counts = np.zeros((num_envs, 1))

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.counts[:] = 0
        return self.counts, {}

    def step(self, actions: Any) -> Any:
        again = self.counts[:, 0] >= self.max_episode_steps
        self.counts += 1
        self.counts[again] = 0
        ended = self.counts[:, 0] >= self.max_episode_steps
        info = {"count": self.counts[:, 0].copy(), "_count": np.ones(self.num_envs, np.bool_)}
        return self.counts, np.ones(self.num_envs), np.zeros_like(ended), ended, info


class OneCounter(gymnasium.Env[Any, Any]):
    """One environment with the spaces of NativeCounter."""

    def __init__(self, mode: Any = None) -> None:
        self.observation_space = spaces.Box(0.0, np.inf, (1,), np.float64)
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        return np.ones(1), 1.0, False, False, {}


class OtherCounter(OneCounter):
    """One environment whose observations are not those of NativeCounter."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0.0, np.inf, (2,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(2), {}


def register_counters() -> None:
    """Makes the counters known to Gymnasium, as `gym:SampleCounter-v0` and others."""
    here = __name__
    native = f"{here}:NativeCounter"
    for name, one, steps in [
        ("SampleCounter-v0", "OneCounter", 4),
        ("SampleOther-v0", "OtherCounter", 4),
    ]:
        if name not in gymnasium.registry:
            gymnasium.register(
                name,
                entry_point=f"{here}:{one}",
                vector_entry_point=native,
                max_episode_steps=steps,
            )


class Worded(Rich):
    """Rich, with a text among its observations, which has no spec."""

    def __init__(self) -> None:
        super().__init__()
        spaces_of = self.observation_space
        assert isinstance(spaces_of, spaces.Dict)
        self.observation_space = spaces.Dict({**spaces_of, "mission": spaces.Text(9)})

    def _observe(self) -> Any:
        return {**super()._observe(), "mission": "go"}


class OnlyState(gymnasium.ObservationWrapper[Any, Any, Any]):
    """A wrapper of Gymnasium: of the observations only the state, times a factor."""

    def __init__(self, env: Any, factor: float = 1.0) -> None:
        super().__init__(env)
        self.factor = factor
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def observation(self, observation: Any) -> Any:
        return self.factor * observation["state"]


# Name -> observation space: every kind of part that a network encodes.
OBSERVED: dict[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-2.0, 2.0, (4,), np.float32),
    "number": spaces.Box(-1.0, 1.0, (), np.float32),
    "grid": spaces.Box(-np.inf, np.inf, (2, 3), np.float32),
    "double": spaces.Box(0.0, 1.0, (3,), np.float64),
    "bytes": spaces.Box(0, 255, (6,), np.uint8),
    "shorts": spaces.Box(-300, 300, (2, 2), np.int16),
    "discrete": spaces.Discrete(5, start=-2),
    "multi_discrete": spaces.MultiDiscrete([3, 2, 4]),
    "multi_discrete_grid": spaces.MultiDiscrete(np.array([[3, 2], [4, 5]])),
    "multi_binary": spaces.MultiBinary(3),
    "multi_binary_grid": spaces.MultiBinary((2, 2)),
    "image_last": spaces.Box(0, 255, (36, 36, 3), np.uint8),
    "image_first": spaces.Box(0, 255, (1, 36, 40), np.uint8),
    "image_frames": spaces.Box(0, 255, (2, 36, 36, 1), np.uint8),
    "image_plain": spaces.Box(0, 255, (36, 36), np.uint8),
    "tuple": spaces.Tuple((spaces.Discrete(3), spaces.Box(-1.0, 1.0, (2, 2), np.float32))),
    "nest": spaces.Dict(
        {
            "inner": spaces.Dict({"flag": spaces.MultiBinary(2), "kind": spaces.Discrete(4)}),
            "picture": spaces.Box(0, 255, (36, 36, 1), np.uint8),
            "pair": spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.Box(-1.0, 1.0, (1,)))),
        }
    ),
}

# Name -> action space: every kind that some algorithm acts in.
ACTED: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3, start=1),
    "multi_discrete": spaces.MultiDiscrete([3, 2]),
    "multi_binary": spaces.MultiBinary(2),
    "box": spaces.Box(-2.0, 1.0, (2,), np.float32),
    "box_grid": spaces.Box(np.array([[-1.0], [0.0]]), np.array([[1.0], [3.0]]), dtype=np.float64),
    "box_free": spaces.Box(-np.inf, np.inf, (2,), np.float32),
}


class Spaced(gymnasium.Env[Any, Any]):
    """Observes and acts in spaces of the tables above, by their names."""

    def __init__(self, *, observed: str = "vector", acted: str = "discrete") -> None:
        self.observation_space = OBSERVED[observed]
        self.action_space = ACTED[acted]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 0.0, self.np_random.random() < 0.1, False, {}
