"""Commands that use a trained policy: ``evaluate``, ``play`` and ``export``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from main.cli.arguments import (
    IMPORT_PATH,
    RUN,
    SNAPSHOT,
    STOCHASTIC,
    TRAINED,
    Option,
    Parser,
    suggesting_import_path,
)
from main.cli.runs import find_policy
from session.addons.hooks import LEAGUE
from session.folder import RunFolder
from session.show.text import columns, count, decimal, duration, short_time
from surreal_like.experiment.user_code import restart_archived

_PLAY_EXAMPLES = """examples:
  surreal-like play cartpole_dqn --trained
  surreal-like play latest --video out.mp4
  surreal-like play latest --video out.gif --episodes 2 --checkpoint latest
"""
_EXPORT_EXAMPLES = """examples:
  surreal-like export latest
  surreal-like export latest --format pt2 --out policy.pt2 --checkpoint latest

exit code: 0 written; 1 not written: its actions differ from those of the run; 2 wrong command
"""
_CHECKPOINT = Option(
    "--checkpoint",
    metavar="best|latest|STEP",
    help="which parameters to use; STEP is an iteration that was saved; default: best, or "
    "latest if only the untrained policy was evaluated",
)
_JSON = Option("--json", action="store_true", help="print the numbers as JSON")


def policy_options(episodes: int) -> tuple[Option, ...]:
    """Returns the options that select a policy and its mode of play."""
    return (
        RUN,
        Option(
            "--episodes",
            type=int,
            default=episodes,
            metavar="N",
            help=f"number of episodes; default: {episodes}",
        ),
        _CHECKPOINT,
        TRAINED,
        IMPORT_PATH,
        Option(
            "--policy",
            action="append",
            default=[],
            type=_policy,
            metavar="NAME=CHECKPOINT",
            help="checkpoint of one of several policies, where it is another one",
        ),
        Option(
            "--seed",
            type=int,
            metavar="S",
            help="seed of the environments; default: derived from the run's",
        ),
        STOCHASTIC,
        SNAPSHOT,
        _JSON,
    )


def _policy(word: str) -> tuple[str, str]:
    name, equals, checkpoint = word.partition("=")
    if not (name and equals and checkpoint):
        raise argparse.ArgumentTypeError(f"{word!r}: write it as NAME=CHECKPOINT")
    return name, checkpoint


def find(given: argparse.Namespace, *words: str) -> RunFolder:
    """Returns the run of a command; with ``--snapshot`` the command starts anew, with its code."""
    folder = find_policy(given)
    if given.from_snapshot:
        restart_archived(folder, words)
    return folder


def _keywords(given: argparse.Namespace) -> dict[str, Any]:
    """Returns the parsed options as keywords of the functions for evaluation and play."""
    return {
        "episodes": given.episodes,
        "checkpoint": given.checkpoint,
        "policies": dict(given.policy),
        "seed": given.seed,
        "deterministic": not given.stochastic,
        "import_path": given.import_path,
    }


def run_evaluate(argv: Sequence[str]) -> int:
    """Runs ``evaluate``, which plays episodes and shows returns; returns the exit code."""
    given = Parser(
        "evaluate",
        "Plays episodes with a trained policy and tells their returns.",
        *policy_options(100),
        Option(
            "--league",
            action="store_true",
            help="let all snapshots of a policy play against each other, each pair N episodes",
        ),
    ).parse_args(argv)
    folder = find(given, "evaluate", *argv)

    if given.league:
        return _show_league(given, folder)

    from surreal_like.addons.analysis.evaluate import evaluate  # imports torch

    with suggesting_import_path():
        found = evaluate(folder.path, **_keywords(given))
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
    place, took = folder.copy_of or folder, short_time(found["seconds"])
    print(f"checkpoint {found['checkpoint']} of {place}, {took}")
    return 0


def _show_league(given: argparse.Namespace, folder: RunFolder) -> int:
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


def run_play(argv: Sequence[str]) -> int:
    """Runs ``play``, which shows episodes; returns the exit code."""
    given = Parser(
        "play",
        "Shows episodes in a window, or writes them as a video.",
        *policy_options(1),
        Option("--video", metavar="FILE", help="write .mp4 or .gif instead of opening a window"),
        examples=_PLAY_EXAMPLES,
    ).parse_args(argv)
    folder = find(given, "play", *argv)

    from surreal_like.addons.analysis.play import play  # imports torch

    with suggesting_import_path():
        found = play(folder.path, video=given.video, **_keywords(given))
    print(json.dumps(found) if given.json else "\n".join(_episode_lines(found, folder)))
    return 0


def _returns(returns: Mapping[str, float]) -> str:
    return ", ".join(f"{policy} {decimal(mean)}".strip() for policy, mean in returns.items())


def _episode_lines(found: dict[str, Any], folder: RunFolder) -> list[str]:
    # With several policies the return of each, else that of the episode.
    totals = found.get("policies") or [{"": total} for total in found["returns"]]
    lines = [
        f"episode {number}: return {_returns(each)} in {count(length)} steps"
        for number, (each, length) in enumerate(zip(totals, found["lengths"], strict=True), start=1)
    ]
    lines.append(f"checkpoint {found['checkpoint']} of {folder.copy_of or folder}")
    if found["video"] is not None:
        took = duration(found["frames"] / found["fps"])
        lines.append(f"{found['video']}: {count(found['frames'])} pictures, {took}")
    return lines


def run_export(argv: Sequence[str]) -> int:
    """Runs ``export``, which writes a policy that needs no surreal-like; returns the exit code."""
    given = Parser(
        "export",
        "Writes the greedy policy as ONNX or for PyTorch.",
        RUN,
        Option("--out", metavar="FILE", help="default: policy.onnx, or policy.pt2"),
        Option("--format", default="onnx", metavar="onnx|pt2", help="default: onnx"),
        _CHECKPOINT,
        Option("--policy", metavar="NAME", help="which policy, where there are several"),
        TRAINED,
        IMPORT_PATH,
        SNAPSHOT,
        _JSON,
        examples=_EXPORT_EXAMPLES,
    ).parse_args(argv)
    folder = find(given, "export", *argv)

    from surreal_like.addons.analysis.export import export  # imports torch

    with suggesting_import_path():
        found = export(
            folder.path,
            given.out,
            format=given.format,
            checkpoint=given.checkpoint,
            policy=given.policy,
            import_path=given.import_path,
        )
    if given.json:
        print(json.dumps({"path": str(found.path), "difference": found.difference}))
        return 0
    print(f"{found.path}: checkpoint {found.checkpoint} of {folder.copy_of or folder}")
    print(f"inputs {', '.join(found.inputs)}; outputs {', '.join(found.outputs)}")
    print(f"largest difference {found.difference:g} over {found.compared} random observations")
    return 0
