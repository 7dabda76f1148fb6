"""``surreal-like stop RUN``: ends a run like Ctrl-C in its terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence

from main.cli.parser import Parser
from main.cli.runs import add_run, find_run, refuse_over
from session.errors import RunError, WireError
from session.folder import RunFolder
from session.launchers.asking import ask, reachable
from session.launchers.handle import open_run
from session.launchers.launcher import RunControl

_ANSWER_SECONDS = 2.0
_MARGIN_SECONDS = 15.0
_LOOK_SECONDS = 0.05
_REASON = "surreal-like stop"


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser(
        "stop", "Ends a run cleanly: it saves a checkpoint and accounts for all experience."
    )
    add_run(parser)
    given = parser.parse_args(argv)
    found = find_run(given.run)
    with open_run(found) as adopted:
        folder = adopted.folder
        supervised = adopted.running
        if supervised or not _ask_learner(folder):
            refuse_over(adopted)
            adopted.stop(interrupted=True, reason=_REASON)
        _wait(adopted, supervised=supervised)
        reason = (folder.read_result() or {}).get("reason") or adopted.wait(0.0).reason
    if not folder.over:
        reason = "its result could not be written; is the disk full?"
    print(f"run {found} has ended: {reason}")
    return 0


def _ask_learner(folder: RunFolder) -> bool:
    """Asks the learner of a run without a launcher to end it; returns False without a reply."""
    fields = {"reason": _REASON, "interrupted": True}
    if folder.over or not reachable(folder, "learner.control"):
        return False
    try:
        ask(folder, "learner.control", "stop", fields, timeout_seconds=_ANSWER_SECONDS)
    except WireError:
        return False
    return True


def _wait(adopted: RunControl, *, supervised: bool) -> None:
    """Waits for the result of the run, or, if the disk is full, for the end of its supervisor."""
    folder = adopted.folder
    grace: float = folder.read_config().session_config.launcher.grace_seconds
    patience_seconds = 2 * grace + _MARGIN_SECONDS
    if folder.launcher == "kubernetes":
        # Waiting also removes the objects, and pods have their own grace period.
        adopted.wait(patience_seconds)
        return
    deadline = time.monotonic() + patience_seconds
    while adopted.running or not (folder.over or supervised):
        if time.monotonic() > deadline:
            raise RunError(
                f"run {folder} was told to end but has not ended; see: surreal-like logs {folder}"
            )
        time.sleep(_LOOK_SECONDS)
