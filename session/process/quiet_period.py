"""The end of a server: the run is over, and its clients send nothing any more."""

from __future__ import annotations

from session.process.context import Context
from session.process.periodic import Every

_DRAINED_SECONDS = 0.3
_SILENT_SECONDS = 2.0
_LOOK_SECONDS = 1.0


class QuietPeriod:
    """Decides the end of a server that has clients.

    After :meth:`drain`: once no message has come for 0.3 s. By itself, if ``at_end`` is ``exit``:
    once the run is over and no message has come for 2 s.

    Args:
        context: context of the process.

    Attributes:
        draining: True from :meth:`drain` on.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._look_due = Every(seconds=_LOOK_SECONDS, clock=context.clock.now)
        self.draining = False
        self._over = False
        self._last_message = context.clock.now()

    def on_message(self, *, of_script: bool = False) -> None:
        """Restarts the period. Ignores scripts before :meth:`drain`: they may outlive the run."""
        if self.draining or not of_script:
            self._last_message = self._context.clock.now()

    def drain(self) -> None:
        """Begins the end; messages in transit still have 0.3 s to arrive."""
        self.draining = True
        self.on_message()

    @property
    def done(self) -> bool:
        """True when no more messages are expected."""
        if self.draining:
            return self._context.clock.now() - self._last_message >= _DRAINED_SECONDS
        return self._context.may_exit and self.silent and self.run_over

    @property
    def silent(self) -> bool:
        """True if no message has come for 2 s."""
        return self._context.clock.now() - self._last_message >= _SILENT_SECONDS

    @property
    def run_over(self) -> bool:
        """True once the result of the run is final; looked at once a second, or by :meth:`look`."""
        if not self._over and self._look_due():
            self.look()
        return self._over

    def look(self) -> None:
        """Looks at the result of the run now."""
        self._over = self._context.run_over
