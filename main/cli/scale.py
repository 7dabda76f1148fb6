"""``surreal-like scale RUN agent=8``: sets the number of agents or evaluators of a live run."""

from __future__ import annotations

from collections.abc import Sequence

from main.cli.arguments import Parser
from main.cli.runs import add_run, find_run, refuse_over
from session.errors import UsageError
from session.launchers.handle import open_run
from session.program import program

_EXAMPLE = """example:
  surreal-like scale latest agent=8 eval=2
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser(
        "scale", "Adds agents or evaluators to a run that goes on, or ends some.", _EXAMPLE
    )
    add_run(parser)
    parser.add_argument(
        "numbers", nargs="+", metavar="agent=N eval=N", help="wanted number of each"
    )
    given = parser.parse_args(argv)
    numbers = dict(map(_parse, given.numbers))
    with open_run(find_run(given.run)) as adopted:
        refuse_over(adopted)
        for kind, num in numbers.items():
            adopted.scale(kind, num)
            print(f"{kind}: {num}; see: {program('surreal-like')} status {given.run}")
    return 0


def _parse(word: str) -> tuple[str, int]:
    kind, _, num = word.partition("=")
    if not kind or not num.isdecimal():
        raise UsageError(f"cannot scale to '{word}': write it as agent=8 or eval=2")
    return kind, int(num)
