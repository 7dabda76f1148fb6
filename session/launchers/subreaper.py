"""Waiting for processes on Linux: this process adopts the orphans of its descendants."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


def set_subreaper(on: bool) -> bool:
    """Makes this process adopt the orphans of its descendants, or not; returns the old setting."""
    prctl = ctypes.CDLL(None).prctl
    before = ctypes.c_int(0)
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)
    return bool(before.value)


def reap(pid: int) -> int | None:
    """Returns the exit code of a child, None while it lives; then kills the rest of its group."""
    try:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        # Before it is reaped: until then no other process can have its pid.
        kill_group(pid)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        # Other code of this process has reaped it: the exit code is lost.
        return 1


def group_lives(group: int) -> bool:
    """Reaps children of a process group without waiting; returns True if some still live."""
    try:
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def kill_group(pid: int) -> None:
    """Kills a process that leads its own process group, and all processes of that group."""
    with suppress(PermissionError):
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            # Just forked: it has not called setsid yet, so it leads no group.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
