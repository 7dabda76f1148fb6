"""``surreal-like evaluate RUN``: plays episodes with what was trained."""

from __future__ import annotations

import json
from collections.abc import Sequence

from main.cli.parser import Parser
from main.cli.runs import add_run, find_run
from session.figures import count, decimal, short_time


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser("evaluate", "Plays episodes with a trained policy and tells their returns.")
    add_run(parser)
    parser.add_argument("--episodes", type=int, default=100, metavar="N", help="100 by default")
    parser.add_argument(
        "--checkpoint",
        default="best",
        metavar="best|latest|STEP",
        help="which parameters to play; STEP is an iteration that was saved",
    )
    parser.add_argument("--seed", type=int, help="of the environments")
    parser.add_argument("--stochastic", action="store_true", help="draw actions from the policy")
    parser.add_argument("--json", action="store_true", help="the numbers as JSON")
    given = parser.parse_args(argv)
    folder = find_run(given.run)

    from surreal_like.evaluate import evaluate  # imports torch

    found = evaluate(
        folder.path,
        episodes=given.episodes,
        checkpoint=given.checkpoint,
        seed=given.seed,
        deterministic=not given.stochastic,
    )
    if given.json:
        print(json.dumps(found))
        return 0
    print(
        f"return {decimal(found['mean_return'])} on average over {found['episodes']} episodes "
        f"(from {decimal(found['min_return'])} to {decimal(found['max_return'])}, "
        f"standard deviation {decimal(found['std_return'])}); "
        f"{count(found['mean_length'])} steps each"
    )
    print(f"checkpoint {given.checkpoint} of {folder}, {short_time(found['seconds'])}")
    return 0
