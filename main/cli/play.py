"""``surreal-like play RUN``: shows a trained policy at work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from main.cli.parser import Parser
from main.cli.runs import add_run, find_run
from session.figures import count, decimal, duration
from session.folder import RunFolder

_EXAMPLES = """examples:
  surreal-like play latest --video out.mp4
  surreal-like play latest --video out.gif --episodes 2 --checkpoint latest
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser("play", "Shows episodes in a window, or writes them as a video.", _EXAMPLES)
    add_run(parser)
    parser.add_argument("--video", metavar="FILE", help=".mp4 or .gif instead of a window")
    parser.add_argument("--episodes", type=int, default=1, metavar="N", help="1 by default")
    parser.add_argument(
        "--checkpoint",
        default="best",
        metavar="best|latest|STEP",
        help="which parameters to play; STEP is an iteration that was saved",
    )
    parser.add_argument("--seed", type=int, metavar="S", help="of the environment")
    parser.add_argument("--stochastic", action="store_true", help="draw actions from the policy")
    parser.add_argument("--json", action="store_true", help="the numbers as JSON")
    given = parser.parse_args(argv)
    folder = find_run(given.run)

    from surreal_like.play import play  # imports torch

    found = play(
        folder.path,
        video=given.video,
        episodes=given.episodes,
        checkpoint=given.checkpoint,
        seed=given.seed,
        deterministic=not given.stochastic,
    )
    print(json.dumps(found) if given.json else "\n".join(_lines(found, folder)))
    return 0


def _lines(found: dict[str, Any], folder: RunFolder) -> list[str]:
    lines = [
        f"episode {number}: return {decimal(total)} in {count(length)} steps"
        for number, (total, length) in enumerate(
            zip(found["returns"], found["lengths"], strict=True), start=1
        )
    ]
    lines.append(f"checkpoint {found['checkpoint']} of {folder}")
    if found["video"] is not None:
        took = duration(found["frames"] / found["fps"])
        lines.append(f"{found['video']}: {count(found['frames'])} pictures, {took}")
    return lines
