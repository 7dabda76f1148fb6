"""The lifeline of a process: a pipe from its launcher, which is closed if the launcher dies."""

from __future__ import annotations

import os
import select

from session.process.component import LIFELINE


class Lifeline:
    """Detects the death of the launcher; without a launcher it never breaks."""

    def __init__(self) -> None:
        self._poller = select.poll()
        self._watching = LIFELINE in os.environ
        if self._watching:
            self._poller.register(int(os.environ[LIFELINE]), select.POLLIN | select.POLLHUP)

    @property
    def broken(self) -> bool:
        """True once the launcher has died."""
        return self._watching and bool(self._poller.poll(0))
