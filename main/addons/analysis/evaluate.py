"""``surreal-like evaluate RUN``: plays episodes with a trained policy."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence

from main.cli.arguments import Parser
from main.cli.policy import add_policy, follow_snapshot, policy_options, suggesting_import_path
from main.cli.runs import find_policy
from session.addons.hooks import LEAGUE
from session.folder import RunFolder
from session.show.text import columns, count, decimal, short_time


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser("evaluate", "Plays episodes with a trained policy and tells their returns.")
    add_policy(parser, episodes=100)
    parser.add_argument(
        "--league",
        action="store_true",
        help="let all snapshots of a policy play against each other, each pair N episodes",
    )
    given = parser.parse_args(argv)
    folder = find_policy(given)
    follow_snapshot(given, folder, ["evaluate", *argv])

    if given.league:
        return _show_league(given, folder)

    from surreal_like.addons.analysis.evaluate import evaluate  # imports torch

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
    for seat, mean in found.get("seats", {}).items():
        policy, _, agent = seat.partition("/")
        print(f"{policy} as {agent}: return {decimal(mean)}")
    print(f"checkpoint {found['checkpoint']} of {folder}, {short_time(found['seconds'])}")
    return 0


def _show_league(given: Namespace, folder: RunFolder) -> int:
    """Prints a table of all snapshots against all; returns the exit code."""
    play_league = LEAGUE.require("--league needs the add-on league, which is not here")
    with suggesting_import_path():
        found = play_league(folder.path, episodes=given.episodes, import_path=given.import_path)
    if given.json:
        print(json.dumps(found))
        return 0
    for policy, table in found.items():
        rows = [
            [name, *(f"{100 * won[other]:.0f}" if other in won else "-" for other in table)]
            for name, won in table.items()
        ]
        print(f"{policy}: % of {given.episodes} episodes won, a draw is half")
        print(columns(["", *table], rows, right=range(1, len(table) + 1)))
    return 0
