"""``surreal-like stop RUN``: ends a run like Ctrl-C in its terminal."""

from __future__ import annotations

from collections.abc import Sequence

from main.cli.arguments import Parser
from main.cli.runs import add_run, find_folder, is_tuning, open_found, refuse_over
from session.errors import DeadlineError, RunError, UsageError
from session.launchers.handle import RunHandle

_MARGIN_SECONDS = 15.0
_REASON = "surreal-like stop"


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser(
        "stop",
        "Ends a run cleanly: it saves a checkpoint and accounts for all experience. "
        "Of a tuning, every trial.",
    )
    add_run(parser)
    given = parser.parse_args(argv)
    found = find_folder(given.run)
    with open_found(found) as run:
        try:
            run.stop(interrupted=True, reason=_REASON)
        except UsageError:
            if not is_tuning(found):
                refuse_over(run)
            raise
        reason = _wait(run)
    if not run.folder.over:
        reason = "its result could not be written; is the disk full?"
    print(f"{'tuning' if is_tuning(found) else 'run'} {found} has ended: {reason}")
    return 0


def _wait(run: RunHandle) -> str:
    """Waits for the end of the run; returns its reason."""
    try:
        return run.wait(run.ending_seconds + _MARGIN_SECONDS).reason
    except DeadlineError:
        raise RunError(
            f"run {run.folder} was asked to end but has not ended; see: surreal-like logs "
            f"{run.folder}"
        ) from None
