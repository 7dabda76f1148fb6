"""An experiment: from a YAML file and a command line to one resolved config.

Resolving needs the algorithm (which imports torch) and one environment (whose constructor may do
anything), so it runs as a short process of its own: ``python -P -m surreal_like.experiment``.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from session.config import Config, apply_overrides, check_resolved
from session.default_configs import (
    BASE_ENV_CONFIG,
    BASE_LEARNER_CONFIG,
    BASE_SESSION_CONFIG,
    check_choices,
)
from session.errors import ConfigError, SurrealError, UsageError
from session.folder import RunFolder
from session.version import VERSION

if TYPE_CHECKING:
    from surreal_like.algorithm.base import Algorithm

SECTIONS = ("learner_config", "env_config", "session_config")
_KEYS = ("algorithm", *SECTIONS)
_RECORDED = ("fingerprint", "versions", "git_revision", "run")


def read_experiment(
    path: str | Path | None,
    overrides: Sequence[str] = (),
    *,
    algorithm: str | None = None,
    env_name: str | None = None,
) -> Config:
    """What the user asks for: a file, or an algorithm and an environment, then overrides.

    Only the parts that need neither the algorithm nor the environment are checked here.

    Args:
        path: experiment file, YAML or JSON.
        overrides: ``section.key=value``, each value in YAML.
        algorithm: instead of the file's.
        env_name: instead of the file's.

    Raises:
        ConfigError: the file or an override is wrong; names the key and the nearest valid one.
    """
    user = Config.load_file(str(path)) if path is not None else Config({})
    for key in _RECORDED:
        user.pop(key, None)
    for key in user:
        if key not in _KEYS:
            raise ConfigError(f"unknown key '{key}'; an experiment has {', '.join(_KEYS)}")
    user = Config({section: {} for section in SECTIONS} | user.to_dict())
    if algorithm is not None:
        user.algorithm = algorithm
    if env_name is not None:
        user.env_config.env_name = env_name
    apply_overrides(user, overrides)
    if "algorithm" not in user:
        raise ConfigError("no algorithm: write 'algorithm: dqn' in the file or give --algorithm")
    _check_without_algorithm(user)
    return user


def _check_without_algorithm(user: Config) -> None:
    """Refuses what is wrong in any case, before anything slow begins."""
    base = base_config()
    known = Config({key: user[key] for key in ("env_config", "session_config")})
    wanted = Config({key: base[key] for key in known})
    Config(known.to_dict()).extend(wanted, strict=True)


def base_config() -> Config:
    """The defaults that hold for every algorithm."""
    return Config(
        {
            "algorithm": "_str_",
            "learner_config": BASE_LEARNER_CONFIG.to_dict(),
            "env_config": BASE_ENV_CONFIG.to_dict(),
            "session_config": BASE_SESSION_CONFIG.to_dict(),
        }
    )


def layers(user: Config) -> list[tuple[str, Config]]:
    """The layers of an experiment, weakest first, named as ``plan --explain`` shows them."""
    from surreal_like.algorithm.registry import find_algorithm

    algorithm = find_algorithm(user.algorithm)
    default = Config({"learner_config": algorithm.default_config().to_dict()})
    return [("default", base_config()), (f"algorithm {user.algorithm}", default), ("yours", user)]


def resolve(user: Config) -> Config:
    """The complete config of an experiment, specs included.

    Builds one environment in this process; call :func:`resolve_elsewhere` to keep it out.

    Raises:
        ConfigError: a key, a type, a choice or a missing value; an unknown algorithm.
        SpecError: given specs differ from the environment's, or the algorithm cannot work on them.
    """
    from surreal_like.algorithm.registry import find_algorithm
    from surreal_like.data.spec import compare
    from surreal_like.env.registry import derive_specs

    sys.path.extend(user.session_config.get("import_path", []))
    (_, base), (_, default), _ = layers(user)
    config = Config(user.to_dict()).extend(default.extend(base, abstract=True), strict=True)
    check_choices(config)
    check_resolved(config)
    obs_spec, action_spec = derive_specs(config.env_config)
    env = config.env_config
    for key, derived in (("obs_spec", obs_spec), ("action_spec", action_spec)):
        env[key] = Config(compare(env[key], derived, f"env_config.{key}") if env[key] else derived)
    find_algorithm(config.algorithm).check(env.obs_spec, env.action_spec)
    return _record(config)


def algorithm_of(config: Config, folder: RunFolder | None) -> type[Algorithm]:
    """The algorithm of a run; a user's own file is taken from the run's code snapshot.

    Raises:
        ConfigError: it cannot be found or loaded.
    """
    from surreal_like.algorithm.registry import find_algorithm

    place, colon, class_name = config.algorithm.partition(":")
    if folder is not None and place.endswith(".py"):
        snapshot = folder.code / Path(place).name
        if snapshot.exists():
            return find_algorithm(f"{snapshot}{colon}{class_name}")
    return find_algorithm(config.algorithm)


def _record(config: Config) -> Config:
    config["fingerprint"] = config.fingerprint()
    names = ("torch", "numpy", "gymnasium", "pyzmq")
    config["versions"] = {
        "surreal_like": VERSION,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in names},
    }
    revision = _git_revision()
    if revision:
        config["git_revision"] = revision
    return config


def _git_revision() -> str:
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=2, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def resolve_elsewhere(user: Config) -> Config:
    """The same as :func:`resolve`, in a child process.

    Raises:
        SurrealError: what the child found wrong, in its words.
    """
    with tempfile.TemporaryDirectory(prefix="sl-resolve-") as folder:
        asked, answer = write_request(user, Path(folder))
        command = [sys.executable, "-P", "-m", "surreal_like.experiment", str(asked), str(answer)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return read_answer(answer, done.stderr)


def write_request(user: Config, folder: Path) -> tuple[Path, Path]:
    """Writes what the resolving process reads; returns its two arguments."""
    asked, answer = folder / "asked.json", folder / "answer.json"
    asked.write_text(json.dumps(user.to_dict()))
    return asked, answer


def read_answer(answer: Path, stderr: str) -> Config:
    """What the resolving process wrote.

    Raises:
        SurrealError: with the process's own words and exit code.
    """
    if not answer.exists():
        words = stderr.strip().splitlines() or ["it left no word"]
        raise SurrealError(f"the experiment could not be resolved: {words[-1]}")
    data: dict[str, Any] = json.loads(answer.read_text())
    if "error" not in data:
        return Config(data)
    kind = UsageError if data["exit_code"] == UsageError.exit_code else SurrealError
    raise kind(data["error"])


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of the resolving process: two paths, what is asked and where the answer goes."""
    parser = argparse.ArgumentParser(prog="python -P -m surreal_like.experiment")
    parser.add_argument("asked", type=Path)
    parser.add_argument("answer", type=Path)
    given = parser.parse_args(argv)
    user = Config(json.loads(given.asked.read_text()))
    try:
        given.answer.write_text(json.dumps(resolve(user).to_dict()))
    except SurrealError as error:
        data = {"error": str(error), "exit_code": error.exit_code}
        given.answer.write_text(json.dumps(data))
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
