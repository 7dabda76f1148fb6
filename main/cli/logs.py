"""``surreal-like logs RUN``: shows log lines of all components or of one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice

from main.cli.arguments import Parser, seconds_of
from main.cli.runs import add_run, find_folder, open_found
from session.errors import UsageError

_LEVELS = ("debug", "info", "warning", "error", "critical")
# A line is ``2025-01-31 12:00:00.123 INFO     learner: text``.
_TIME_WIDTH = 23


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser("logs", "Shows what the components of a run have logged, in order of time.")
    add_run(parser)
    parser.add_argument(
        "--component",
        metavar="NAME",
        help="only this component, such as learner; of a tuning, a trial",
    )
    parser.add_argument("--level", choices=_LEVELS, default="debug", help="only from this level on")
    parser.add_argument("--since", metavar="5m", help="only of the last 30s, 5m, 2h or 1d")
    parser.add_argument("--lines", metavar="N", type=int, help="only the last N lines")
    parser.add_argument(
        "--follow", action="store_true", help="show new lines until the run is over"
    )
    given = parser.parse_args(argv)
    since = time.time() - seconds_of(given.since, "--since") if given.since else 0.0
    if given.lines is not None and given.lines < 0:
        raise UsageError(f"--lines {given.lines}: expected a number of lines, 0 or more")
    with open_found(find_folder(given.run)) as adopted:
        name = given.component or ""
        there = list(adopted.log_lines(name))
        for line in deque(select(there, given.level, since), maxlen=given.lines):
            print(line)
        if given.follow:
            new = islice(adopted.log_lines(name, follow=True), len(there), None)
            for line in select(new, given.level):
                print(line, flush=True)
    return 0


def select(lines: Iterable[str], level: str, since: float = 0.0) -> Iterator[str]:
    """Yields the lines at or above a level, with their continuation lines, which are indented.

    Args:
        lines: lines of a log.
        level: the lowest one.
        since: seconds since 1970; older lines are left out.
    """
    wanted = _LEVELS.index(level)
    shown = True
    for line in lines:
        if not line.startswith("    "):
            words = line.split(maxsplit=3)
            name = words[2].lower() if len(words) > 2 else ""
            shown = name not in _LEVELS or _LEVELS.index(name) >= wanted
            shown = shown and (not since or _time_of(line, since) >= since)
        if shown:
            yield line


def _time_of(line: str, default: float) -> float:
    try:
        return datetime.fromisoformat(line[:_TIME_WIDTH]).timestamp()
    except ValueError:
        return default
