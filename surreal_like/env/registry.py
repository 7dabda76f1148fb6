"""Environments by their names in configs, built with all their wrappers.

`env_config.env_name` is one of

    gym:CartPole-v1         registered in Gymnasium; gym:module:Name-v0 imports module first
    toy:chain               an environment of `surreal_like.env.toy`
    package.module:Class    an Env, a gymnasium.Env, a batched environment (a VectorEnv of ours or
                            of Gymnasium), or a function that builds one
    file.py:Class           the same, in a file
    gymvec:CartPole-v1      the vector code that Gymnasium has for an environment

or has a prefix of the table `environments` of an add-on.

Of `env_config` these keys are read here: `env_name`, `env_args` (constructor arguments),
`eval_mode` (entries that replace arguments when evaluating), `clip_action`, `action_repeat`,
`obs_keys` (parts of a Dict of observations that stay), `wrappers`,
`limit_episode_length`, `metric_keys` (numbers of `info` that become metrics of their episode),
`frame_stack` (only its effect on specs), `obs_spec`, `action_spec`. An entry of `wrappers` is a
`package.module:Class` or `file.py:Class`, or a mapping `{wrapper: path, args: {...}, training_only:
true}`; the first entry is the innermost. Classes that extend `gymnasium.Wrapper` come first: they
change spaces before these are checked.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from session.config.named_code import load_callable
from session.errors import ConfigError, UsageError
from surreal_like.data.frames import frame_spec, stack_size, stack_spec
from surreal_like.data.spec import compare
from surreal_like.data.task import tasks_of
from surreal_like.env.batched_names import check_settings
from surreal_like.env.environment import Env, VectorEnv
from surreal_like.env.kinds import Wanted, build_named, call_checked
from surreal_like.env.wrappers import (
    WRAPPER_KEYS,
    ActionRepeat,
    ClipAction,
    FilterObservation,
    LimitEpisodeLength,
    MetricsOfInfo,
    horizon,
)
from surreal_like.errors import SpecError

if TYPE_CHECKING:
    from surreal_like.env.actions import Outside
    from surreal_like.env.batched import Batched, BatchedVector
    from surreal_like.env.multi_agent import JointEnv

Config = Mapping[str, Any]
# Copies of a batched environment that is looked at: mistakes show with two.
LOOKED_AT = 2


def make_env(env_config: Config, evaluation: bool = False) -> Env:
    """Builds one environment and its wrappers; of a batched environment it is the first stream.

    evaluation: `eval_mode` replaces arguments, and wrappers for training only are left out.
    Raises ConfigError for an unknown name (with the nearest ones) or a wrong argument, and
    MissingExtra, which names what to install.
    """
    env = make_env_or_batch(env_config, LOOKED_AT, evaluation)
    if isinstance(env, Env):
        return env
    from surreal_like.env.batched import FirstStream

    return FirstStream(env)


def make_env_or_batch(
    env_config: Config, num_envs: int, evaluation: bool = False, seed: int = 0
) -> Env | BatchedVector:
    """Builds one environment and its wrappers, or a batched environment.

    num_envs: copies of a batched environment that takes their number.
    seed: seed of the copies of EnvPool. All else as of `make_env`.
    """
    check_env_config(env_config)
    if env_config.get("env_name") == "remote":
        raise ConfigError("env_name remote: only clients of its gateway have this environment")
    env = _build(env_config, evaluation, num_envs, seed)
    if not isinstance(env, Env):
        return env
    try:
        return _wrap(env, env_config, evaluation)
    except BaseException:
        env.close()
        raise


def make_joint_env(env_config: Config, evaluation: bool = False) -> JointEnv:
    """Builds one environment of several agents, with its wrappers of PettingZoo.

    Arguments and errors are those of `make_env`. Raises ConfigError also if the environment has
    one agent only.
    """
    check_env_config(env_config)
    from surreal_like.env.multi_agent import as_joint, close_env

    name, built = str(env_config.get("env_name")), _build_object(env_config, evaluation)
    if not is_joint(built):
        raise ConfigError(f"env_config.env_name: {name} is an environment of a single agent")
    try:
        for path, arguments in wrapper_entries(env_config, evaluation):
            wrapper = load_callable(path, "env_config.wrappers")
            built = call_checked(wrapper, path, arguments, "env_config.wrappers", built)
        # Only what learns sees the state.
        observe = bool(env_config.get("observe_state")) and not evaluation
        return as_joint(built, str(env_config.get("multi_agent_api") or "auto"), observe)
    except BaseException:
        close_env(built)
        raise


class SeveralAgents(ConfigError):
    """The environment has several agents, and so cannot be an Env."""


def is_joint(built: Any) -> bool:
    """Returns True for an environment of several agents, by one of PettingZoo's interfaces."""
    # A space is no function; both interfaces of PettingZoo have one of the agent.
    return all(
        callable(getattr(built, f"{what}_space", None)) for what in ("observation", "action")
    )


def check_env_config(env_config: Any) -> None:
    """Raises UsageError unless this is a mapping whose `env_name` is a text."""
    if not isinstance(env_config, Mapping):
        raise UsageError(
            f"a {_kind(env_config)} is no env_config, expected a mapping such as "
            "{'env_name': 'gym:CartPole-v1'}; as_vector(env) makes a VectorEnv of one Env"
        )
    name = env_config.get("env_name")
    if name is not None and not isinstance(name, str):
        kind: Any = name if isinstance(name, type) else type(name)
        example = f"{kind.__module__}:{kind.__qualname__}"
        example = example if hasattr(kind, "reset") else "gym:CartPole-v1"
        raise UsageError(
            f"env_config.env_name is a {_kind(name)}, expected a text, because each process builds "
            f"its own environments: write '{example}', and arguments into env_config.env_args"
        )


def _kind(value: object) -> str:
    return f"class {value.__name__}" if isinstance(value, type) else type(value).__name__


def env_args(env_config: Config, evaluation: bool = False) -> dict[str, Any]:
    """Returns the constructor arguments of the environment, in training or in evaluation.

    They are a deep copy: a constructor may change its arguments, and the next copy needs them.
    """
    overrides = (env_config.get("eval_mode") or {}) if evaluation else {}
    return deepcopy({**(env_config.get("env_args") or {}), **overrides})


def wrapper_entries(env_config: Config, evaluation: bool = False) -> list[tuple[str, Config]]:
    """Returns the wrappers of a config, as (dotted path, arguments), the innermost first.

    The arguments are a deep copy, as of `env_args`.
    """
    entries: list[tuple[str, Config]] = []
    for entry in env_config.get("wrappers") or ():
        mapping: Any = {"wrapper": entry} if isinstance(entry, str) else entry
        known = {"wrapper", "args", "training_only"}
        if not isinstance(mapping, Mapping) or "wrapper" not in mapping or set(mapping) - known:
            raise ConfigError(
                f"env_config.wrappers: {entry!r} is neither 'package.module:Class' nor "
                "{wrapper: ..., args: {...}, training_only: true}"
            )
        if not (evaluation and mapping.get("training_only", False)):
            entries.append((str(mapping["wrapper"]), deepcopy(mapping.get("args") or {})))
    return entries


def is_wrapped(env_config: Config, evaluation: bool = False) -> bool:
    """True if a single environment has wrappers that native vector code would leave out."""
    keys = any((env_config.get(key) or off) != off for key, (off, *_) in WRAPPER_KEYS.items())
    return keys or bool(wrapper_entries(env_config, evaluation))


def specs_of(env: Env | VectorEnv, env_config: Config) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns (obs_spec, action_spec) of a built environment, checked against the config.

    The observations are single frames, also if the config has stacks. Specs of the config are
    completed. Raises SpecError if config and environment differ, or if neither has a spec.
    """
    frame = {**env_config, "obs_spec": given_frame_spec(env_config)}
    return _spec_of(env, frame, "obs_spec"), _spec_of(env, env_config, "action_spec")


def given_frame_spec(env_config: Config) -> dict[str, Any]:
    """Returns the spec of a single frame from `env_config.obs_spec`; empty if that is empty."""
    given = env_config.get("obs_spec")
    return frame_spec(given, stack_size(env_config)) if given else {}


def derive_specs(env_config: Config) -> tuple[dict[str, Any], dict[str, Any]]:
    """Builds one environment and closes it; returns (obs_spec, action_spec) as plain dicts.

    The observations are those of an agent: stacks, if `frame_stack` is set.
    """
    with contextlib.closing(make_env(env_config)) as env:
        obs_spec, action_spec = specs_of(env, env_config)
    return stack_spec(obs_spec, stack_size(env_config)), action_spec


def derive_joint_specs(env_config: Config) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Builds one environment of several agents and closes it; returns the specs by agent."""
    with contextlib.closing(make_joint_env(env_config)) as env:
        return {agent: env.specs_of(agent) for agent in env.possible_agents}


def _build(env_config: Config, evaluation: bool, num_envs: int, seed: int) -> Env | BatchedVector:
    name = str(env_config.get("env_name"))
    built = _build_object(env_config, evaluation, num_envs, seed)
    if isinstance(built, Env):
        return _bound(built, env_config)
    if is_joint(built):
        from surreal_like.env.multi_agent import close_env

        close_env(built)
        raise SeveralAgents(
            f"env_config.env_name: {name} is an environment of several agents, but one of a single "
            "agent is needed here: train, evaluate and play run it"
        )
    import gymnasium.vector

    if isinstance(built, VectorEnv | gymnasium.vector.VectorEnv):
        try:
            check_settings(name, env_config, wrapped=bool(wrapper_entries(env_config, evaluation)))
            return as_batched(built, env_config)
        except BaseException:
            built.close()
            raise
    return _adapt(built, name, env_config, evaluation)


def as_batched(built: Batched, env_config: Config) -> BatchedVector:
    """Returns a batched environment with its checks, and the specs of the config.

    Raises ConfigError for tasks if it begins episodes by itself.
    """
    from surreal_like.env.batched import BatchedVector

    keys = tuple(env_config.get("info_keys") or ())
    outside: Outside = "clip" if env_config.get("clip_action", True) else "refuse"
    vector = BatchedVector(built, outside=outside, info_keys=keys)
    if (tasks := tasks_of(env_config)) is not None and not vector.takes_tasks:
        raise ConfigError(
            f"env_config.{tasks.key}: {env_config.get('env_name')} begins episodes by itself, "
            "which get no task: let it leave that to its caller (autoreset_mode DISABLED, reset "
            "with options['reset_mask'])"
        )
    return vector


def _build_object(env_config: Config, evaluation: bool, num_envs: int = 1, seed: int = 0) -> Any:
    arguments = env_args(env_config, evaluation)
    name = str(env_config.get("env_name"))
    return build_named(Wanted(name, arguments, env_config, evaluation, num_envs, seed))


def _adapt(built: Any, name: str, env_config: Config, evaluation: bool) -> Env:
    """Makes an Env of a Gymnasium environment, with the Gymnasium wrappers of the config."""
    import gymnasium

    from surreal_like.env.gym_adapter import GymAdapter

    if not isinstance(built, gymnasium.Env):
        raise ConfigError(
            f"env_config.env_name: {name} gives a {type(built).__name__}, "
            "expected a surreal_like Env or VectorEnv, or one of Gymnasium"
        )
    try:
        for path, wrapper, arguments in _wrappers(env_config, evaluation):
            if is_gym_wrapper(wrapper):
                built = call_checked(wrapper, path, arguments, "env_config.wrappers", built)
        # The config's specs are those after all wrappers; they are compared there.
        return GymAdapter(built, {**env_config, "obs_spec": {}, "action_spec": {}})
    except BaseException:
        built.close()
        raise


def is_gym_wrapper(wrapper: object) -> bool:
    """Returns True for a class that extends gymnasium.Wrapper; does not import gymnasium."""
    gymnasium = sys.modules.get("gymnasium")
    if gymnasium is None or not isinstance(wrapper, type):
        return False
    return issubclass(wrapper, gymnasium.Wrapper)


def _wrappers(env_config: Config, evaluation: bool) -> list[tuple[str, Callable[..., Any], Config]]:
    """Returns the wrappers of a config as (dotted path, class or function, arguments).

    Raises ConfigError if one of Gymnasium comes after one of ours.
    """
    found: list[tuple[str, Callable[..., Any], Config]] = []
    for path, arguments in wrapper_entries(env_config, evaluation):
        wrapper = load_callable(path, "env_config.wrappers")
        if found and is_gym_wrapper(wrapper) and not is_gym_wrapper(found[-1][1]):
            raise ConfigError(
                f"env_config.wrappers: {path} extends gymnasium.Wrapper, {found[-1][0]} does not: "
                "those of Gymnasium come first, for they wrap what is inside"
            )
        found.append((path, wrapper, arguments))
    return found


def _bound(env: Env, env_config: Config) -> Env:
    spec = getattr(env, "action_spec", None) or {}
    bounded = "low" in spec or "high" in spec
    return ClipAction(env, clip=bool(env_config.get("clip_action", True))) if bounded else env


def _wrap(env: Env, env_config: Config, evaluation: bool) -> Env:
    repeat = env_config.get("action_repeat") or 1
    if repeat != 1:
        env = ActionRepeat(env, repeat)
    is_gym = hasattr(env, "gym_env")
    if env_config.get("obs_keys") and not is_gym:
        env = FilterObservation(env, env_config["obs_keys"])
    for path, wrapper, arguments in _wrappers(env_config, evaluation):
        if is_gym_wrapper(wrapper):
            if not is_gym:
                raise ConfigError(
                    f"env_config.wrappers: {path} extends gymnasium.Wrapper, but "
                    f"{env_config.get('env_name')} is no Gymnasium environment: name a wrapper "
                    "that extends surreal_like.Wrapper"
                )
            continue
        env = call_checked(wrapper, path, arguments, "env_config.wrappers", env)
        if not isinstance(env, Env):
            raise ConfigError(f"env_config.wrappers: {path} gives no surreal_like.env.Env")
    limit = horizon(env_config.get("limit_episode_length"))
    if limit:
        env = LimitEpisodeLength(env, limit)
    keys = env_config.get("metric_keys")
    # Outermost: it has to see every end of an episode.
    return MetricsOfInfo(env, keys) if keys else env


def _spec_of(env: Env | VectorEnv, env_config: Config, what: str) -> dict[str, Any]:
    given, derived = env_config.get(what), getattr(env, what, None) or env_config.get(what)
    if not derived:
        raise SpecError(
            f"env_config.{what} is not given, and {env_config.get('env_name')} does not tell it: "
            f"write it into the config, or give the environment an attribute {what}"
        )
    return compare(given, derived, what)
