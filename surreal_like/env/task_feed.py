"""Feeds progress and task of a run to the environments of a process."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from surreal_like.data.task import NO_TASK, Task, tasks_of
from surreal_like.env.environment import Env, EnvProgress, Wrapper

if TYPE_CHECKING:
    from surreal_like.data.parameters import Parameters


class TaskFeed:
    """Feeds the environments of one process.

    Args:
        env_config: the run's; tasks, if it has any, come with the parameters.
        evaluation: True takes the task of evaluations, if there is one, for all episodes.

    Attributes:
        progress: counters of the newest parameters, one object of all environments.
        task, number: the newest task, and its number: 0 is the one before the first.
        numbered: True if episodes have the number of their task as a metric.
        revision: number of updates, by which copies of it in other processes are renewed.
    """

    def __init__(self, env_config: Mapping[str, Any], *, evaluation: bool = False) -> None:
        self._source = tasks_of(env_config)
        fixed = self._source.eval_task if self._source and evaluation else {}
        self.progress = EnvProgress()
        self.task: Task = MappingProxyType(dict(fixed)) if fixed else NO_TASK
        self.number = self.revision = 0
        self._fixed = bool(fixed)
        self.numbered = self._source is not None and not self._fixed

    def begin_run(self) -> None:
        """Takes the task with which a new run begins, to try an environment with it.

        Raises:
            ConfigError: the user's code gives none.
        """
        first = self._source.first() if self._source else None
        self.task = NO_TASK if first is None else first

    def update(self, parameters: Parameters) -> None:
        """Takes progress and task of parameters that have arrived."""
        info = parameters.info
        self._set(
            (int(info.get("env_steps", 0)), parameters.iteration, parameters.version),
            info.get("task"),
        )

    def _set(self, counters: Any, task: Mapping[str, Any] | None) -> None:
        progress = self.progress
        progress.env_steps, progress.iteration, progress.version = counters
        if task is not None and not self._fixed:
            self.task, self.number = MappingProxyType(dict(task["settings"])), task["number"]
        self.revision += 1

    def state(self) -> dict[str, Any]:
        """Returns plain data for :meth:`restore` in a worker process."""
        progress = self.progress
        return {
            "counters": [progress.env_steps, progress.iteration, progress.version],
            "task": {"settings": dict(self.task), "number": self.number},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over a result of :meth:`state`."""
        self._set(state["counters"], state["task"])

    def introduce(self, env: Env) -> None:
        """Gives the progress to an environment and its wrappers, except to those with their own."""
        for layer in _layers(env):
            if layer.progress is Env.progress:
                layer.progress = self.progress

    def begin(self, env: Env) -> None:
        """Gives the newest task to an environment that is reset next."""
        if self.task is not NO_TASK:
            for layer in _layers(env):
                layer.task = self.task


def _layers(env: Env) -> list[Env]:
    layers = [env]
    while isinstance(env, Wrapper):
        env = env.env
        layers.append(env)
    return layers
