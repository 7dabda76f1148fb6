"""``surreal-like attach RUN``: shows a background run in this terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from main.cli.arguments import Parser
from main.cli.live_observer import LiveTable
from main.cli.runs import add_run, find_run, refuse_over
from session.addons import load
from session.errors import UsageError
from session.launchers.handle import RunHandle, open_run
from session.launchers.registry import launcher_of
from session.process.clock import Moment

_LOOK_SECONDS = 0.25


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser(
        "attach",
        "Shows a run in this terminal: the windows of tmux (leave them with Ctrl-B d), else the "
        "live table (leave it with Ctrl-C). The run goes on.",
    )
    add_run(parser)
    given = parser.parse_args(argv)
    with open_run(find_run(given.run)) as adopted:
        refuse_over(adopted)
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise UsageError(
                f"attach needs a terminal; without one: surreal-like logs {given.run} --follow"
            )
        if attach := launcher_of(adopted.folder.launcher).attach:
            load(attach)(adopted)
        _follow(adopted)
    return 0


def _follow(adopted: RunHandle) -> None:
    """Draws the live table until the run is over or the user presses Ctrl-C."""
    folder = adopted.folder
    config = folder.read_config()
    table = LiveTable(sys.stdout, time.time() - Moment.of_run(folder.read_run()).seconds_since())
    table.prepare(folder.path)
    try:
        table.begin(folder, config)
        while adopted.running:
            table.follow(adopted)
            time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        table.on_message(f"the run goes on; its end: surreal-like stop {folder}")
    finally:
        table.end()
