"""Commands that operate a run: ``scale``, ``restart`` and ``stop``."""

from __future__ import annotations

from collections.abc import Sequence

from main.cli.arguments import RUN, Option, Parser
from main.cli.runs import find_folder, find_run, is_tuning, open_found, refuse_over
from session.errors import DeadlineError, RunError, UsageError
from session.launchers.handle import RunHandle, open_run
from session.program import program

_MARGIN_SECONDS = 15.0
_REASON = "surreal-like stop"
_SCALE_EXAMPLE = """example:
  surreal-like scale latest agent=8 eval=2
"""


def scale(argv: Sequence[str]) -> int:
    """Runs ``scale``, which sets the number of agents or evaluators; returns the exit code."""
    given = Parser(
        "scale",
        "Adds agents or evaluators to a run that goes on, or ends some.",
        RUN,
        Option("numbers", nargs="+", metavar="agent=N eval=N", help="wanted number of each"),
        examples=_SCALE_EXAMPLE,
    ).parse_args(argv)
    numbers = dict(map(_parse_number, given.numbers))
    with open_run(find_run(given.run)) as adopted:
        refuse_over(adopted)
        for kind, num in numbers.items():
            adopted.scale(kind, num)
            print(f"{kind}: {num}; see: {program('surreal-like')} status {given.run}")
    return 0


def _parse_number(word: str) -> tuple[str, int]:
    kind, _, num = word.partition("=")
    if not kind or not num.isdecimal():
        raise UsageError(f"cannot scale to '{word}': write it as agent=8 or eval=2")
    return kind, int(num)


def restart(argv: Sequence[str]) -> int:
    """Runs ``restart``, which ends one component and starts it again; returns the exit code."""
    given = Parser(
        "restart",
        "Ends one component cleanly and starts it again; the learner saves itself first. "
        "In tmux 'supervisor' brings back a supervisor that has died.",
        RUN,
        Option("component", metavar="COMPONENT", help="such as learner or agent-0"),
    ).parse_args(argv)
    with open_run(find_run(given.run)) as adopted:
        refuse_over(adopted)
        adopted.restart(given.component)
    print(
        f"{given.component} is being restarted; see: {program('surreal-like')} status {given.run}"
    )
    return 0


def stop(argv: Sequence[str]) -> int:
    """Runs ``stop``, which ends a run like Ctrl-C in its terminal; returns the exit code."""
    given = Parser(
        "stop",
        "Ends a run cleanly: it saves a checkpoint and accounts for all experience. "
        "Of a tuning, every trial.",
        RUN,
    ).parse_args(argv)
    found = find_folder(given.run)
    with open_found(found) as run:
        try:
            run.stop(interrupted=True, reason=_REASON)
        except UsageError:
            if not is_tuning(found):
                refuse_over(run)
            raise
        reason = _wait_for_end(run)
    if not run.folder.over:
        reason = "its result could not be written; is the disk full?"
    print(f"{'tuning' if is_tuning(found) else 'run'} {found} has ended: {reason}")
    return 0


def _wait_for_end(run: RunHandle) -> str:
    """Waits for the end of the run; returns its reason."""
    try:
        return run.wait(run.ending_seconds + _MARGIN_SECONDS).reason
    except DeadlineError:
        raise RunError(
            f"run {run.folder} was asked to end but has not ended; see: surreal-like logs "
            f"{run.folder}"
        ) from None
