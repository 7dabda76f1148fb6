"""Resolves an experiment: from a YAML file and a command line to one complete config.

Resolving needs the algorithm (which imports torch) and one environment (whose constructor runs
arbitrary code), so it runs in a short process of its own:
``python -P -m surreal_like.experiment.resolve``. One file, because it is that program.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

from session.addons import count_acting, list_feeds
from session.addons.hooks import SPECS
from session.config.config import Config, apply_overrides, check_resolved, keys_of
from session.config.constraints import check_values
from session.config.defaults import BASE_CONFIG
from session.config.merge import leaves, paths, quote, spell_out
from session.config.named_code import (
    Overrides,
    as_overrides,
    folders_of,
    named_places,
    place_of,
)
from session.config.sections import MAPPINGS, SECTIONS, TEXTS, sections_of
from session.errors import (
    ConfigError,
    MissingExtra,
    SurrealError,
    UsageError,
    describe,
)
from session.json_file import read_object
from session.version import VERSION
from surreal_like.algorithm.catalog import name_of
from surreal_like.data.policy_names import PolicyId, agents_of, policies_of
from surreal_like.errors import SpecError
from surreal_like.experiment.shipped import find_experiment
from surreal_like.experiment.user_code import git_revision, own_modules
from surreal_like.policies.config import policy_configs

_KEYS = (*MAPPINGS, *TEXTS)
# Keys of tune files only.
_TUNING = frozenset(("experiment", "space", "tune"))
# A complete config, or the error of an experiment that cannot be resolved.
Resolved: TypeAlias = Config | SurrealError
# Settings that do not belong to what differs from the defaults.
_UNCOMPARED = re.compile(
    r"algorithm$|policies\.|recorded\.|run\.|learner_config\.(gradient_columns|replay\.columns)"
    r"|env_config\.(env_name$|obs_spec|action_spec|workers)"
    r"|session_config\.(folder$|seed$|import_path|stop\.|tensorplex\.|checkpoint\.(start_from|parts)$)"
)
# The program of a process that resolves.
MODULE = "surreal_like.experiment.resolve"
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


def resolve_elsewhere(user: Config, *, must_be_installed: bool = True) -> Config:
    """Does the same as :func:`resolve`, in a child process.

    Raises:
        SurrealError: the error of the child, with its message.
    """
    return only_one(try_elsewhere([user], must_be_installed=must_be_installed))


def try_elsewhere(
    users: Sequence[Config], *, must_be_installed: bool = True, seconds: float = math.inf
) -> list[Resolved]:
    """Resolves experiments in a child process, as :func:`try_in_process` does."""

    def run(*paths: str) -> str:
        command = [sys.executable, "-P", "-m", MODULE, *paths]
        return subprocess.run(command, capture_output=True, text=True, check=False).stderr

    return try_in_process(run, users, must_be_installed=must_be_installed, seconds=seconds)


def try_all(
    users: Sequence[Config],
    known: Config | None = None,
    *,
    must_be_installed: bool = True,
    seconds: float = math.inf,
) -> list[Resolved]:
    """Returns for each experiment its complete config, or the error.

    Args:
        users: users from :func:`read_experiment`.
        known: as in :func:`resolve`; None: the first one that can be resolved.
        must_be_installed: as in :func:`resolve`.
        seconds: time after which the remaining ones are left out.
    """
    found: list[Resolved] = []
    deadline = time.monotonic() + seconds
    for user in users:
        if found and time.monotonic() > deadline:
            break
        try:
            config = resolve(user, must_be_installed=must_be_installed, known=known)
            found.append(config)
            known = known or config
        except SurrealError as error:
            found.append(error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code may raise any
            text = f"the experiment could not be resolved: {describe(error)}"
            found.append(SurrealError(text))
    return found


def only_one(found: Sequence[Resolved]) -> Config:
    """Returns the only config of a result of :func:`try_all`; raises it if it is an error."""
    [only] = found
    if isinstance(only, SurrealError):
        raise only
    return only


def try_in_process(
    run: Callable[[str, str], str],
    users: Sequence[Config],
    known: Config | None = None,
    *,
    must_be_installed: bool = True,
    seconds: float = math.inf,
) -> list[Resolved]:
    """Resolves experiments in another process; the other arguments and the result as try_all.

    Args:
        run: runs :func:`main` with two arguments there; returns the standard error of the process.

    Raises:
        SurrealError: there is no answer; the message has the last words of that process.
    """
    with tempfile.TemporaryDirectory(prefix="sl-resolve-") as folder:
        asked, answer = Path(folder, "asked.json"), Path(folder, "answer.json")
        request = {
            "users": [user.to_dict() for user in users],
            "known": known.to_dict() if known is not None else None,
            "must_be_installed": must_be_installed,
            "seconds": seconds,
        }
        asked.write_text(json.dumps(request))
        stderr = run(str(asked), str(answer))
        if not answer.exists():
            words = stderr.strip().splitlines() or ["it left no word"]
            raise SurrealError(f"the experiment could not be resolved: {words[-1]}")
        return [_resolve(each) for each in read_object(answer)["answers"]]


def _resolve(data: Mapping[str, Any]) -> Resolved:
    if "error" not in data:
        return Config(data)
    kind = UsageError if data["exit_code"] == UsageError.exit_code else SurrealError
    return kind(data["error"])


def _plain(found: Resolved) -> dict[str, Any]:
    if isinstance(found, SurrealError):
        return {"error": str(found), "exit_code": found.exit_code}
    return found.to_dict()


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the resolving process; its arguments are the paths of request and answer."""
    parser = argparse.ArgumentParser(prog="python -P -m surreal_like.experiment.resolve")
    parser.add_argument("asked", type=Path)
    parser.add_argument("answer", type=Path)
    given = parser.parse_args(argv)
    request = read_object(given.asked)
    found = try_all(
        [Config(user) for user in request["users"]],
        Config(request["known"]) if request["known"] is not None else None,
        must_be_installed=request["must_be_installed"],
        seconds=request["seconds"],
    )
    given.answer.write_text(json.dumps({"answers": list(map(_plain, found))}))
    return max((each.exit_code for each in found if isinstance(each, SurrealError)), default=0)


if __name__ == "__main__":
    raise SystemExit(main())
