"""The tasks of a curriculum: asks for the next one, and gives it to the learners."""

from __future__ import annotations

from typing import Any

from session.process.context import Context
from surreal_like.coordinator.learners import Learners
from surreal_like.coordinator.run_stats import RunStats
from surreal_like.data.episodes import mean_metrics
from surreal_like.data.task import TASK
from surreal_like.env.curriculum import CurriculumProgress, load_curriculum, next_task


class Tasks:
    """Chooses the task of the episodes that begin; the record of the run keeps it.

    Args:
        context: context of the learner's process.
        record: statistics of the run.
        learners: publish the task with their parameters.

    Raises:
        ConfigError: there is no such curriculum.
    """

    def __init__(self, context: Context, record: RunStats, learners: Learners) -> None:
        self._context, self._record, self._learners = context, record, learners
        self._env_config = context.config.env_config
        self._function = load_curriculum(self._env_config)

    @property
    def has_curriculum(self) -> bool:
        """True if tasks are chosen."""
        return self._function is not None

    def restore(self) -> None:
        """Gives the restored task to the learners."""
        if self._record.task["number"]:
            self._learners.set_task(self._record.task)

    def choose(self) -> bool:
        """Asks the curriculum; returns True if there is a new task. Its errors pass."""
        if self._function is None:
            return False
        record, version = self._record, self._learners.learner.version
        settings = next_task(self._function, self._progress(), record.task["settings"])
        if settings is None:
            return False
        number = record.task["number"] + 1
        record.begin_task(number, settings, version)
        shown = ", ".join(f"{name} {value}" for name, value in settings.items())
        self._context.event("task", f"{number}: {shown}", number=number, task=dict(settings))
        self._learners.set_task(record.task)
        return True

    def _progress(self) -> CurriculumProgress:
        """Returns the progress by the episodes and evaluations of the present task."""
        record, task, last = self._record, self._record.task, self._record.judge.last
        episodes: list[Any] = list(record.task_episodes)
        judged = last is not None and (
            self._env_config.eval_task or last["version"] > task["version"]
        )
        metrics = mean_metrics(episodes)
        metrics.pop(TASK, None)
        returns = [each["return"] for each in episodes]
        return CurriculumProgress(
            int(record.times()["env_steps"]),
            self._learners.learner.iteration,
            sum(returns) / len(returns) if returns else None,
            task["episodes"],
            dict(last) if last is not None and judged else None,
            metrics,
        )
