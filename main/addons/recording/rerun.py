"""``surreal-like rerun RUN``: repeats the updates of a recorded run, and compares them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from main.cli.arguments import IMPORT_PATH, RUN, Option, Parser, suggesting_import_path
from main.cli.runs import find_run
from session.show.text import count

if TYPE_CHECKING:
    from surreal_like.addons.recording.other_code import Difference
    from surreal_like.addons.recording.rerun import Rerun

_EXAMPLES = """examples:
  surreal-like rerun latest
  surreal-like rerun runs/cartpole_dqn --until 20000

exit code: 0 all updates are equal; 1 one differs, or could not be repeated; 2 wrong command
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = Parser(
        "rerun",
        "Repeats the updates of a run that was recorded with session_config.record.what=all and "
        "session_config.flight.keep=all. It reads files only.",
        RUN,
        Option("--policy", metavar="NAME", help="which policy, where there are several"),
        Option(
            "--from",
            type=int,
            dest="begin",
            metavar="N",
            help="begin at the newest state that is kept up to update N; default: the first",
        ),
        Option(
            "--code",
            metavar="DIR",
            help="repeat with the code of another checkout, and find the first update at which it "
            "learns something else",
        ),
        Option("--trace", nargs=2, metavar=("DIR", "N"), help=argparse.SUPPRESS),
        Option("--until", type=int, metavar="N", help="last update; default: all"),
        IMPORT_PATH,
        Option("--json", action="store_true", help="the outcome as JSON, on one line"),
        examples=_EXAMPLES,
    ).parse_args(argv)
    folder = find_run(given.run)

    from surreal_like.addons.recording import other_code  # imports torch
    from surreal_like.addons.recording.rerun import Repeater

    with suggesting_import_path():
        folder.find_modules(given.import_path)
        if given.trace is not None:
            place, after = given.trace
            other_code.trace(
                folder, Path(place), policy=given.policy, after=int(after), until=given.until
            )
            return 0
        if given.code is not None:
            return _show_difference(other_code.compare_code(folder, Path(given.code), given.policy))
        repeater = Repeater(folder, given.policy)
        found = repeater.run(
            given.begin, given.until, print if not given.json else lambda line: None
        )
    print(json.dumps(asdict(found)) if given.json else _line(found))
    return 1 if found.differs or found.problems else 0


def _show_difference(found: Difference | None) -> int:
    if found is None:
        print("all updates equal")
        return 0
    print(f"first difference at update {count(found.update)}: computation")
    if found.tensor:
        print(f"first tensor {found.tensor}, largest difference {found.largest:.3g}")
    return 1


def _line(found: Rerun) -> str:
    if found.differs is not None:
        first, last = map(count, found.differs)
        return f"first difference between {first} and {last}"
    return f"{count(found.updates)} updates equal, {count(found.compared)} hashes compared"
