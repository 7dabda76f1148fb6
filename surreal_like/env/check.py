"""Checks of an environment: all mistakes at once (`check_env`), or the first one, quickly.

`check_env` plays some hundred random steps with the environment as an experiment would make it and
collects findings. `tried_specs` is what a launch does: one reset and a few steps.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from session import nest
from session.errors import ConfigError, describe
from session.process.seeding import seed_all
from surreal_like.data.frames import stack_size, stack_spec
from surreal_like.data.spec import ArraySpec, parse_obs_spec
from surreal_like.env.actions import random_action
from surreal_like.env.base import Env, VectorEnv
from surreal_like.env.batched import FirstStream
from surreal_like.env.batched_check import check_masked_reset, play_copies
from surreal_like.env.batched_names import add_arguments
from surreal_like.env.batching import kinds, number
from surreal_like.env.curriculum import first_feed
from surreal_like.env.feed import RunFeed
from surreal_like.env.findings import (
    COMPARED_STEPS,
    Played,
    Report,
    StopChecking,
    Trace,
    ValueChecks,
    check_bounds,
    compare_copies,
    report_not_compared,
    report_played,
)
from surreal_like.env.registry import (
    LOOKED_AT,
    SeveralAgents,
    as_batched,
    check_env_config,
    is_joint,
    make_env,
    make_joint_env,
    specs_of,
)
from surreal_like.env.vector import SyncVector

if TYPE_CHECKING:
    import gymnasium

    from surreal_like.env.joint import AgentSpaces, JointEnv

_TRIED_STEPS = 10
_TRIED_SECONDS = 0.1

# Specs of observations and actions; a row of each key of `env_config.info_keys`.
Specs = tuple[dict[str, Any], dict[str, Any], dict[str, npt.NDArray[Any]]]


def check_env(
    env: str | Mapping[str, Any] | Callable[[], Any] | Env | gymnasium.Env[Any, Any] | AgentSpaces,
    *,
    steps: int = 300,
    seconds: float = 10.0,
    seed: int = 0,
) -> Report:
    """Plays random steps and reports all mistakes of the environment.

    Args:
        env: a name as in `env_config.env_name`, a whole `env_config`, a class or function that
            builds an Env, or an Env. One of Gymnasium or of PettingZoo, and a batched one, will do.
            Copies of an object cannot be compared, and it is not closed.
        steps: number of random steps, followed by a comparison of copies.
        seconds: no step is begun after this time; one step is taken in any case.
        seed: seed of the environment and of the random actions.
    """
    given: Any = env
    single = not isinstance(given, type) and hasattr(given, "reset")
    if single:
        build, config = (lambda: given), {"env_name": type(given).__name__}
        joint = _joint_builder(build)
    elif callable(given):
        config = {"env_name": getattr(given, "__name__", "the environment")}
        build = partial(given, **add_arguments(given, {}, LOOKED_AT, None))
        joint = _joint_builder(build)
    else:
        config = {"env_name": given} if isinstance(given, str) else given
        check_env_config(config)
        build, joint = partial(make_env, config), partial(make_joint_env, config)
    report = Report(str(config["env_name"]), survives=config.get("on_error") == "restart")
    until = time.monotonic() + seconds
    with contextlib.suppress(StopChecking):
        try:
            _Check(report, build, config, seed, until, single).run(steps)
        except SeveralAgents:
            from surreal_like.env.joint_check import JointCheck

            JointCheck(report, joint, config, seed, until, single).run(steps)
    return report


def tried_specs(
    env_config: Mapping[str, Any], check: Callable[[Env], None] = lambda env: None
) -> Specs:
    """Returns (obs_spec, action_spec, info) for an agent, after a reset and a few random steps.

    info: a row of each key of `env_config.info_keys`, as agents send it.

    check: called with the environment first.
    Raises what it, `make_env` and `specs_of` raise, and ConfigError for mistakes in the steps.
    """
    name = env_config.get("env_name")
    # Environments may draw from the global generators: a run with the same seed is the same.
    feed = first_feed(env_config)
    with seed_all(0), contextlib.closing(make_env(env_config)) as env:
        check(env)
        obs_spec, action_spec = specs_of(env, env_config)
        try:
            keys = tuple(env_config.get("info_keys") or ())
            info = _try(env, obs_spec, action_spec, keys, feed)
        except Exception as error:
            raise ConfigError(
                f"environment {name}: {describe(error)}; `surreal-like check` shows everything"
            ) from error
    return stack_spec(obs_spec, stack_size(env_config)), action_spec, info


def _try(
    env: Env,
    obs_spec: dict[str, Any],
    action_spec: dict[str, Any],
    info_keys: tuple[str, ...],
    feed: RunFeed,
) -> dict[str, npt.NDArray[Any]]:
    """Takes random steps; returns the first row of each key of the info."""
    env.seed(0)
    specs: dict[str, Any] = {"obs_spec": obs_spec, "action_spec": action_spec}
    vector = SyncVector([env], **specs, info_keys=info_keys, feed=feed)
    rng, until = np.random.default_rng(0), time.monotonic() + _TRIED_SECONDS
    parts: dict[str, ArraySpec] = nest.flatten(parse_obs_spec(obs_spec), "obs")
    obs, info = vector.reset()
    row = {key: info[key][0] for key in info_keys}
    for _ in range(_TRIED_STEPS):
        for path, leaf in nest.flatten(obs, "obs").items():
            parts[path].validate(path, leaf)
        one = nest.map(lambda leaf: leaf[0], obs)
        obs = vector.step(random_action(action_spec, rng, one)[None])[0]
        if time.monotonic() > until:
            break
    return row


def _joint_builder(build: Callable[[], Any]) -> Callable[[], JointEnv]:
    from surreal_like.env.joint import as_joint

    return lambda: as_joint(build())


def _adapt(built: Any, config: Mapping[str, Any]) -> Env:
    import gymnasium.vector

    from surreal_like.env.gym_adapter import GymAdapter

    if isinstance(built, VectorEnv | gymnasium.vector.VectorEnv):
        return FirstStream(as_batched(built, config))
    return GymAdapter(built, config)


@dataclass(slots=True)
class _Check:
    report: Report
    build: Callable[[], Any]
    config: Mapping[str, Any]
    seed: int
    until: float
    single: bool = False
    values: ValueChecks = field(init=False)
    action_spec: dict[str, Any] = field(default_factory=dict)

    def run(self, steps: int) -> None:
        """Runs all checks, in the order in which an author would look for mistakes."""
        with contextlib.ExitStack() as stack:
            env = self._build(stack)
            self._specs(env)
            env.seed(self.seed)
            report_played(self.report, self._play(env, steps), self.config.get("num_envs") or 8)
            if isinstance(env, FirstStream) and env.vector.takes_tasks:
                check_masked_reset(self.report, env, self.action_spec)
        if not self.report.ok:
            return
        if self.single:
            report_not_compared(self.report)
            return
        self.until = max(self.until, time.monotonic() + 1.0)
        source = "self.np_random" if hasattr(env, "gym_env") else "self.rng"
        compare_copies(self.report, self._trace, source)

    def _build(self, stack: contextlib.ExitStack) -> Env:
        with self.report.guard("constructor"):
            built = self.build()
            if is_joint(built):
                if not self.single:
                    built.close()
                raise SeveralAgents
            if not isinstance(built, Env):
                built = _adapt(built, self.config)
            env: Env = built
            first_feed(self.config).begin(env)
            if not self.single:
                stack.enter_context(contextlib.closing(env))
            return env
        raise StopChecking

    def _specs(self, env: Env) -> None:
        with self.report.guard("specs"):
            obs_spec, self.action_spec = specs_of(env, self.config)
            self.values = ValueChecks(self.report, obs_spec)
            text = self.values.describe(self.action_spec)
        self.report.add("ok", "specs", text)
        check_bounds(self.report, self.action_spec)

    def _play(self, env: Env, steps: int) -> Played:
        """Plays random steps; returns their statistics."""
        rng = np.random.default_rng(self.seed)
        if isinstance(env, FirstStream):
            return play_copies(
                self.report, self.values, env, self.action_spec, rng, steps, self.until
            )
        seconds: list[float] = []
        ends = 0
        obs = self._reset(env)
        for _ in range(steps):
            action = random_action(self.action_spec, rng, obs)
            began = time.monotonic()
            with self.report.guard("step()"):
                result = env.step(action if action.ndim else action.item())
            seconds.append(time.monotonic() - began)
            ended, obs = self._step_ended(result), result[0]
            if ended:
                ends += 1
                obs = self._reset(env)
            if time.monotonic() > self.until:
                break
        return Played(len(seconds), steps, ends, seconds)

    def _reset(self, env: Env) -> Any:
        """Resets an environment; returns the first observation."""
        with self.report.guard("reset()"):
            result: Any = env.reset()
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
            self.report.add(
                "error", "reset()", f"gave {kinds(result)}, expected (observation, info)"
            )
            raise StopChecking
        self.values.observe(result[0])
        return result[0]

    def _step_ended(self, result: Any) -> bool:
        if not isinstance(result, tuple) or len(result) != 5 or not isinstance(result[4], dict):
            wanted = "(observation, reward, terminated, truncated, info)"
            self.report.add("error", "step()", f"gave {kinds(result)}, expected {wanted}")
            raise StopChecking
        obs, reward, terminated, truncated, info = result
        values = self.values
        values.observe(obs)
        values.reward(reward)
        ended = [values.flag("terminated", terminated), values.flag("truncated", truncated)]
        for key, value in (info.get("metrics") or {}).items():
            if not isinstance(value, int | float | np.number | np.bool_):
                self.report.add(
                    "error", "metrics", f"info['metrics'][{key!r}] is {value!r}, expected a number"
                )
        return any(ended)

    def _trace(self, beside: bool) -> Trace:
        """Returns observations and rewards of the same actions; steps a copy in between."""
        with contextlib.ExitStack() as stack:
            other = self._build(stack) if beside else None
            return self._trace_steps(self._build(stack), other)

    def _trace_steps(self, env: Env, other: Env | None) -> Trace:
        rng, its_rng = np.random.default_rng(self.seed), np.random.default_rng(self.seed + 1)
        its_obs = None
        if other is not None:
            other.seed(self.seed + 1)
            its_obs = other.reset()[0]
        env.seed(self.seed)
        obs: Any = env.reset()[0]
        seen: Trace = [(_copy(obs), 0.0)]
        with self.report.guard("step()"):
            for _ in range(COMPARED_STEPS):
                action = random_action(self.action_spec, rng, obs)
                single = action if action.ndim else action.item()
                obs, reward, terminated, truncated, _ = env.step(single)
                seen.append((_copy(obs), number("reward", reward)))
                if terminated or truncated:
                    obs = env.reset()[0]
                if other is not None:
                    action = random_action(self.action_spec, its_rng, its_obs)
                    its_obs, _, *flags = other.step(action if action.ndim else action.item())[:4]
                    its_obs = other.reset()[0] if any(flags) else its_obs
                if time.monotonic() > self.until:
                    break
        return seen


def _copy(obs: Any) -> list[npt.NDArray[Any]]:
    return [np.array(leaf) for leaf in nest.leaves(obs)]
