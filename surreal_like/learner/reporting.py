"""Numbers of a learner at intervals, for plans of scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from session.process.clock import WallClock
from session.process.periodic import Every, Rate
from surreal_like.coordinator.progress_log import recent_means
from surreal_like.dataflow.flow import PASSED, Operator
from surreal_like.dataflow.items import Trained

if TYPE_CHECKING:
    from surreal_like.learner.base import Learner


def report(learner: Learner, *, seconds: float) -> Operator:
    """Returns an operator for scripts: behind an update, it gives one dictionary per interval.

    It has the keys of a line of `progress.jsonl` that a learner knows; the means of `learn` are
    those of the updates since the last one. In a run the lines are written without it.

    Args:
        learner: that trains.
        seconds: length of an interval.
    """
    clock = WallClock()
    due, rate = Every(seconds=seconds, clock=clock.now), Rate(clock=clock.now)
    began = clock.now()
    updates: list[dict[str, Any]] = []

    def collect(item: Trained) -> Any:
        updates.append(item.metrics)
        rate.add()
        if not due():
            return PASSED
        means = recent_means(updates)
        updates.clear()
        return {
            "wall_seconds": clock.now() - began,
            "env_steps": learner.env_steps,
            "iterations": rate.total,
            "iteration": learner.iteration,
            "rates": {"updates_per_second": rate.per_second()},
            "learn": means,
        }

    return Operator(f"report({seconds:g} s)", collect, learner=learner)
