"""Arguments that name a trained policy, shared by ``evaluate``, ``play`` and ``export``."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from main.cli.runs import add_run
from session.errors import ConfigError
from session.folder import RunFolder
from surreal_like.experiment.code import restart_archived


def add_policy(parser: argparse.ArgumentParser, *, episodes: int) -> None:
    """Adds the arguments that select a policy and its mode of play.

    Args:
        parser: parser of the command.
        episodes: default number of episodes.
    """
    add_run(parser)
    parser.add_argument(
        "--episodes",
        type=int,
        default=episodes,
        metavar="N",
        help=f"number of episodes; default: {episodes}",
    )
    add_checkpoint(parser)
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        type=_policy,
        metavar="NAME=CHECKPOINT",
        help="checkpoint of one of several policies, where it is another one",
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="S",
        help="seed of the environments; default: derived from the run's",
    )
    parser.add_argument(
        "--stochastic",
        action="store_true",
        help="sample actions from the policy instead of the best ones",
    )
    add_snapshot(parser)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")


def _policy(word: str) -> tuple[str, str]:
    name, equals, checkpoint = word.partition("=")
    if not (name and equals and checkpoint):
        raise argparse.ArgumentTypeError(f"{word!r}: write it as NAME=CHECKPOINT")
    return name, checkpoint


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that select a checkpoint and find its modules."""
    parser.add_argument(
        "--checkpoint",
        metavar="best|latest|STEP",
        help="which parameters to use; STEP is an iteration that was saved; default: best, or "
        "latest if only the untrained policy was evaluated",
    )
    parser.add_argument(
        "--import-path",
        action="append",
        default=[],
        metavar="FOLDER",
        help="folder with modules that the run needs and its code/ does not have",
    )


def add_snapshot(parser: argparse.ArgumentParser) -> None:
    """Adds the argument ``--snapshot``."""
    parser.add_argument(
        "--snapshot",
        dest="from_snapshot",
        action="store_true",
        help="use the code that the run archived at its start, instead of the installed code",
    )


def follow_snapshot(given: argparse.Namespace, folder: RunFolder, argv: Sequence[str]) -> None:
    """Starts the command anew with the code of the run, if ``--snapshot`` is given.

    Raises:
        UsageError: the run has no snapshot, or its hash is wrong.
    """
    if given.from_snapshot:
        restart_archived(folder, [word for word in argv if word != "--snapshot"])


def policy_options(given: argparse.Namespace) -> dict[str, Any]:
    """Returns the parsed arguments as keywords of :func:`evaluate` and :func:`play`."""
    return {
        "episodes": given.episodes,
        "checkpoint": given.checkpoint,
        "policies": dict(given.policy),
        "seed": given.seed,
        "deterministic": not given.stochastic,
        "import_path": given.import_path,
    }


@contextlib.contextmanager
def suggesting_import_path() -> Iterator[None]:
    """Adds the option ``--import-path`` to the error of a module that is not found."""
    try:
        yield
    except ConfigError as error:
        if "No module named" not in str(error):
            raise
        where = "give the folder that holds it: --import-path FOLDER"
        raise ConfigError(f"{str(error).partition('; write file.py')[0]}; {where}") from None
