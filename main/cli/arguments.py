"""Arguments that name an experiment, shared by ``train``, ``launch`` and ``plan``."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from session.config import Config
from session.errors import UsageError
from surreal_like.experiment import SECTIONS, read_experiment

_OPTIONS = {
    "agents": "session_config.agent.num",
    "evals": "session_config.evaluator.num",
    "seed": "session_config.seed",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The experiment of a command line.

    Args:
        config: experiment file, None if ``algorithm`` and ``env`` replace it.
        overrides: ``section.key=value``, including settings with their own option.
        algorithm, env: replace those of the file.
    """

    config: str | None
    overrides: tuple[str, ...]
    algorithm: str | None
    env: str | None

    def read(self) -> Config:
        """Reads the experiment, without defaults.

        Raises:
            ConfigError: a setting is wrong.
        """
        return read_experiment(
            self.config, self.overrides, algorithm=self.algorithm, env_name=self.env
        )


def add_experiment(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that name an experiment."""
    group = parser.add_argument_group("the experiment")
    group.add_argument(
        "words",
        nargs="*",
        metavar="CONFIG.yaml section.key=value",
        help="an experiment file, then settings that replace the file's (values are YAML)",
    )
    group.add_argument(
        "--algorithm",
        metavar="NAME",
        help="name, package.module:Class or .py file (see list algorithms)",
    )
    group.add_argument(
        "--env", metavar="NAME", help="environment, such as gym:CartPole-v1 (see list environments)"
    )
    group.add_argument(
        "--seed", type=int, metavar="S", help="seed of the run (overrides the config)"
    )
    group.add_argument(
        "--agents", type=int, metavar="N", help="number of processes that step environments"
    )
    group.add_argument("--evals", type=int, metavar="N", help="number of processes that evaluate")


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments for the run folder and for resuming."""
    parser.add_argument("--folder", help="run folder; default: runs/<name>-<date>-<time>")
    parser.add_argument("--resume", action="store_true", help="continue the run in the folder")
    parser.add_argument(
        "--allow-change",
        action="append",
        default=[],
        metavar="KEY",
        help="with --resume: key outside session_config that may differ; a,b for several",
    )

    parser.add_argument(
        "--checkpoint",
        metavar="best|latest|STEP",
        help="with --resume: checkpoint to go on from; newer ones are set aside",
    )
    parser.add_argument(
        "--from",
        dest="start_from",
        metavar="RUN[:best|latest|STEP]",
        help="begin a new run with the networks of another run's checkpoint",
    )


def allowed_changes(given: argparse.Namespace) -> list[str]:
    """Returns the keys of all ``--allow-change``.

    Raises:
        UsageError: ``--allow-change`` without ``--resume``.
    """
    if given.allow_change and not given.resume:
        raise UsageError("--allow-change belongs to --resume: a new run may differ in everything")
    return [key for keys in given.allow_change for key in keys.split(",")]


def asked_of(given: argparse.Namespace) -> Asked:
    """Returns the experiment of a parsed command line.

    Raises:
        UsageError: the words are not a file and settings, or they name no experiment.
    """
    for word in given.words:
        if "=" not in word and word.partition(".")[0] in SECTIONS:
            raise UsageError(f"{word} has no value: write {word}=VALUE")
    files = [word for word in given.words if _is_file(word)]
    overrides = tuple(word for word in given.words if not _is_file(word))
    if len(files) > 1:
        raise UsageError(f"one experiment at a time: {' and '.join(files)} are given")
    if not files and given.algorithm is None and not getattr(given, "resume", False):
        raise UsageError(
            "no experiment: give a file, as in configs/cartpole_dqn.yaml, or --algorithm and --env"
        )
    options = {key: getattr(given, name) for name, key in _OPTIONS.items()}
    overrides += tuple(f"{key}={value}" for key, value in options.items() if value is not None)
    return Asked(files[0] if files else None, overrides, given.algorithm, given.env)


def _is_file(word: str) -> bool:
    return "=" not in word or Path(word).is_file()
