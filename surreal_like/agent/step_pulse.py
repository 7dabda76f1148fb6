"""Heartbeats from inside a vector step, independent of the duration of a step."""

from __future__ import annotations

import math
from collections.abc import Callable

from session.process.context import Context

_PULSE_SECONDS = 0.25
# A stop request does not interrupt shorter steps.
_PATIENCE_SECONDS = 1.0
_SLOW_SECONDS = 5.0
# Errors in environments usually appear in the first vector steps.
_PROVEN_STEPS = 100


class StepAbandonedError(Exception):
    """A stop request ended a long vector step."""


class StepPulse:
    """Called between the environments of a vector step; see `surreal_like.env.vector`.

    Args:
        context: context of the process; its heartbeat goes on, its `stopping` ends a long step.
        num_envs: N, for the advice about slow steps.

    Attributes:
        work: further work to do regularly while the environments step.
        began_at: reading of the clock at the beginning of the newest vector step.
    """

    def __init__(self, context: Context, num_envs: int) -> None:
        self._context, self._now = context, context.clock.now
        self._num_envs = num_envs
        self._due = self._now()
        # No step is running while the environments are built.
        self.began_at = math.inf
        self._advised = False
        self._steps = 0
        self.work: Callable[[], object] = lambda: None

    def begin(self) -> None:
        """Marks the beginning of a vector step."""
        self._steps += 1
        self.began_at = began_at = self._now()
        # The frame of the service does this work between steps; only a long step needs it inside.
        self._due = began_at + _PULSE_SECONDS

    @property
    def proven(self) -> bool:
        """True once the environments have completed enough steps to be trusted."""
        return self._steps > _PROVEN_STEPS

    def __call__(self) -> None:
        """Sends a heartbeat and does the other work, if due.

        Raises:
            StepAbandonedError: the component has to stop, and the step has already taken long.
        """
        now = self._now()
        if now < self._due:
            return
        self._due = now + _PULSE_SECONDS
        self._context.pulse()
        self.work()
        passed = now - self.began_at
        if self._context.stopping and passed > _PATIENCE_SECONDS:
            raise StepAbandonedError
        # The advice of one of many agents is enough.
        if passed > _SLOW_SECONDS and not self._advised and not self._context.component.index:
            self._advised = True
            self._context.event(
                "slow",
                f"one step of {self._num_envs} environments takes more than {_SLOW_SECONDS:g} s: "
                "set env_config.vector, or have fewer of them "
                "(docs/environment_options.md, 'My simulator is slow')",
            )
