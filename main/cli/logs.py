"""``surreal-like logs RUN``: what the components have logged, merged or one by one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from main.cli.parser import Parser
from main.cli.runs import add_run, find_run
from main.cli.tail import Tail
from session.errors import UsageError
from session.folder import RunFolder

_LEVELS = ("debug", "info", "warning", "error", "critical")
_LOOK_SECONDS = 0.2
# Logs are written a moment after the run has ended.
_LAST_SECONDS = 1.0


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser("logs", "Shows what the components of a run have logged, in order of time.")
    add_run(parser)
    parser.add_argument("--component", metavar="NAME", help="only this one, such as learner")
    parser.add_argument("--level", choices=_LEVELS, default="debug", help="only from this level on")
    parser.add_argument("--follow", action="store_true", help="go on until the run is over")
    given = parser.parse_args(argv)
    folder = find_run(given.run)
    name = given.component or "all"
    path = folder.logs / f"{name}.log"
    if given.component and not path.exists():
        known = sorted(each.stem for each in folder.logs.glob("*.log") if each.stem != "all")
        raise UsageError(
            f"no log of '{given.component}' in {folder}; there are {', '.join(known) or 'none yet'}"
        )
    tail = Tail(path, catch_up_bytes=None)
    for line in select(_lines(tail, folder, follow=given.follow), given.level):
        print(line, flush=given.follow)
    return 0


def _lines(tail: Tail, folder: RunFolder, *, follow: bool) -> Iterator[str]:
    yield from tail.lines()
    last_look = None
    while follow and (last_look is None or time.monotonic() < last_look):
        if last_look is None and folder.over and not folder.in_use:
            last_look = time.monotonic() + _LAST_SECONDS
        time.sleep(_LOOK_SECONDS)
        yield from tail.lines()


def select(lines: Iterator[str], level: str) -> Iterator[str]:
    """The lines at or above a level, with the lines that continue them.

    A line is ``2025-01-31 12:00:00.123 INFO     learner: text``; further lines of a text are
    indented.
    """
    wanted = _LEVELS.index(level)
    shown = True
    for line in lines:
        if not line.startswith("    "):
            words = line.split(maxsplit=3)
            name = words[2].lower() if len(words) > 2 else ""
            shown = name not in _LEVELS or _LEVELS.index(name) >= wanted
        if shown:
            yield line
