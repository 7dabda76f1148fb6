"""``surreal-like check``: lists the errors of an environment before a run is started."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from main.cli.arguments import Parser
from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.errors import UsageError
from surreal_like.experiment.resolve import read_experiment
from surreal_like.experiment.shipped import is_experiment

_EXAMPLES = """examples:
  surreal-like check gym:CartPole-v1
  surreal-like check my_environment:Catch env_config.env_args.height=6
  surreal-like check catch.yaml

exit code: 0 nothing is wrong; 2 a run with it would fail, or wrong command
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = _parser().parse_args(argv)
    settings = [word for word in given.words if "=" in word]
    names = [word for word in given.words if "=" not in word]
    if len(names) != 1:
        raise UsageError("give one environment, as in my_module:MyEnv, or one experiment file")
    is_file = is_experiment(names[0])
    config = _read(names[0], settings, is_file)
    from surreal_like.env.check import check_env
    from surreal_like.experiment.batched import check_batched

    report = check_env(
        config.env_config,
        steps=given.steps,
        seconds=given.seconds,
        check=partial(check_batched, config) if is_file else lambda env: None,
    )
    print(report)
    return 0 if report.ok else UsageError.exit_code


def _parser() -> Parser:
    parser = Parser(
        "check", "Plays random steps and lists what an environment does wrong.", _EXAMPLES
    )
    parser.add_argument(
        "words",
        nargs="+",
        metavar="ENV|CONFIG.yaml",
        help="an environment or an experiment, then settings (section.key=value)",
    )
    parser.add_argument("--steps", type=int, default=300, metavar="N", help="random steps (300)")
    parser.add_argument(
        "--seconds", type=float, default=10.0, metavar="S", help="time for these steps (10)"
    )
    return parser


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
