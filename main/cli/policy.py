"""The part of a command line that names a trained policy: shared by ``evaluate`` and ``play``."""

from __future__ import annotations

import argparse
from typing import Any

from main.cli.runs import add_run


def add_policy(parser: argparse.ArgumentParser, *, episodes: int) -> None:
    """Adds the arguments that say which policy plays, and how.

    Args:
        parser: of the command.
        episodes: how many are played by default.
    """
    add_run(parser)
    parser.add_argument(
        "--episodes",
        type=int,
        default=episodes,
        metavar="N",
        help=f"number of episodes; default: {episodes}",
    )
    parser.add_argument(
        "--checkpoint",
        default="best",
        metavar="best|latest|STEP",
        help="which parameters to play; STEP is an iteration that was saved",
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
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")


def policy_options(given: argparse.Namespace) -> dict[str, Any]:
    """What was said, as keywords of :func:`evaluate` and :func:`play`."""
    return {
        "episodes": given.episodes,
        "checkpoint": given.checkpoint,
        "seed": given.seed,
        "deterministic": not given.stochastic,
    }
