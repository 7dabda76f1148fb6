"""Environments of EnvPool, `envpool:NAME`: simulators in C++, which step N copies in threads."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium

from session.did_you_mean import did_you_mean
from session.errors import ConfigError, MissingExtra
from surreal_like.env.kinds import EnvironmentKind, Wanted

PREFIX = "envpool:"


class EnvPool(EnvironmentKind):
    """Environments of EnvPool."""

    batched = True

    def build(self, wanted: Wanted) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        """Builds N copies of an environment of EnvPool, with the horizon of the config.

        Raises ConfigError for an unknown name or argument, MissingExtra without EnvPool.
        """
        try:
            import envpool
        except ModuleNotFoundError as error:
            raise MissingExtra.named(wanted.name, "envpool") from error
        task, known = wanted.rest, envpool.list_all_envs()
        if task not in known:
            otherwise = "envpool.list_all_envs() shows what there is"
            hint = did_you_mean(task, known, most=3, shown=PREFIX.__add__, otherwise=otherwise)
            raise ConfigError(f"env_config.env_name: no {wanted.name}; {hint}")
        arguments = {"num_envs": wanted.num_envs, "seed": wanted.seed, **wanted.arguments}
        if wanted.limit:
            own = arguments.get("max_episode_steps", wanted.limit)
            arguments["max_episode_steps"] = min(own, wanted.limit)
        try:
            made: Any = envpool.make(task, env_type="gymnasium", **arguments)
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"env_config.env_args: {wanted.name} cannot be built: {error}"
            ) from error
        return _SeededBefore(made)


class _SeededBefore(gymnasium.vector.VectorWrapper):
    """Passes no seed on: the copies have got theirs when they were built."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        # Kept from now on: EnvPool makes its spaces when they are asked for, and the rounding of
        # their bounds to float32 is a warning.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            _ = env.observation_space, env.action_space

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        return self.env.reset(options=options)
