"""Environments in worker processes that are made anew after an error."""

from __future__ import annotations

from typing import Any

import pytest

from session.errors import SurrealError
from surreal_like.addons.workers.subprocess_vector import SubprocessVector
from surreal_like.env.vector import make_vector_env
from tests.add_ons import needs
from tests.surreal_like.env.test_restarts import crashing, play


@pytest.mark.parametrize(
    ("tasks", "metrics"),
    [({}, {}), pytest.param({"curriculum": "x:y"}, {"task": 0}, marks=needs("curriculum"))],
)
def test_worker_processes_restart_their_own_and_the_parent_counts(
    caplog: pytest.LogCaptureFixture, tasks: dict[str, Any], metrics: dict[str, Any]
) -> None:
    config = crashing([2], vector="process", workers=2, **tasks)
    vector = make_vector_env(config, num_envs=2, seed=3)
    try:
        assert isinstance(vector, SubprocessVector)
        vector.reset()
        seen = play(vector, 4)
    finally:
        vector.close()
    # Episodes have one step here: a step, its reset, the step that crashes, its reset.
    assert [each[3] for each in seen] == [[False] * 2, [False] * 2, [True] * 2, [False] * 2]
    assert seen[2][0] == [0, 0]
    assert seen[2][4]["metrics"] == [{"cut_short": 1, **metrics}] * 2
    assert vector.env_restarts == 2
    assert caplog.text.count("the simulator crashed") == 2  # one cause in each of two workers


def test_too_many_errors_of_all_workers_end_them() -> None:
    config = crashing([2], vector="process", workers=2, max_env_restarts=1)
    vector = make_vector_env(config, num_envs=2, seed=3)
    try:
        vector.reset()
        with pytest.raises(SurrealError, match="the simulator crashed"):
            play(vector, 4)
    finally:
        vector.close()
