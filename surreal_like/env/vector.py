"""N streams in step: choice of the implementation, and the one that steps N Envs here.

`env_config.vector` is `native` (a batched environment, or the vectorised code of Gymnasium or
ale-py if an environment has some and no wrapper of a single environment is configured, else
`sync`), `sync` (N Envs stepped in this process), or a name in the table `vectors` of an add-on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from session import nest
from session.addons import collect, load
from session.errors import ConfigError, UsageError
from session.nest import Nest
from surreal_like.data.episodes import CUT_SHORT
from surreal_like.data.task import tasks_of
from surreal_like.env.environment import Env, Info, Pulse, VectorEnv, VectorStep, no_pulse
from surreal_like.env.kinds import kind_of
from surreal_like.env.registry import (
    check_env_config,
    make_env,
    make_env_or_batch,
    specs_of,
)
from surreal_like.env.restarts import Restarts
from surreal_like.env.step_results import (
    InfoBatch,
    ObservationBatch,
    kinds,
    step_rewards,
    step_values,
)
from surreal_like.env.task_feed import TaskFeed
from surreal_like.env.vector_base import CheckedVector, Flags
from surreal_like.errors import DataError

# Values of `env_config.vector` besides those of add-ons.
VECTORS = ("native", "sync")


def make_vector_env(
    env_config: Mapping[str, Any],
    *,
    num_envs: int,
    seed: int,
    evaluation: bool = False,
    pulse: Pulse = no_pulse,
    feed: TaskFeed | None = None,
) -> VectorEnv:
    """Builds the N streams of one agent or evaluator, each with a seed of its own.

    seed: the component's; the same seed gives the same streams, however they are stepped, except
    that native code draws all of them from one generator.
    pulse: called between the environments of a vector step, and while waiting for worker
    processes, so that a slow step gives signs of life; an error that it raises ends the step.
    Native code, which steps all streams in one call, does not call it.
    feed: progress and task of the run; None: the environments are outside of one.
    Raises what `make_env` raises, with `process` too.
    """
    check_env_config(env_config)
    mode = env_config.get("vector") or "native"
    if num_envs < 1:
        raise ConfigError(f"env_config.num_envs is {num_envs}: expected 1 or more")
    others = collect("vectors")
    if mode not in (*VECTORS, *others):
        known = ", ".join((*VECTORS, *others))
        raise ConfigError(f"env_config.vector is {mode!r}, expected one of {known}")
    seeds = stream_seeds(seed, num_envs)
    feed = feed or TaskFeed(env_config, evaluation=evaluation)
    if mode in others:
        make: Callable[..., VectorEnv] = load(others[mode])
        return make(env_config, seeds, evaluation=evaluation, pulse=pulse, feed=feed)
    native = None
    if mode == "native" and not resets_singly(env_config):
        kind = kind_of(str(env_config.get("env_name")))
        native = kind.make_native(env_config, seeds, seed=seed, evaluation=evaluation)
    return native or _make_named(
        env_config, seed, seeds, evaluation=evaluation, pulse=pulse, feed=feed
    )


def resets_singly(env_config: Mapping[str, Any]) -> bool:
    """True if each environment is reset, or made anew, by itself."""
    return tasks_of(env_config) is not None or env_config.get("on_error") == "restart"


def _make_named(
    env_config: Mapping[str, Any],
    seed: int,
    seeds: Sequence[int],
    *,
    evaluation: bool,
    pulse: Pulse,
    feed: TaskFeed | None,
) -> VectorEnv:
    """Builds what the name gives: a batched environment, or one Env per seed."""
    built = make_env_or_batch(env_config, len(seeds), evaluation, seeds[0])
    if isinstance(built, Env):
        return make_sync(
            env_config, seeds, evaluation=evaluation, pulse=pulse, feed=feed, first=built
        )
    try:
        if built.num_envs != len(seeds):
            raise ConfigError(
                f"env_config.env_name: {env_config['env_name']} has num_envs {built.num_envs}, but "
                f"{len(seeds)} copies are needed here: give its constructor an argument num_envs, "
                "or set env_config.num_envs, of evaluators session_config.evaluator.num_envs"
            )
        built.obs_spec, built.action_spec = specs_of(built, env_config)
        built.feed = feed or TaskFeed(env_config, evaluation=evaluation)
        built.seed(seed)
        return built
    except BaseException:
        built.close()
        raise


def make_sync(
    env_config: Mapping[str, Any],
    seeds: Sequence[int],
    *,
    evaluation: bool = False,
    pulse: Pulse = no_pulse,
    feed: TaskFeed | None = None,
    first: Env | None = None,
) -> SyncVector:
    """Builds one Env per seed, to be stepped in this process; `first` is the first one."""
    envs = [] if first is None else [first]
    feed = feed or TaskFeed(env_config, evaluation=evaluation)
    try:
        while len(envs) < len(seeds):
            envs.append(make_env(env_config, evaluation))
        for env, seed in zip(envs, seeds, strict=True):
            env.seed(seed)
        obs_spec, action_spec = specs_of(envs[0], env_config)
        keys = tuple(env_config.get("info_keys") or ())
        specs = {"obs_spec": obs_spec, "action_spec": action_spec}
        vector = SyncVector(envs, **specs, info_keys=keys, pulse=pulse, feed=feed)
        vector.restarts = Restarts(env_config, seeds, partial(make_env, env_config, evaluation))
        return vector
    except BaseException:
        for env in envs:
            env.close()
        raise


def as_vector(env: Env | VectorEnv, info_keys: Sequence[str] = ()) -> VectorEnv:
    """Returns the VectorEnv itself, or a single Env as one of N = 1."""
    if isinstance(env, VectorEnv):
        return env
    if not isinstance(env, Env) and hasattr(env, "observation_space"):
        raise UsageError(
            f"{type(env).__name__} is an environment of Gymnasium, expected a surreal_like Env or "
            "VectorEnv: write GymAdapter(env) in its place"
        )
    obs_spec, action_spec = specs_of(env, {"env_name": type(env).__name__})
    return SyncVector([env], obs_spec=obs_spec, action_spec=action_spec, info_keys=info_keys)


def stream_seeds(seed: int, num_envs: int) -> list[int]:
    """Returns a seed in [0, 2**31) per stream; each is independent of the number of streams."""
    return [
        int(np.random.SeedSequence(seed, spawn_key=(stream,)).generate_state(1)[0]) >> 1
        for stream in range(num_envs)
    ]


class SyncVector(CheckedVector):
    """Steps N Envs one after the other; `reset` and the first step after an end reset them.

    pulse: called after each of them.
    feed: progress and task of the run.
    """

    def __init__(
        self,
        envs: Sequence[Env],
        *,
        obs_spec: Mapping[str, Any],
        action_spec: Mapping[str, Any],
        info_keys: Sequence[str] = (),
        pulse: Pulse = no_pulse,
        feed: TaskFeed | None = None,
    ) -> None:
        self.envs = list(envs)
        super().__init__(
            len(self.envs),
            obs_spec,
            action_spec,
            metadata=self.envs[0].metadata,
            info_keys=info_keys,
            feed=feed,
        )
        self._pulse = pulse
        for env in self.envs:
            self.feed.introduce(env)
        # Actions as ints or arrays, as they reach the Envs.
        self._check = self._actions.singles
        self._batch = ObservationBatch(obs_spec, self.num_envs)
        self._infos = InfoBatch(info_keys, self.num_envs)

    def _reset(self) -> tuple[Nest, Info]:
        infos = [self._reset_one(stream) for stream in range(self.num_envs)]
        return self._batch.take(), self._infos(infos, np.zeros(self.num_envs, np.float32))

    def _step(self, actions: Any, ended: Flags) -> VectorStep:
        # Lists: to fill arrays one number at a time takes longer than to make them of all.
        outcomes: list[tuple[float, bool, bool]] = []
        infos: list[Info] = []
        for stream, begins in enumerate(ended.tolist()):
            if begins:
                outcomes.append((0.0, False, False))
                infos.append(self._reset_one(stream))
                continue
            try:
                result = self.envs[stream].step(actions[stream])
            except Exception as error:  # noqa: BLE001 - the author's code
                result = self._cut_short(stream, error)
            obs, reward, terminal, cut, info = step_values(result)
            outcomes.append((reward, terminal, cut))
            self._batch.put(stream, obs)
            infos.append(info)
            self._pulse()
        rewards, terminated, truncated = zip(*outcomes, strict=True)
        if True in terminated or True in truncated:
            terminations, truncations = np.array(terminated), np.array(truncated)
        else:
            # Most steps; to copy costs half of making an array.
            terminations, truncations = self._none.copy(), self._none.copy()
        checked_rewards = step_rewards(rewards)
        info = self._infos(infos, checked_rewards) if self._info_keys or any(infos) else {}
        return self._batch.take(), checked_rewards, terminations, truncations, info

    def _cut_short(self, stream: int, error: Exception) -> tuple[Any, ...]:
        """Renews an Env whose step failed; its episode is truncated at its last observation."""
        self._renew(stream, error)
        obs = nest.map(lambda leaf: leaf[stream], self.newest)
        return obs, 0.0, False, True, {"metrics": {CUT_SHORT: 1}}

    def _renew(self, stream: int, error: Exception) -> None:
        """Makes an Env anew; raises the error where that is not wanted any more."""
        env = self.restarts.renew(self.envs[stream], error)
        env.seed(self.restarts.seed_of(stream))
        self.feed.introduce(env)
        self.envs[stream] = env

    def render(self) -> Any:
        return self.envs[0].render()

    def close(self) -> None:
        """Closes every Env."""
        for env in self.envs:
            env.close()

    def _reset_one(self, stream: int) -> Info:
        while True:
            self.feed.begin(self.envs[stream])
            try:
                result = self.envs[stream].reset()
                break
            except Exception as error:  # noqa: BLE001 - the author's code
                self._renew(stream, error)
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
            raise DataError(f"reset() gave {kinds(result)}, expected (observation, info)")
        self._batch.put(stream, result[0])
        self._pulse()
        return result[1]
