"""Batched environments by their names: how they get the number of their copies and the horizon.

A class or function of an author is given `num_envs` and `max_episode_steps` where it has arguments
of these names; so are `gymvec:NAME` and `envpool:NAME`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from session.config.named_code import load_callable
from session.errors import ConfigError
from surreal_like.env.base import VectorEnv
from surreal_like.env.wrappers import horizon

if TYPE_CHECKING:
    import gymnasium

Config = Mapping[str, Any]
# Kinds of names whose environments are always batched.
BATCHED = ("gymvec", "envpool")


def make_batched(
    name: str, num_envs: int, arguments: Config, *, limit: int | None, seed: int
) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Builds `gymvec:NAME` or `envpool:NAME`, with the horizon `limit`.

    seed: seeds the copies of EnvPool, which take it only here.
    """
    if name.startswith("gymvec:"):
        from surreal_like.env.gym_adapter import make_gym_vector

        return make_gym_vector(name, num_envs, arguments, limit)
    from surreal_like.env.env_pool import make_envpool

    return make_envpool(name, num_envs, arguments, limit=limit, seed=seed)


def takes_number(env_config: Config) -> bool:
    """True if a batched environment is built with any number of copies, and not with its own."""
    name = str(env_config.get("env_name"))
    given = {**(env_config.get("env_args") or {}), **(env_config.get("eval_mode") or {})}
    return "num_envs" not in given and _takes(name, "num_envs")


def _takes(name: str, argument: str) -> bool:
    if name.partition(":")[0] in BATCHED:
        return True
    return argument in _parameters(load_callable(name, "env_config.env_name"))


def _parameters(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Returns the parameters of what may give a batched environment; none of other code."""
    parameters = inspect.signature(factory).parameters
    if isinstance(factory, type):
        vector = getattr(sys.modules.get("gymnasium.vector"), "VectorEnv", VectorEnv)
        return parameters if issubclass(factory, VectorEnv | vector) else {}
    return parameters if "num_envs" in parameters else {}


def add_arguments(
    factory: Callable[..., Any], arguments: Config, num_envs: int, limit: int | None
) -> Config:
    """Returns the arguments, with the number of copies and the horizon where they are taken."""
    parameters, added = _parameters(factory), dict(arguments)
    if "num_envs" in parameters:
        added.setdefault("num_envs", num_envs)
    if limit and "max_episode_steps" in parameters:
        added["max_episode_steps"] = min(limit, added.get("max_episode_steps") or limit)
    return added


def check_settings(name: str, env_config: Config, *, wrapped: bool) -> None:
    """Raises ConfigError for the first setting that only single environments have.

    wrapped: True if wrappers are configured.
    """
    limited = horizon(env_config.get("limit_episode_length"))
    limits = "give its constructor an argument max_episode_steps"
    for key, is_set, remedy in (
        ("vector", (env_config.get("vector") or "native") != "native", "leave it out"),
        ("wrappers", wrapped, "change what it gives in its own code"),
        ("action_repeat", (env_config.get("action_repeat") or 1) != 1, "repeat in its step"),
        ("on_error", env_config.get("on_error") == "restart", "make a broken copy anew itself"),
        ("obs_keys", env_config.get("obs_keys"), "leave the other parts out of its observations"),
        ("metric_keys", env_config.get("metric_keys"), "info_keys makes columns of them"),
        ("limit_episode_length", limited and not _takes(name, "max_episode_steps"), limits),
    ):
        if is_set:
            raise ConfigError(
                f"env_config.{key} is {env_config[key]}, but {name} is a batched environment, "
                f"which steps its copies itself: {remedy}"
            )
