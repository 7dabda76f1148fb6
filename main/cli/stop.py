"""``surreal-like stop RUN``: ends a run like Ctrl-C in its terminal."""

from __future__ import annotations

from collections.abc import Sequence

from main.cli.parser import Parser
from main.cli.runs import add_run, find_run, refuse_over
from session.errors import DeadlineError, RunError, UsageError
from session.launchers.handle import open_run
from session.launchers.launcher import RunControl

_MARGIN_SECONDS = 15.0
_REASON = "surreal-like stop"


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser(
        "stop", "Ends a run cleanly: it saves a checkpoint and accounts for all experience."
    )
    add_run(parser)
    given = parser.parse_args(argv)
    found = find_run(given.run)
    with open_run(found) as run:
        try:
            run.stop(interrupted=True, reason=_REASON)
        except UsageError:
            refuse_over(run)
            raise
        reason = _wait(run)
    if not run.folder.over:
        reason = "its result could not be written; is the disk full?"
    print(f"run {found} has ended: {reason}")
    return 0


def _wait(run: RunControl) -> str:
    """Waits for the end of the run; returns its reason."""
    grace: float = run.folder.read_config().session_config.launcher.grace_seconds
    try:
        return run.wait(2 * grace + _MARGIN_SECONDS).reason
    except DeadlineError:
        raise RunError(
            f"run {run.folder} was asked to end but has not ended; see: surreal-like logs "
            f"{run.folder}"
        ) from None
