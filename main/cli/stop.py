"""``surreal-like stop RUN``: ends a run as Ctrl-C in its terminal would."""

from __future__ import annotations

import time
from collections.abc import Sequence

from main.cli.asking import try_ask
from main.cli.parser import Parser
from main.cli.runs import add_run, find_run
from session.config import Config
from session.errors import RunError, UsageError
from session.folder import RunFolder

_ANSWER_SECONDS = 2.0
_LOOK_SECONDS = 0.05
_MARGIN_SECONDS = 15.0
_REASON = "surreal-like stop"


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser(
        "stop", "Ends a run cleanly: it saves a checkpoint and accounts for all experience."
    )
    add_run(parser)
    given = parser.parse_args(argv)
    folder = find_run(given.run)
    if folder.over and not folder.in_use:
        print(f"run {folder} is over already")
        return 0
    _ask(folder)
    _wait(folder)
    reason = (folder.read_result() or {}).get("reason", "")
    print(f"run {folder} has ended: {reason}")
    return 0


def _ask(folder: RunFolder) -> None:
    """Asks the launcher; where there is none, the learner."""
    fields = {"reason": _REASON, "interrupted": True}
    for endpoint in ("supervisor.control", "learner.control"):
        if try_ask(folder, endpoint, "stop", fields=fields, timeout_seconds=_ANSWER_SECONDS):
            return
    raise UsageError(
        f"nothing of run {folder} answers: it does not run"
        + (", or it runs in one thread: press Ctrl-C there" if folder.in_use else "")
    )


def _wait(folder: RunFolder) -> None:
    grace: float = Config.load_file(folder.config).session_config.launcher.grace_seconds
    deadline = time.monotonic() + 2 * grace + _MARGIN_SECONDS
    while time.monotonic() < deadline:
        if folder.over and not folder.in_use:
            return
        time.sleep(_LOOK_SECONDS)
    raise RunError(
        f"run {folder} was told to end but has not ended; see: surreal-like logs {folder}"
    )
