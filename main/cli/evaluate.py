"""``surreal-like evaluate RUN``: plays episodes with a trained policy."""

from __future__ import annotations

import json
from collections.abc import Sequence

from main.cli.arguments import Parser
from main.cli.policy import add_policy, follow_snapshot, policy_options, suggesting_import_path
from main.cli.runs import find_policy
from session.show.text import count, decimal, short_time


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser("evaluate", "Plays episodes with a trained policy and tells their returns.")
    add_policy(parser, episodes=100)
    given = parser.parse_args(argv)
    folder = find_policy(given)
    follow_snapshot(given, folder, ["evaluate", *argv])

    from surreal_like.analysis.evaluate import evaluate  # imports torch

    with suggesting_import_path():
        found = evaluate(folder.path, **policy_options(given))
    if given.json:
        print(json.dumps(found))
        return 0
    print(
        f"return {decimal(found['mean_return'])} on average over {found['episodes']} episodes "
        f"(from {decimal(found['min_return'])} to {decimal(found['max_return'])}, "
        f"standard deviation {decimal(found['std_return'])}); "
        f"{count(found['mean_length'])} steps each"
    )
    for name, mean in found.get("policies", {}).items():
        print(f"policy {name}: return {decimal(mean)} of each of its agents")
    print(f"checkpoint {found['checkpoint']} of {folder}, {short_time(found['seconds'])}")
    return 0
