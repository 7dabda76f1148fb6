"""Supervising a run as the only work of a process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from session.launchers.launcher import Outcome
from session.launchers.local import LocalLauncher

_POLL_SECONDS = 0.2


def supervise(launcher: LocalLauncher) -> Outcome:
    """Launches a run and stays with it until it is over.

    The first SIGINT or SIGTERM ends the run cleanly, the second ends it at once.

    Raises:
        UsageError: the folder is in use, or an address.
    """
    with launcher, _interrupts() as interrupts:
        launcher.launch()
        handled = 0
        while launcher.running:
            launcher.poll(_POLL_SECONDS)
            if len(interrupts) > handled:
                handled = len(interrupts)
                if handled == 1:
                    launcher.stop(interrupted=True, reason=f"got {interrupts[0]}")
                else:
                    launcher.kill()
        return launcher.wait()


@contextmanager
def _interrupts() -> Iterator[list[str]]:
    """Names of the signals that have come; nothing is raised by them."""
    came: list[str] = []

    def hear(number: int, frame: FrameType | None) -> None:
        came.append(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = {each: signal.signal(each, hear) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
