"""The function of a curriculum: `env_config.curriculum` names it, the coordinator calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from session.config.named_code import check_arguments, load_callable
from session.errors import ConfigError, SurrealError, describe
from surreal_like.data.episodes import mean_metrics
from surreal_like.data.task import NO_TASK, TASK, Task, check_task

if TYPE_CHECKING:
    from session.config import Config
    from session.process.context import Context
    from surreal_like.coordinator.learners import Learners
    from surreal_like.coordinator.run_stats import RunStats

_KEY = "env_config.curriculum"


@dataclass(frozen=True, slots=True)
class CurriculumProgress:
    """Progress of a run, for the function of a curriculum.

    Args:
        env_steps: environment steps of the run.
        iteration: updates of the parameters.
        train_return: mean return of the last 100 training episodes that were begun with the present
            task; None before the first.
        episodes: number of all training episodes so far that were begun with the present task.
        evaluation: newest evaluation of parameters with the present task, or with `eval_task`:
            `mean_return`, `episodes`, `env_steps` and more, as in result.json; None before.
        metrics: means of the metrics of the same 100, such as those of `metric_keys`.
    """

    env_steps: int = 0
    iteration: int = 0
    train_return: float | None = None
    episodes: int = 0
    evaluation: Mapping[str, Any] | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


def find_curriculum(env_config: Mapping[str, Any]) -> Curriculum | None:
    """Returns the curriculum of an experiment, None without one.

    Raises:
        ConfigError: `eval_task` stands alone.
    """
    if env_config.get("curriculum"):
        return Curriculum(env_config)
    if env_config.get("eval_task"):
        raise ConfigError("env_config.eval_task belongs to a curriculum: set that, too")
    return None


class Curriculum:
    """Chooses tasks by a function of the user; see :class:`session.addons.hooks.TaskSource`.

    Args:
        env_config: the run's.
    """

    key = "curriculum"

    def __init__(self, env_config: Mapping[str, Any]) -> None:
        self.name: str = env_config["curriculum"]
        self.eval_task: Task = env_config.get("eval_task") or {}
        self._remote = env_config.get("env_name") == "remote"

    def check(self) -> None:
        """Loads the function.

        Raises:
            ConfigError: there is no such function, or it takes other arguments; `eval_task` is no
                task; or the run does not reset the environments.
        """
        check_task(self.eval_task, "env_config.eval_task")
        if self._remote:
            raise ConfigError(f"{_KEY}: clients reset their environments themselves: leave it out")
        _ = self._function

    @cached_property
    def _function(self) -> Callable[[CurriculumProgress, Task], Any]:
        function: Callable[[CurriculumProgress, Task], Any] = load_callable(self.name, _KEY)
        check_arguments(f"{_KEY} {self.name!r}", function, ("progress", "task"))
        return function

    def play(self, env_config: Config, task: Task) -> None:
        """Lets evaluations play a task, unless they have one of their own."""
        if not self.eval_task:
            env_config["eval_task"] = task

    def first(self) -> Task | None:
        """Returns the task with which a new run begins, None without one.

        Raises:
            ConfigError: as :meth:`check`; the function raises an error.
        """
        self.check()
        try:
            return self.next(CurriculumProgress(), NO_TASK)
        except SurrealError:
            raise
        except Exception as error:
            raise ConfigError(f"{_KEY}: {describe(error)}") from error

    def next(self, progress: CurriculumProgress, task: Task) -> Task | None:
        """Returns the next task; None if the present one stays.

        Raises:
            ConfigError: the function gives no task; its own errors pass.
        """
        wanted = self._function(progress, dict(task))
        if wanted is None:
            return None
        checked = check_task(wanted, f"the task of {_KEY}")
        return None if checked == dict(task) else checked

    def choose(self, context: Context, record: RunStats, learners: Learners) -> bool:
        """Begins the next task if the function wants one; returns True then. Its errors pass."""
        settings = self.next(self.progress(record, learners), record.task["settings"])
        if settings is None:
            return False
        number = record.task["number"] + 1
        record.begin_task(number, settings, learners.learner.version)
        shown = ", ".join(f"{name} {value}" for name, value in settings.items())
        context.event("task", f"{number}: {shown}", number=number, task=dict(settings))
        learners.set_task(record.task)
        return True

    def progress(self, record: RunStats, learners: Learners) -> CurriculumProgress:
        """Returns the progress by the episodes and evaluations of the present task."""
        task, last = record.task, record.judge.last
        episodes: list[Any] = list(record.task_episodes)
        judged = last is not None and (self.eval_task or last["version"] > task["version"])
        metrics = mean_metrics(episodes)
        metrics.pop(TASK, None)
        returns = [each["return"] for each in episodes]
        return CurriculumProgress(
            int(record.times()["env_steps"]),
            learners.learner.iteration,
            sum(returns) / len(returns) if returns else None,
            task["episodes"],
            dict(last) if last is not None and judged else None,
            metrics,
        )
