"""Decides whether and when a component that died is started again."""

from __future__ import annotations

from session.errors import HOPELESS, UsageError
from session.launchers.supervised_component import Loss, SupervisedComponent

_BACK_OFF_SECONDS = 0.25
_BACK_OFF_LIMIT_SECONDS = 5.0


def restart_time(child: SupervisedComponent, loss: Loss, *, allowed: bool) -> float | None:
    """Records a death; returns the time of the next start, None if there must be none.

    A component is given up after `max_restarts` deaths within the window of its restart rule, and
    at once if a new start cannot help: its command or config is wrong, or it said so itself.

    Args:
        child: the component.
        loss: its death.
        allowed: False: nothing is started again in this run.
    """
    limits = child.component.restart
    recent = [each for each in child.losses if loss.time - each.time < limits.window_seconds]
    child.losses = [*recent, loss]
    wrong = child.exit_code == UsageError.exit_code and not child.ran
    hopeless = wrong or child.exit_code == HOPELESS
    if hopeless or not allowed or len(recent) >= limits.max_restarts:
        return None
    return loss.time + _back_off_seconds(len(child.losses))


def _back_off_seconds(losses: int) -> float:
    # The first restart is immediate: most deaths are single ones, and agents wait meanwhile.
    if losses <= 1:
        return 0.0
    return min(_BACK_OFF_SECONDS * 2.0 ** (losses - 2), _BACK_OFF_LIMIT_SECONDS)
