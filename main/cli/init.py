"""``surreal-like init``: writes an environment, an experiment and a test to begin with."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from main.cli.arguments import Parser
from session.errors import UsageError
from session.program import interpreter, program

# Files that run as they are.
_PROJECT = Path(__file__).parent / "project"
_EXAMPLES = """examples:
  surreal-like init my_project
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser("init", "Writes an environment, an experiment and a test.", _EXAMPLES)
    parser.add_argument("folder", metavar="FOLDER", help="folder to write to; files there are kept")
    folder = Path(parser.parse_args(argv).folder)
    _write(folder)
    name = program("surreal-like")
    lines = {
        f"cd {shlex.quote(str(folder))}": "",
        f"{name} check experiment.yaml": "finds mistakes of the environment",
        f"{name} train experiment.yaml": "learns until its goal is reached, in seconds",
        f"{interpreter()} -m pytest": "both in short; needs pytest",
    }
    width = max(map(len, lines))
    for line, purpose in lines.items():
        print(f"{line:<{width}}  # {purpose}" if purpose else line)
    return 0


def _write(folder: Path) -> None:
    """Writes all files, or none if one of them exists."""
    files = sorted(each for each in _PROJECT.iterdir() if os.path.isfile(each))
    if there := [each.name for each in files if os.path.lexists(folder / each.name)]:
        raise UsageError(
            f"{folder} has {' and '.join(there)}: nothing is written; name another folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for each in files:
            # x: a file that appears in between is not overwritten either.
            with open(folder / each.name, "x", encoding="utf-8") as file:
                file.write(each.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}") from None
