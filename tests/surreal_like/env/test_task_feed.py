"""Progress of a run, as environments get it."""

from __future__ import annotations

from surreal_like.env.environment import Env, EnvProgress
from surreal_like.env.task_feed import TaskFeed
from tests.surreal_like.env import task_samples


def test_a_class_with_a_progress_of_its_own_keeps_it() -> None:
    env = task_samples.Own()
    TaskFeed({}).introduce(env)
    assert env.progress == 0.5
    other = task_samples.Tasked()
    TaskFeed({}).introduce(other)
    assert isinstance(other.progress, EnvProgress)
    assert other.progress is not Env.progress


def test_no_task_is_none() -> None:
    feed = TaskFeed({})
    feed.begin_run()
    assert not feed.task
