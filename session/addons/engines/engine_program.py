"""Programs of engines as functions: text in, text out, one line as error message."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

from session.errors import UsageError

TIMEOUT_SECONDS = 60.0


def call_program(
    command: Sequence[str],
    explain: Callable[[str], str],
    *,
    given: str = "",
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> str:
    """Runs a program and returns its output.

    Args:
        command: the program and its arguments.
        explain: returns the error message for what the program has said at its failure.
        given: standard input.
        timeout_seconds: deadline of the program [s].

    Raises:
        UsageError: it failed, or did not end in time.
    """
    try:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        program = command[0].rpartition("/")[2]
        raise UsageError(f"{program} did not end within {timeout_seconds:g} s") from None
    if done.returncode != 0:
        raise UsageError(explain(done.stderr or done.stdout))
    return done.stdout
