"""Stopwatch of the time for which something was held back."""

from __future__ import annotations

from collections.abc import Callable


class Stopwatch:
    """Adds up the time between hold and release, the present hold included.

    Args:
        now: seconds, of a clock that only rises.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since: float | None = None
        self._over = 0.0

    @property
    def held(self) -> bool:
        """True while it is held back."""
        return self._since is not None

    @property
    def seconds(self) -> float:
        """Seconds for which it has been held back so far."""
        return self._over if self._since is None else self._over + self._now() - self._since

    def hold(self, held: bool) -> None:
        """Starts or ends the hold; repeating the same value changes nothing."""
        if held and self._since is None:
            self._since = self._now()
        elif not held and self._since is not None:
            self._over, self._since = self.seconds, None
