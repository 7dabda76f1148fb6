"""Progress and task of a run, as environments get them."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from session.errors import ConfigError
from surreal_like.data.parameters import Parameters
from surreal_like.data.task import check_task
from surreal_like.env.base import Env, EnvProgress
from surreal_like.env.batched import BatchedVector
from surreal_like.env.check import check_env, tried_specs
from surreal_like.env.curriculum import CurriculumProgress, first_feed, load_curriculum, next_task
from surreal_like.env.feed import RunFeed
from surreal_like.env.subprocess_vector import SubprocessVector
from surreal_like.env.vector import SyncVector, make_vector_env
from tests.surreal_like.env import task_samples
from tests.surreal_like.env.joint_samples import Script
from tests.surreal_like.env.test_joint_vector import act, vector_of

SAMPLES = "tests.surreal_like.env.task_samples"
CURRICULUM = f"{SAMPLES}:by_steps"


def parameters(version: int, number: int = 0, **settings: Any) -> Parameters:
    info: dict[str, Any] = {"env_steps": 100 * version}
    if number:
        info["task"] = {"number": number, "settings": settings}
    return Parameters(np.zeros(0, np.uint8), (), version, 1, 10 * version, info)


def config(name: str = "Tasked", **more: Any) -> dict[str, Any]:
    return {"env_name": f"{SAMPLES}:{name}", "curriculum": CURRICULUM, **more}


@pytest.mark.parametrize("vector", ["sync", "process", "native"])
def test_a_task_reaches_each_copy_at_its_next_episode(vector: str) -> None:
    """The second number of an observation is the setting `length`, by which episodes end."""
    feed = RunFeed(config())
    feed.update(parameters(1, 1, length=1))
    env = make_vector_env(config(vector=vector, workers=2), num_envs=2, seed=0, feed=feed)
    try:
        assert isinstance(env, SubprocessVector if vector == "process" else SyncVector)
        obs, _ = env.reset()
        seen = [obs[:, 1].tolist()]
        feed.update(parameters(2, 2, length=2))
        infos = []
        for _ in range(4):
            obs, _, _, _, info = env.step(np.zeros(2, np.int64))
            seen.append(obs[:, 1].tolist())
            infos.append(info)
    finally:
        env.close()
    assert seen == [[1, 1], [1, 1], [2, 2], [2, 2], [2, 2]]
    assert [info.get("metrics") for info in infos] == [
        [{"task": 1}] * 2,
        None,
        None,
        [{"task": 2}] * 2,
    ]


def test_a_task_reaches_a_batch_that_its_caller_resets() -> None:
    feed = RunFeed(config("TaskedMany"))
    feed.update(parameters(1, 1, length=2))
    env = make_vector_env(config("TaskedMany"), num_envs=2, seed=0, feed=feed)
    with contextlib.closing(env):
        seen, metrics = [env.reset()[0].tolist()], []
        feed.update(parameters(2, 2, length=3))
        for _ in range(5):
            obs, _, _, _, info = env.step(np.zeros(2, np.int64))
            seen.append(obs.tolist())
            metrics.append(info.get("metrics"))
    steps = [(0, 2), (1, 2), (0, 3), (1, 3), (2, 3), (0, 3)]
    assert seen == [[list(step)] * 2 for step in steps]
    assert metrics == [None, [{"task": 1}] * 2, None, None, [{"task": 2}] * 2]


def test_a_batch_has_the_task_as_a_column() -> None:
    feed = RunFeed(config("TaskedMany"))
    feed.update(parameters(1, 1, length=1))
    own = config("TaskedMany") | {"info_keys": ["task"]}
    with contextlib.closing(make_vector_env(own, num_envs=2, seed=0, feed=feed)) as env:
        assert env.reset()[1]["task"].tolist() == [1, 1]
        feed.update(parameters(2, 2, length=1))
        _, _, _, _, info = env.step(np.zeros(2, np.int64))
    assert (info["final_info"]["task"].tolist(), info["task"].tolist()) == ([1, 1], [2, 2])


def test_a_batch_is_looked_at_with_the_first_task() -> None:
    batch = config("TaskedMany") | {"env_args": {"needs_task": True}}
    assert tried_specs(batch)[0]["dim"] == [2]
    assert check_env(batch, steps=20).ok
    assert not check_env({**batch, "curriculum": ""}, steps=20).ok


def test_the_number_of_a_task_is_a_column_before_the_first_row() -> None:
    tried = tried_specs(config("GymTasked", info_keys=["task"]))[2]
    made = make_vector_env(config("GymTasked", info_keys=["task"]), num_envs=1, seed=0)
    with contextlib.closing(made):
        row = made.reset()[1]["task"][0]
    assert (tried["task"].dtype, tried["task"].shape) == (row.dtype, row.shape)


@pytest.mark.parametrize("vector", ["sync", "process"])
def test_progress_is_that_of_the_newest_parameters(vector: str) -> None:
    """The third number of an observation is `self.progress.version` of the Wrapper inside."""
    wrapped = config(vector=vector, wrappers=[f"{SAMPLES}:Passing"], info_keys=["version"])
    feed = RunFeed(wrapped)
    env = make_vector_env(wrapped, num_envs=1, seed=0, feed=feed)
    try:
        assert env.reset()[1]["version"].tolist() == [0]
        feed.update(parameters(3, 1, length=1))
        env.step(np.zeros(1, np.int64))
        _, _, _, _, info = env.step(np.zeros(1, np.int64))
    finally:
        env.close()
    assert info["version"].tolist() == [3]
    assert (feed.progress.env_steps, feed.progress.iteration) == (300, 30)


def test_a_class_with_a_progress_of_its_own_keeps_it() -> None:
    env = task_samples.Own()
    RunFeed({}).introduce(env)
    assert env.progress == 0.5
    other = task_samples.Tasked()
    RunFeed({}).introduce(other)
    assert isinstance(other.progress, EnvProgress)
    assert other.progress is not Env.progress


@pytest.mark.parametrize("vector", ["sync", "process"])
def test_environments_of_gymnasium_get_options(vector: str) -> None:
    own = config("GymTasked", vector=vector, info_keys=["task", "length"])
    feed = RunFeed(own)
    env = make_vector_env(own, num_envs=1, seed=0, feed=feed)
    try:
        assert env.reset()[1]["length"].tolist() == [-1]  # reset without options
        feed.update(parameters(1, 1, length=7))
        env.step(np.zeros(1, np.int64))
        _, _, _, _, info = env.step(np.zeros(1, np.int64))
    finally:
        env.close()
    assert (info["length"].tolist(), info["task"].tolist()) == ([7], [1])


def test_without_a_curriculum_native_code_is_used_and_nothing_is_added() -> None:
    plain = {"env_name": "gym:CartPole-v1"}
    env = make_vector_env(plain, num_envs=1, seed=0)
    assert isinstance(env, BatchedVector)
    env.close()
    env = make_vector_env({**plain, "curriculum": CURRICULUM}, num_envs=1, seed=0)
    assert isinstance(env, SyncVector)
    env.close()


def test_evaluations_play_a_fixed_task() -> None:
    feed = RunFeed(config(eval_task={"length": 4}), evaluation=True)
    feed.update(parameters(1, 1, length=1))
    assert dict(feed.task) == {"length": 4}
    assert not feed.numbered
    newest = RunFeed(config(), evaluation=True)
    newest.update(parameters(1, 1, length=1))
    assert dict(newest.task) == {"length": 1}


def test_environments_of_several_agents_get_options() -> None:
    feed = RunFeed({"curriculum": CURRICULUM})
    env = Script({"a": (0, 1)})
    vector = vector_of(env, feed=feed)
    step = vector.reset()
    feed.update(parameters(1, 1, length=3))
    step = vector.step(act(step))
    assert step.episodes[0][1]["metrics"]["task"] == 0
    step = vector.step(act(step))
    assert env.options == {"length": 3}
    assert vector.step(act(step)).episodes[0][1]["metrics"]["task"] == 1


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


def test_none_and_an_equal_task_keep_the_present_one() -> None:
    progress = CurriculumProgress()
    assert next_task(lambda *_: None, progress, {"a": 1}) is None
    assert next_task(lambda *_: {"a": 1}, progress, {"a": 1}) is None
    assert next_task(lambda *_: {}, progress, {"a": 1}) == {}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"curriculum": f"{SAMPLES}:by_step"}, "has no 'by_step'; did you mean by_steps"),
        ({"curriculum": f"{SAMPLES}:Tasked"}, r"expected a function of \(progress, task\)"),
        ({"curriculum": CURRICULUM, "eval_task": {"a": [1]}}, "env_config.eval_task: a is"),
        ({"eval_task": {"a": 1}}, "eval_task belongs to a curriculum"),
        ({"curriculum": CURRICULUM, "env_name": "remote"}, "clients reset their environments"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_curriculum(settings)


def test_the_first_task_is_tried_before_the_start() -> None:
    assert dict(first_feed(config()).task) == {"length": 1}
    assert not first_feed({}).task
    with pytest.raises(ConfigError, match=r"ZeroDivisionError.* in raises \(.*task_samples.py:\d+"):
        first_feed({"curriculum": f"{SAMPLES}:raises"})
