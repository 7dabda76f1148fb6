"""Subreaper (Linux): this process inherits and reaps the orphans of its descendants."""

from __future__ import annotations

import ctypes
import os
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


def group_lives(group: int) -> bool:
    """Reaps inherited processes of a dead component's group; returns True if some still live."""
    try:
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def set_subreaper(on: bool) -> bool:
    """Lets this process inherit the orphans of its descendants, or not; returns the old setting."""
    prctl: Any = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None:
        return False
    before = ctypes.c_int(0)
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)
    return bool(before.value)
