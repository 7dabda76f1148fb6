"""Tasks of episodes: flat mappings of settings that an environment gets with its reset."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from session.addons.hooks import TASKS, TaskSource
from session.errors import ConfigError

Task: TypeAlias = Mapping[str, float | int | str]

ENTRIES, NAME_CHARACTERS, TEXT_CHARACTERS = 32, 32, 256
# The task before the first one that is chosen, and of a run that chooses none.
NO_TASK: Task = MappingProxyType({})
# Metric of each episode, and column of the rows: the number of its task.
TASK = "task"

_WHOLE = 1 << 63
_EXPECTED = (
    f"expected a mapping of at most {ENTRIES} finite numbers and texts, with names of at most "
    f"{NAME_CHARACTERS} characters and texts of at most {TEXT_CHARACTERS}"
)


def tasks_of(env_config: Mapping[str, Any]) -> TaskSource | None:
    """Returns what chooses the tasks of an experiment; None: its episodes have none.

    Raises:
        ConfigError: the settings of tasks contradict each other.
    """
    return next(filter(None, (find(env_config) for find in TASKS)), None)


def is_setting(value: Any) -> bool:
    """Returns True for a finite number, True, False, or a text that is not too long."""
    if isinstance(value, str):
        return len(value) <= TEXT_CHARACTERS
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and -_WHOLE <= value < _WHOLE


def check_task(task: Any, what: str) -> Task:
    """Returns a task of plain Python values; numbers of numpy become those of Python.

    Args:
        task: the mapping.
        what: names its source in errors.

    Raises:
        ConfigError: it is no task; the message names the entry.
    """
    if not isinstance(task, Mapping):
        raise ConfigError(f"{what} is a {type(task).__name__}, {_EXPECTED}")
    if len(task) > ENTRIES:
        raise ConfigError(f"{what} has {len(task)} entries, {_EXPECTED}")
    plain = {}
    for name, value in task.items():
        if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARACTERS:
            raise ConfigError(f"{what} has the name {str(name)[:100]!r}, {_EXPECTED}")
        plain[name] = value.item() if isinstance(value, np.generic) else value
        if not is_setting(plain[name]):
            raise ConfigError(f"{what}: {name} is {str(value)[:100]!r}, {_EXPECTED}")
    return plain
