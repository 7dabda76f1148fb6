"""Commands for an environment of one's own: ``init`` writes one, ``check`` lists its errors."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from main.cli.arguments import Option, Parser
from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.errors import UsageError
from session.program import interpreter, program
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.shipped import is_experiment

# Files that run as they are.
_PROJECT = Path(__file__).parent / "project"
_INIT_EXAMPLES = """examples:
  surreal-like init my_project
"""


def init(argv: Sequence[str]) -> int:
    """Runs ``init``, which writes a small project; returns the exit code."""
    given = Parser(
        "init",
        "Writes an environment, an experiment and a test.",
        Option("folder", metavar="FOLDER", help="folder to write to; files there are kept"),
        examples=_INIT_EXAMPLES,
    ).parse_args(argv)
    folder = Path(given.folder)
    _write_project(folder)
    name = program("surreal-like")
    lines = {
        f"cd {shlex.quote(str(folder))}": "",
        f"{name} check experiment.yaml": "finds mistakes of the environment",
        f"{name} train experiment.yaml": "learns until its goal is reached, in seconds",
        f"{interpreter()} -m pytest": "both in short; needs pytest",
    }
    width = max(map(len, lines))
    for line, purpose in lines.items():
        print(f"{line:<{width}}  # {purpose}" if purpose else line)
    return 0


def _write_project(folder: Path) -> None:
    """Writes all files, or none if one of them exists."""
    files = sorted(each for each in _PROJECT.iterdir() if os.path.isfile(each))
    if there := [each.name for each in files if os.path.lexists(folder / each.name)]:
        raise UsageError(
            f"{folder} has {' and '.join(there)}: nothing is written; name another folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for each in files:
            # x: a file that appears in between is not overwritten either.
            with open(folder / each.name, "x", encoding="utf-8") as file:
                file.write(each.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}") from None


_CHECK_EXAMPLES = """examples:
  surreal-like check gym:CartPole-v1
  surreal-like check my_environment:Catch env_config.env_args.height=6
  surreal-like check catch.yaml

exit code: 0 nothing is wrong; 2 a run with it would fail, or wrong command
"""


def check(argv: Sequence[str]) -> int:
    """Runs ``check``, which plays random steps and lists errors; returns the exit code."""
    given = Parser(
        "check",
        "Plays random steps and lists what an environment does wrong.",
        Option(
            "words",
            nargs="+",
            metavar="ENV|CONFIG.yaml",
            help="an environment or an experiment, then settings (section.key=value)",
        ),
        Option("--steps", type=int, default=300, metavar="N", help="random steps (300)"),
        Option(
            "--seconds", type=float, default=10.0, metavar="S", help="time for these steps (10)"
        ),
        examples=_CHECK_EXAMPLES,
    ).parse_args(argv)
    settings = [word for word in given.words if "=" in word]
    names = [word for word in given.words if "=" not in word]
    if len(names) != 1:
        raise UsageError("give one environment, as in my_module:MyEnv, or one experiment file")
    is_file = is_experiment(names[0])
    config = _read(names[0], settings, is_file)
    session = config.session_config
    from surreal_like.env.check import check_env
    from surreal_like.experiment.batched import check_batched

    report = check_env(
        config.env_config,
        steps=given.steps,
        seconds=given.seconds,
        eval_episodes=session.stop.eval_episodes if session.evaluator.num else 0,
        check=partial(check_batched, config) if is_file else lambda env: None,
    )
    print(report)
    return 0 if report.ok else UsageError.exit_code


def _read(name: str, settings: Sequence[str], is_file: bool) -> Config:
    """Returns `env_config` and `session_config` as in a run."""
    # Any algorithm works: only the environment is built.
    user = read_experiment(
        name if is_file else None, settings, algorithm="dqn", env_name=None if is_file else name
    )
    sys.path.extend(user.session_config.get("import_path", []))
    for section in ("env_config", "session_config"):
        user[section] = user[section].extend(BASE_CONFIG[section], strict=True)
    return user
