"""``surreal-like record RUN --out DIR``: episodes of a trained policy, as a recording."""

from __future__ import annotations

import json
from collections.abc import Sequence

from main.addons.analysis.policy import find, policy_options
from main.cli.arguments import Option, Parser, suggesting_import_path
from session.show.text import count, decimal

_EXAMPLES = """examples:
  surreal-like record cartpole_ppo --trained --episodes 50 --out demos
  surreal-like record latest --out noisy --stochastic --epsilon 0.1
  surreal-like data demos
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = Parser(
        "record",
        "Plays episodes with a trained policy in the environment of its training, and records "
        "them.",
        *policy_options(100),
        Option("--out", metavar="DIR", required=True, help="folder of the new recording"),
        Option(
            "--epsilon",
            type=float,
            default=0.0,
            metavar="E",
            help="probability that an action is replaced by a random one; default: 0",
        ),
        examples=_EXAMPLES,
    ).parse_args(argv)
    folder = find(given, "record", *argv)

    from surreal_like.addons.analysis.evaluate import TrainedPolicies  # imports torch
    from surreal_like.addons.recording.play import record

    with suggesting_import_path():
        trained = TrainedPolicies(
            folder.path, given.checkpoint, dict(given.policy), given.import_path
        )
        found = record(
            trained,
            given.out,
            episodes=given.episodes,
            seed=given.seed,
            deterministic=not given.stochastic,
            epsilon=given.epsilon,
        )
    if given.json:
        print(json.dumps(found))
        return 0
    print(
        f"{given.out}: {count(found['episodes'])} episodes, return {decimal(found['mean_return'])} "
        f"on average; checkpoint {found['checkpoint']} of {folder.copy_of or folder}"
    )
    return 0
