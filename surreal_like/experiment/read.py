"""Reads the settings that the user of an experiment gives: a file, and words of a command."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from session.addons import count_acting, list_feeds
from session.config.config import Config, apply_overrides, keys_of
from session.config.constraints import check_values
from session.config.defaults import BASE_CONFIG
from session.config.merge import quote
from session.config.named_code import (
    Overrides,
    as_overrides,
    folders_of,
    named_places,
    place_of,
)
from session.config.sections import MAPPINGS, SECTIONS, TEXTS
from session.errors import ConfigError
from surreal_like.algorithm.catalog import name_of
from surreal_like.experiment.shipped import find_experiment

_KEYS = (*MAPPINGS, *TEXTS)
# Keys of tune files only.
_TUNING = frozenset(("experiment", "space", "tune"))
# Entries that a run adds to its config.yaml.
_RECORDED = ("recorded", "run")


def read_experiment(
    path: str | Path | None,
    overrides: Overrides = (),
    *,
    algorithm: str | type[Any] | None = None,
    env_name: str | Callable[..., Any] | None = None,
) -> Config:
    """Reads the user's settings: a file, or an algorithm and an environment, then overrides.

    Only the parts that need neither the algorithm nor the environment are checked here. The present
    folder is added to the import path if a setting names a module of it.

    Args:
        path: experiment file, YAML or JSON, or the name of a shipped one.
        overrides: ``{"section.key": value}`` or ``["section.key=value"]``, each in YAML.
        algorithm: replaces the file's; a class by the name under which it is imported.
        env_name: replaces the file's; a class or function by the name under which it is imported.

    Raises:
        ConfigError: the file or an override is wrong; names the key and the nearest valid key.
        UsageError: other processes cannot import a given class or function.
    """
    user = Config.load_file(str(find_experiment(path))) if path is not None else Config({})
    for key in _RECORDED:
        user.pop(key, None)
    if _TUNING.intersection(user):
        raise ConfigError(f"{path} is a tuning: surreal-like tune {shlex.quote(str(path))}")
    user = _check_sections(user)
    if algorithm is not None:
        user.algorithm = name_of(algorithm)
    if env_name is not None:
        is_text = isinstance(env_name, str)
        user.env_config.env_name = env_name if is_text else place_of(env_name, "env")
    apply_overrides(user, as_overrides(overrides))
    user = _check_sections(user)
    if "algorithm" not in user:
        raise ConfigError("no algorithm: write 'algorithm: dqn' in the file or give --algorithm")
    if not user.env_config.get("env_name"):
        raise ConfigError(
            "no environment: write env_config.env_name in the file or give --env, as in "
            "--env gym:CartPole-v1"
        )
    _check_without_algorithm(user)
    session = user.session_config
    folders = folders_of(named_places(user), session.get("import_path") or [])
    if folders:
        session.import_path = folders
    return user


def _check_sections(user: Config) -> Config:
    """Returns the experiment with all sections; one that is empty has no settings.

    Raises:
        ConfigError: an entry is unknown, a section is no mapping, or another entry no text.
    """
    for key in user:
        if key not in _KEYS:
            raise ConfigError(f"unknown key '{key}'; an experiment has {', '.join(_KEYS)}")
    given = {key: value for key, value in user.to_dict().items() if value is not None}
    for key, value in given.items():
        if key in TEXTS and not isinstance(value, str):
            raise ConfigError(f"{key} is {quote(value)}, expected {TEXTS[key]}")
        if key not in TEXTS and not isinstance(value, dict):
            raise ConfigError(
                f"{key} is {quote(value)}, expected a mapping of keys to values, such as "
                "{env_name: gym:CartPole-v1} of env_config"
            )
    return Config({section: {} for section in SECTIONS} | given)


def _check_without_algorithm(user: Config) -> None:
    """Rejects settings that are invalid for any algorithm, before anything slow begins."""
    known = Config({key: user[key] for key in ("env_config", "session_config")})
    wanted = Config({key: BASE_CONFIG[key] for key in known})
    check_values(known.extend(wanted, strict=True), keys_of(BASE_CONFIG))
    _check_stop(known.session_config)
    _check_modes(known.session_config.evaluator)
    check_rows_come(known.session_config)


def _check_stop(session: Config) -> None:
    """Rejects goals that can never be evaluated."""
    stop = session.stop
    # Clients of other processes that act may evaluate.
    acting = count_acting(session) - session.agent.num
    goal = "eval_returns" if stop.eval_returns else "eval_return"
    if stop[goal] not in (None, {}) and session.evaluator.num < 1 and not acting:
        raise ConfigError(
            f"session_config.stop.{goal} is {stop[goal]}, but there is no evaluator: "
            f"set session_config.evaluator.num to 1, or leave {goal} out"
        )
    if (stop.metric is None) != (stop.above is None):
        raise ConfigError(
            f"session_config.stop.metric is {stop.metric} and above is {stop.above}: a goal needs "
            "both, as in {metric: my/score, above: 3}"
        )


def _check_modes(evaluator: Config) -> None:
    """Rejects a list of modes that is empty, or that is longer than the number of evaluators."""
    modes, num = evaluator.mode, evaluator.num
    if not modes:
        raise ConfigError("session_config.evaluator.mode is [], expected at least one mode")
    # Without evaluators no mode is used, so any list is valid.
    if 0 < num < len(modes):
        raise ConfigError(
            f"session_config.evaluator.mode has {len(modes)} modes, but "
            f"session_config.evaluator.num is {num}: set num to {len(modes)}, or shorten the list"
        )


def check_rows_come(session: Config) -> None:
    """Rejects a run that gets no rows: neither of agents nor recorded ones.

    Raises:
        ConfigError: says what to set.
    """
    agent, host = session.agent, session.launcher.host
    if agent.max >= 1 or count_acting(session) >= 1 or host:
        return
    if not list_feeds(session):
        raise ConfigError(
            "session_config.agent.num is 0, so no rows would come: give "
            "session_config.dataset.path with recorded rows, or set it to 1 or "
            "more, or session_config.gateway.num for clients that connect, or give "
            "session_config.launcher.host, so that agents of other machines can join"
        )
    if session.stop.env_steps is not None:
        raise ConfigError(
            f"session_config.stop.env_steps is {session.stop.env_steps}, but session_config.agent."
            "num is 0, and recorded rows are no steps: give stop.iterations, or stop.seconds"
        )
