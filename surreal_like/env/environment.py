"""The two layers of environment: `Env` is one environment, `VectorEnv` is N of them in step.

An author writes an Env. Every loop drives a VectorEnv; the layer between (batching, resets,
worker processes) is `surreal_like.env.vector`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from session.nest import Nest
from surreal_like.data.task import NO_TASK, Task

Info: TypeAlias = dict[str, Any]
Pulse: TypeAlias = Callable[[], object]
Step: TypeAlias = tuple[Nest, float, bool, bool, Info]
VectorStep: TypeAlias = tuple[
    Nest, npt.NDArray[np.float32], npt.NDArray[np.bool_], npt.NDArray[np.bool_], Info
]


def no_pulse() -> None:
    """Pulse that does nothing."""


@dataclass(slots=True)
class EnvProgress:
    """Progress of the run: counters of the newest parameters of this process, 0 before the first.

    env_steps: environment steps of all agents; iteration: updates; version: number of the
    publication. Evaluators see the counters of the parameters that they evaluate.
    """

    env_steps: int = 0
    iteration: int = 0
    version: int = 0


class _Seeded:
    """Has a random generator."""

    _rng: np.random.Generator | None = None

    @property
    def rng(self) -> np.random.Generator:
        """The random generator of this environment."""
        if self._rng is None:
            self._rng = np.random.default_rng()
        return self._rng

    def seed(self, seed: int) -> None:
        """Fixes all randomness from the next `reset` on."""
        self._rng = np.random.default_rng(seed)


class Env(_Seeded, ABC):
    """One environment. An author overrides `reset` and `step` and sets the specs.

    Attributes:
        obs_spec: class or instance attribute in the form of `env_config` (see
            `surreal_like.data.spec`), from which the spec of an experiment is derived. It may be
            left out; then `env_config` must give it.
        action_spec: the same for actions.
        metadata: a class attribute; a derived class gets its base's entries and overrides them.
        rng: the source of all randomness of this environment, set by `seed`.
        progress: the progress of the run; worker processes of `vector: process` renew it when they
            reset one of their environments.
        task: what the run wants of the episode that the next `reset` begins; empty: nothing.

    `info["metrics"]`, a flat dict of numbers, is reported; keys named in `env_config.info_keys`
    are sent with the experience. `info["life_lost"]` is True at a step that ends an episode only
    for learning: the game goes on with the next one, and returns and lengths are those of games.
    """

    metadata: Mapping[str, Any] = MappingProxyType({})
    obs_spec: Mapping[str, Any]
    action_spec: Mapping[str, Any]
    progress: EnvProgress = EnvProgress()
    task: Task = NO_TASK

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        merged: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            merged.update(vars(base).get("metadata", {}))
        cls.metadata = merged

    @abstractmethod
    def reset(self) -> tuple[Nest, Info]:
        """Starts an episode and returns (first observation, info)."""

    @abstractmethod
    def step(self, action: Any) -> Step:
        """Takes one action and returns (observation, reward, terminated, truncated, info).

        terminated: the task itself ended; truncated: it was cut off, by a time limit for example.
        After either of them the next call is `reset`.
        """

    def render(self) -> Any:
        """Returns an image, uint8 [height, width, 3], or None if there is none."""
        return None

    def close(self) -> None:
        """Frees the resources of the environment; may be called twice."""


class Wrapper(Env):
    """An Env around another one: overrides what it changes and passes on the rest.

    A wrapper that changes rewards puts the reward of the innermost environment into
    `info["raw_reward"]` if it is not there yet: returns are counted from it. One that changes
    observations or actions sets its own `obs_spec` or `action_spec`.
    """

    def __init__(self, env: Env) -> None:
        self.env = env
        self.metadata = {**env.metadata, **type(self).metadata}

    def __getattr__(self, name: str) -> Any:
        # Only called for missing attributes; without this test copy and pickle would recurse.
        if name == "env" or name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.env, name)

    def reset(self) -> tuple[Nest, Info]:
        """Calls the wrapped environment."""
        return self.env.reset()

    def step(self, action: Any) -> Step:
        """Calls the wrapped environment."""
        return self.env.step(action)

    @property
    def rng(self) -> np.random.Generator:
        """The generator of the wrapped environment."""
        return self.env.rng

    def seed(self, seed: int) -> None:
        """Calls the wrapped environment."""
        self.env.seed(seed)

    def render(self) -> Any:
        """Calls the wrapped environment."""
        return self.env.render()

    def close(self) -> None:
        """Calls the wrapped environment."""
        self.env.close()

    @property
    def unwrapped(self) -> Env:
        """The innermost environment."""
        env: Env = self.env
        while isinstance(env, Wrapper):
            env = env.env
        return env


class ObservationWrapper(Wrapper):
    """A wrapper that changes observations and nothing else."""

    @abstractmethod
    def change_obs(self, obs: Any) -> Nest:
        """Returns what takes the place of an observation."""

    def reset(self) -> tuple[Nest, Info]:
        """Resets; changes the observation."""
        obs, info = self.env.reset()
        return self.change_obs(obs), info

    def step(self, action: Any) -> Step:
        """Steps; changes the observation."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self.change_obs(obs), reward, terminated, truncated, info


class VectorEnv(_Seeded, ABC):
    """N streams in step; every leaf of arguments and results is [N, ...].

    num_envs: N.
    obs_spec, action_spec: of one stream, in the form of `env_config`.
    metadata, rng: as of Env.
    resets_in_step: True: the step that ends an episode also begins the next one, see below.

    The reset is a step of its own: the call after a stream's last step ignores its action and
    returns its first observation with reward 0 and neither flag set. Returned arrays are never
    overwritten later. `info` holds `raw_reward` (float32 [N]) where a wrapper changed the reward,
    `metrics` (a list of N dicts or None) where an environment reports some, `life_lost` (bool [N])
    where an episode ended for learning only, and one array [N, ...] for each key of
    `env_config.info_keys`.

    With `resets_in_step` there is no such step: where an episode ends, the observation is already
    the first of the next one. Then `info["final_obs"]` has the last observations of the n streams
    that ended, in their order, [n, ...], and `info["final_info"]` their columns of
    `env_config.info_keys`; without an end neither is there.
    """

    num_envs: int
    resets_in_step: bool = False
    obs_spec: Mapping[str, Any]
    action_spec: Mapping[str, Any]
    metadata: Mapping[str, Any] = MappingProxyType({})

    @property
    def env_restarts(self) -> int:
        """Number of environments, or workers, that were made anew after an error."""
        return 0

    def leave_out(self) -> bool:
        """Lets steps leave out streams that are made anew; returns False if they never do.

        Such a step has `info["absent_streams"]`, bool [N]. One that is absent has ended before; it
        has its last observation again, reward 0 and `truncated`, which are no row.
        """
        return False

    @abstractmethod
    def reset(self) -> tuple[Nest, Info]:
        """Starts a new episode in every stream and returns (observations, info)."""

    @abstractmethod
    def step(self, actions: npt.NDArray[Any]) -> VectorStep:
        """Returns (observations, rewards float32, terminated bool, truncated bool, info).

        actions: [N, ...] by the action spec. Raises DataError for a NaN or a wrong dtype, shape
        or value, in a stream that does not ignore its action.
        """

    def render(self) -> Any:
        """Returns an image of the first stream, or None."""
        return None

    def close(self) -> None:
        """Frees environments and workers; may be called twice."""


class VectorWrapper(VectorEnv):
    """A VectorEnv around another one: overrides what it changes and passes on the rest."""

    def __init__(self, env: VectorEnv) -> None:
        self.env = env
        self.num_envs = env.num_envs
        self.obs_spec = env.obs_spec
        self.action_spec = env.action_spec
        self.metadata = env.metadata
        self.resets_in_step = env.resets_in_step

    def seed(self, seed: int) -> None:
        """Calls the wrapped environment."""
        self.env.seed(seed)

    @property
    def env_restarts(self) -> int:
        """Number of the wrapped environment."""
        return self.env.env_restarts

    def reset(self) -> tuple[Nest, Info]:
        """Calls the wrapped environment."""
        return self.env.reset()

    def step(self, actions: npt.NDArray[Any]) -> VectorStep:
        """Calls the wrapped environment."""
        return self.env.step(actions)

    def render(self) -> Any:
        """Calls the wrapped environment."""
        return self.env.render()

    def close(self) -> None:
        """Calls the wrapped environment."""
        self.env.close()
