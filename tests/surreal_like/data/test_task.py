"""Tasks as plain data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from session.errors import ConfigError
from surreal_like.data.task import check_task


@pytest.mark.parametrize(
    "task",
    [
        {"a": float("nan")},
        {"a": [1]},
        {"a": None},
        {"a": "x" * 257},
        {"x" * 33: 1},
        {"": 1},
        {1: 1},
        {"a": 1 << 63},
        {str(number): 1 for number in range(33)},
        7,
    ],
)
def test_what_is_no_task_is_refused(task: Any) -> None:
    with pytest.raises(ConfigError, match=r"the task.*expected a mapping of at most 32"):
        check_task(task, "the task")


def test_tasks_become_plain() -> None:
    task = check_task({"a": np.float32(0.5), "b": np.int64(2), "c": "x" * 256, "d": True}, "it")
    assert task == {"a": 0.5, "b": 2, "c": "x" * 256, "d": True}
    assert {type(value) for value in task.values()} == {float, int, str, bool}
