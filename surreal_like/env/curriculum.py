"""The function of a curriculum: `env_config.curriculum` names it, the coordinator calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from session.config.named_code import check_arguments, load_callable
from session.errors import ConfigError, SurrealError, describe
from surreal_like.data.task import NO_TASK, Task, check_task
from surreal_like.env.feed import RunFeed

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


Curriculum = Callable[[CurriculumProgress, Task], Any]


def load_curriculum(env_config: Mapping[str, Any]) -> Curriculum | None:
    """Returns the function of the curriculum, None without one.

    Raises:
        ConfigError: there is no such function, or it takes other arguments; `eval_task` is no task,
            or stands alone; or the run does not reset the environments.
    """
    name, task = env_config.get("curriculum"), env_config.get("eval_task") or {}
    check_task(task, "env_config.eval_task")
    if not name:
        if task:
            raise ConfigError("env_config.eval_task belongs to a curriculum: set that, too")
        return None
    if env_config.get("env_name") == "remote":
        raise ConfigError(f"{_KEY}: clients reset their environments themselves: leave it out")
    function: Curriculum = load_callable(name, _KEY)
    check_arguments(f"{_KEY} {name!r}", function, ("progress", "task"))
    return function


def next_task(function: Curriculum, progress: CurriculumProgress, task: Task) -> Task | None:
    """Returns the next task of a curriculum; None if it keeps the present one.

    Raises:
        ConfigError: the function gives no task; its own errors pass.
    """
    wanted = function(progress, dict(task))
    if wanted is None:
        return None
    checked = check_task(wanted, f"the task of {_KEY}")
    return None if checked == dict(task) else checked


def first_feed(env_config: Mapping[str, Any]) -> RunFeed:
    """Returns a feed with the task with which a new run begins, to try the environment with it.

    Raises:
        ConfigError: as the functions above; the function of the curriculum raises an error.
    """
    feed, function = RunFeed(env_config), load_curriculum(env_config)
    if function is None:
        return feed
    try:
        task = next_task(function, CurriculumProgress(), NO_TASK)
    except SurrealError:
        raise
    except Exception as error:
        raise ConfigError(f"{_KEY}: {describe(error)}") from error
    if task is not None:
        feed.task = task
    return feed
