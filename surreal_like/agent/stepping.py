"""Signs of life from inside a vector step, however long the environments take."""

from __future__ import annotations

import math
from collections.abc import Callable

from session.context import Context

_PULSE_SECONDS = 0.05
# A shorter step is waited for when the component is told to stop.
_PATIENCE_SECONDS = 1.0
_SLOW_SECONDS = 5.0
# Mistakes in environments show in the first vector steps.
_PROVEN_STEPS = 100


class StepAbandonedError(Exception):
    """The component was told to stop in the middle of a long vector step."""


class Stepping:
    """Called between the environments of a vector step; see `surreal_like.env.vector`.

    Args:
        context: of the process; its heartbeat goes on, and its `stopping` ends a long step.
        num_envs: N, for the advice about slow steps.

    Attributes:
        work: what else is to be done now and then while the environments step.
    """

    def __init__(self, context: Context, num_envs: int) -> None:
        self._context = context
        self._num_envs = num_envs
        self._due = context.clock.now()
        # While the environments are built there is no step.
        self._began_at = math.inf
        self._advised = False
        self._steps = 0
        self.work: Callable[[], object] = lambda: None

    def begin(self) -> None:
        """A vector step begins now."""
        self._steps += 1
        self._began_at = self._context.clock.now()

    @property
    def proven(self) -> bool:
        """Whether the environments have been stepped often enough to be trusted."""
        return self._steps > _PROVEN_STEPS

    def __call__(self) -> None:
        """Shows a sign of life if one is due.

        Raises:
            StepAbandonedError: the component is to stop, and the step has taken long already.
        """
        now = self._context.clock.now()
        if now < self._due:
            return
        self._due = now + _PULSE_SECONDS
        self._context.pulse()
        self.work()
        passed = now - self._began_at
        if self._context.stopping and passed > _PATIENCE_SECONDS:
            raise StepAbandonedError
        # One of many agents is enough.
        if passed > _SLOW_SECONDS and not self._advised and not self._context.component.index:
            self._advised = True
            self._context.event(
                "slow",
                f"one step of {self._num_envs} environments takes more than {_SLOW_SECONDS:g} s: "
                "set env_config.vector=process and env_config.workers, or have fewer of them "
                "(docs/your_own_environment.md, 'My simulator is slow')",
            )
