"""Settings of environments that step their copies themselves."""

from __future__ import annotations

from session.errors import ConfigError
from surreal_like.env.kinds import Config, kind_of
from surreal_like.env.wrappers import WRAPPER_KEYS, horizon


def takes_number(env_config: Config) -> bool:
    """True if a batched environment is built with any number of copies, and not with its own."""
    name = str(env_config.get("env_name"))
    given = {**(env_config.get("env_args") or {}), **(env_config.get("eval_mode") or {})}
    return "num_envs" not in given and kind_of(name).takes(name, "num_envs")


def check_settings(name: str, env_config: Config, *, wrapped: bool) -> None:
    """Raises ConfigError for the first setting that only single environments have.

    wrapped: True if wrappers are configured.
    """
    limited = horizon(env_config.get("limit_episode_length"))
    limits = "give its constructor an argument max_episode_steps"
    for key, is_set, remedy in (
        ("vector", (env_config.get("vector") or "native") != "native", "leave it out"),
        ("wrappers", wrapped, "change what it gives in its own code"),
        *(
            (key, (env_config.get(key) or off) != off, remedy)
            for key, (off, remedy, _) in WRAPPER_KEYS.items()
        ),
        ("on_error", env_config.get("on_error") == "restart", "make a broken copy anew itself"),
        (
            "limit_episode_length",
            limited and not kind_of(name).takes(name, "max_episode_steps"),
            limits,
        ),
    ):
        if is_set:
            raise ConfigError(
                f"env_config.{key} is {env_config[key]}, but {name} is a batched environment, "
                f"which steps its copies itself: {remedy}"
            )
