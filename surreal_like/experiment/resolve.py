"""Completes the settings of an experiment: defaults, specs of its environment, checks."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from session.addons.hooks import SPECS
from session.config.config import Config, check_resolved, keys_of
from session.config.constraints import check_values
from session.config.defaults import BASE_CONFIG
from session.config.merge import leaves, paths, spell_out
from session.config.sections import sections_of
from session.errors import ConfigError, MissingExtra, SurrealError
from session.version import VERSION
from surreal_like.data.policy_names import PolicyId, agents_of, policies_of
from surreal_like.errors import SpecError
from surreal_like.experiment.user_code import git_revision, own_modules
from surreal_like.policies.config import policy_configs

# Settings that do not belong to what differs from the defaults.
_UNCOMPARED = re.compile(
    r"algorithm$|policies\.|recorded\.|run\.|learner_config\.(gradient_columns|replay\.columns)"
    r"|env_config\.(env_name$|obs_spec|action_spec|workers)"
    r"|session_config\.(folder$|seed$|import_path|stop\.|tensorplex\.|checkpoint\.(start_from|parts)$)"
)


def defaults(algorithm: str) -> Config:
    """Returns the defaults that an algorithm adds to those of all algorithms.

    Raises:
        ConfigError: there is no such algorithm, or it cannot be imported.
    """
    from surreal_like.algorithm.algorithm import defaults_of, session_defaults_of
    from surreal_like.algorithm.registry import find_algorithm

    found = find_algorithm(algorithm)
    config = Config({"learner_config": defaults_of(found)})
    session = session_defaults_of(found)
    return config | {"session_config": session} if session else config


def resolve(user: Config, *, must_be_installed: bool = True, known: Config | None = None) -> Config:
    """Returns the complete config of an experiment, including the specs.

    Builds one environment in this process; :func:`resolve_elsewhere` does it in a child process.

    Args:
        user: user from :func:`read_experiment`.
        must_be_installed: False: if the environment is not installed here, use the specs of the
            config.
        known: a complete config; if it has the same environment of a single agent, its specs count.

    Raises:
        ConfigError: wrong key, type or choice; missing value; unknown algorithm.
        SpecError: the config's specs differ from the environment's, or the algorithm does not
            support them.
    """
    from session.tensorplex.sinks.sink import check_installed
    from surreal_like.algorithm.registry import find_algorithm
    from surreal_like.data.bounds import reward_bounds
    from surreal_like.data.task import tasks_of
    from surreal_like.experiment.policies import add_policies, check_policies
    from surreal_like.experiment.preflight import rehearse, rehearse_together

    if must_be_installed:
        check_import_path(user.session_config.get("import_path", []))
    folders = user.session_config.get("import_path", [])
    sys.path.extend(path for path in folders if path not in sys.path)
    default = defaults(user.algorithm).extend(BASE_CONFIG, abstract=True)
    config = extend_user(user, default)
    wanted = config.pop("policies")
    check_values(config, keys_of(default))
    check_resolved(config)
    if must_be_installed:
        check_installed(config)
    changed = _find_changed(user, config, default)
    env = config.env_config
    reward_bounds(env)
    if must_be_installed and (tasks := tasks_of(env)) is not None:
        tasks.check()
    info: Mapping[str, Any] = {}
    given = next(filter(None, (specs(user, config) for specs in SPECS)), None)
    if given is not None:
        env.obs_spec, env.action_spec = given
    # Policies of several agents may have other settings than the known ones.
    elif known and not agents_of(known) and _without_specs(env) == _without_specs(known.env_config):
        env.obs_spec, env.action_spec = known.env_config.obs_spec, known.env_config.action_spec
        info = _known_info(known)
    else:
        specs = _specs(config, must_be_installed=must_be_installed)
        if specs is None:
            add_policies(config, user, defaults)
        else:
            env.obs_spec, env.action_spec, info = specs
    check_policies(config, wanted)
    _fetch_once_per_unroll(config, user)
    for name, own in policy_configs(config).items():
        env, algorithm = own.env_config, find_algorithm(own.algorithm)
        try:
            algorithm.check(env.obs_spec, env.action_spec, env_name=env.env_name)
            algorithm.check_replay(own.learner_config)
            algorithm.validate_config(**sections_of(own))
        except (ConfigError, SpecError) as error:
            raise type(error)(f"{PolicyId(name).add('policies.{}: ')}{error}") from None
        rehearse(own, algorithm, starts_here=must_be_installed, info=info)
        # The policy's own, or those of the run.
        holder = policies_of(config)[name]
        (holder if "learner_config" in holder else config).learner_config = own.learner_config
    rehearse_together(config)
    return _record(config, own_modules(config.session_config.import_path), changed)


def _find_changed(user: Config, config: Config, default: Config) -> dict[str, Any]:
    """Returns dotted key -> value of the user's settings that differ from the defaults.

    Without the goal, names and places, which have columns of their own or no influence.
    """
    given, usual = leaves(spell_out(user, default)), leaves(default)
    return {
        key: value
        for key, value in leaves(config).items()
        if key in given and value != usual.get(key) and not _UNCOMPARED.match(key)
    }


def _fetch_once_per_unroll(config: Config, user: Config) -> None:
    """Completes the schedule of fetches where a policy learns from unrolls.

    What they learn from must not be older than ``evict_rule.max_version_lag``: with a fetch per
    episode, rows of long episodes are. Values of the user and of the algorithm stay.
    """
    from surreal_like.replay.replay import load_replay_class

    steps = [
        own.session_config.sender.flush_iteration
        for own in policy_configs(config).values()
        if load_replay_class(own.learner_config).overlap
    ]
    agent, usual = config.session_config.agent, BASE_CONFIG.session_config.agent
    given = user.session_config.get("agent") or {}
    wanted = {
        "fetch_parameter_mode": f"step:{min(steps, default=0)}",
        "fetch_interval_seconds": 0.0,
    }
    for key, value in wanted.items():
        if steps and key not in given and agent[key] == usual[key]:
            agent[key] = value


def _known_info(known: Config) -> dict[str, Any]:
    """Returns a row of each key of the info of a resolved experiment, as far as recorded."""
    import numpy as np

    columns = known.learner_config.replay.columns
    rows = {key: columns.get(f"extras/{key}") for key in known.env_config.info_keys}
    return {key: np.zeros(each.dim, each.type) for key, each in rows.items() if each is not None}


def _without_specs(env_config: Config) -> dict[str, Any]:
    return {k: v for k, v in env_config.items() if k not in ("obs_spec", "action_spec")}


def extend_user(user: Config, default: Config) -> Config:
    """Returns the user's settings, completed by the defaults.

    Raises:
        ConfigError: a setting is wrong; the message reports if only other algorithms have it.
    """
    from surreal_like.algorithm.catalog import list_algorithms

    try:
        return user.copy().extend(default, strict=True)
    except ConfigError:
        # Only now: the import of all algorithms takes a while.
        known = set(paths(default))
        for path in (each for each in leaves(user) if each not in known):
            others = [name for name in list_algorithms() if path in paths(defaults(name))]
            if others:
                raise ConfigError(
                    f"{user.algorithm} has no {path}: it is an option of {' and '.join(others)}"
                ) from None
        raise


def check_import_path(folders: Sequence[str]) -> None:
    """Rejects a missing folder: otherwise an import would fail later, in another process."""
    for folder in folders:
        if not os.path.isdir(folder):
            raise ConfigError(
                f"session_config.import_path: there is no folder {folder} (from {Path.cwd()}); "
                "give the folder that holds your modules"
            )


def _specs(config: Config, *, must_be_installed: bool) -> tuple[Mapping[str, Any], ...] | None:
    """Returns observation and action spec of the environment, and a row of its info.

    The specs are checked against the config's. None if it has several agents.
    """
    from surreal_like.env.check import tried_specs
    from surreal_like.env.registry import SeveralAgents
    from surreal_like.experiment.batched import check_batched

    env_config = config.env_config
    try:
        return tried_specs(env_config, partial(check_batched, config))
    except SeveralAgents:
        return None
    # Also one that ends its process: in a serial run that is the user's own.
    except (Exception, SystemExit) as error:
        missing = isinstance(error, MissingExtra) or isinstance(error.__cause__, ImportError)
        given = env_config.obs_spec, env_config.action_spec
        if missing and not must_be_installed and all(given):
            return *given, {}
        if missing and not must_be_installed:
            raise MissingExtra(
                f"{error}; or write obs_spec and action_spec into env_config: where it is "
                f"installed, surreal-like list environments --specs {env_config.env_name} "
                "prints them"
            ) from None
        if isinstance(error, SpecError) and env_config.env_name not in str(error):
            raise SpecError(f"{env_config.env_name}: {error}") from None
        if isinstance(error, SurrealError):
            raise
        # The constructor is the user's code and may raise any error.
        raise ConfigError(
            f"environment {env_config.env_name} cannot be built: {type(error).__name__}: {error}"
        ) from error


def _record(config: Config, modules: Mapping[str, str], changed: Mapping[str, Any]) -> Config:
    names = ("torch", "numpy", "gymnasium", "pyzmq")
    versions = {
        "surreal_like": VERSION,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in names},
    }
    config["recorded"] = {"fingerprint": config.fingerprint(), "versions": versions}
    if changed:
        config["recorded"]["changed"] = dict(changed)
    if modules:
        config["recorded"]["modules"] = dict(modules)
    revision = git_revision()
    if revision:
        config["recorded"]["git_revision"] = revision
    return config
