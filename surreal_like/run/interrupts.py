"""Handles Ctrl-C and SIGTERM in a run: raises at once, or counts for the main loop."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Handles both signals while it is entered, in the main thread; does nothing in other threads.

    Signals raise KeyboardInterrupt while a run is being prepared; after :meth:`only_count` they are
    counted.

    Attributes:
        count: number of signals.
        terminated: all of them were SIGTERM, the notice of a machine or a cluster, not of a user.
    """

    def __init__(self) -> None:
        self.count = 0
        self.terminated = False
        self._raises = True
        self._before: dict[signal.Signals, Any] = {}

    def only_count(self) -> None:
        """Stops raising: from now on a waiting loop reads :attr:`count`."""
        self._raises = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._on_signal) for each in _SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.terminated = number == signal.SIGTERM and (self.terminated or self.count == 0)
        self.count += 1
        if self._raises:
            raise KeyboardInterrupt
