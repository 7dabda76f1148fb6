"""``surreal-like play RUN``: shows episodes of a trained policy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from main.cli.arguments import Parser
from main.cli.policy import add_policy, follow_snapshot, policy_options, suggesting_import_path
from main.cli.runs import find_policy
from session.folder import RunFolder
from session.show.text import count, decimal, duration

_EXAMPLES = """examples:
  surreal-like play latest --video out.mp4
  surreal-like play latest --video out.gif --episodes 2 --checkpoint latest
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser("play", "Shows episodes in a window, or writes them as a video.", _EXAMPLES)
    add_policy(parser, episodes=1)
    parser.add_argument(
        "--video", metavar="FILE", help="write .mp4 or .gif instead of opening a window"
    )
    given = parser.parse_args(argv)
    folder = find_policy(given)
    follow_snapshot(given, folder, ["play", *argv])

    from surreal_like.addons.analysis.play import play  # imports torch

    with suggesting_import_path():
        found = play(folder.path, video=given.video, **policy_options(given))
    print(json.dumps(found) if given.json else "\n".join(_lines(found, folder)))
    return 0


def _words(returns: Mapping[str, float]) -> str:
    return ", ".join(f"{policy} {decimal(mean)}".strip() for policy, mean in returns.items())


def _lines(found: dict[str, Any], folder: RunFolder) -> list[str]:
    # With several policies the return of each, else that of the episode.
    totals = found.get("policies") or [{"": total} for total in found["returns"]]
    lines = [
        f"episode {number}: return {_words(each)} in {count(length)} steps"
        for number, (each, length) in enumerate(zip(totals, found["lengths"], strict=True), start=1)
    ]
    lines.append(f"checkpoint {found['checkpoint']} of {folder}")
    if found["video"] is not None:
        took = duration(found["frames"] / found["fps"])
        lines.append(f"{found['video']}: {count(found['frames'])} pictures, {took}")
    return lines
