"""Tasks of a curriculum, as environments get them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.config import Config
from session.errors import ConfigError
from surreal_like.addons.curriculum.curriculum import Curriculum, CurriculumProgress
from surreal_like.data.parameters import Parameters
from surreal_like.data.task import tasks_of
from surreal_like.env.batched import BatchedVector
from surreal_like.env.check import check_env, tried_specs
from surreal_like.env.task_feed import TaskFeed
from surreal_like.env.vector import SyncVector, make_vector_env
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from tests.add_ons import needs
from tests.addons.curriculum import functions
from tests.surreal_like.env.joint_samples import Script
from tests.surreal_like.env.test_multi_agent_vector import act, vector_of

SAMPLES = "tests.surreal_like.env.task_samples"
FUNCTIONS = "tests.addons.curriculum.functions"
CURRICULUM = f"{FUNCTIONS}:by_steps"
WAYS = ("sync", pytest.param("process", marks=needs("workers")))


def parameters(version: int, number: int = 0, **settings: Any) -> Parameters:
    info: dict[str, Any] = {"env_steps": 100 * version}
    if number:
        info["task"] = {"number": number, "settings": settings}
    return Parameters(np.zeros(0, np.uint8), (), version, 1, 10 * version, info)


def config(name: str = "Tasked", **more: Any) -> dict[str, Any]:
    return {"env_name": f"{SAMPLES}:{name}", "curriculum": CURRICULUM, **more}


@pytest.mark.parametrize("vector", [*WAYS, "native"])
def test_a_task_reaches_each_copy_at_its_next_episode(vector: str) -> None:
    """The second number of an observation is the setting `length`, by which episodes end."""
    feed = TaskFeed(config())
    feed.update(parameters(1, 1, length=1))
    env = make_vector_env(config(vector=vector, workers=2), num_envs=2, seed=0, feed=feed)
    try:
        assert isinstance(env, SyncVector) == (vector != "process")
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
    feed = TaskFeed(config("TaskedMany"))
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
    feed = TaskFeed(config("TaskedMany"))
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


@pytest.mark.parametrize("vector", WAYS)
def test_progress_is_that_of_the_newest_parameters(vector: str) -> None:
    """The third number of an observation is `self.progress.version` of the Wrapper inside."""
    wrapped = config(vector=vector, wrappers=[f"{SAMPLES}:Passing"], info_keys=["version"])
    feed = TaskFeed(wrapped)
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


@pytest.mark.parametrize("vector", WAYS)
def test_environments_of_gymnasium_get_options(vector: str) -> None:
    own = config("GymTasked", vector=vector, info_keys=["task", "length"])
    feed = TaskFeed(own)
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
    feed = TaskFeed(config(eval_task={"length": 4}), evaluation=True)
    feed.update(parameters(1, 1, length=1))
    assert dict(feed.task) == {"length": 4}
    assert not feed.numbered
    newest = TaskFeed(config(), evaluation=True)
    newest.update(parameters(1, 1, length=1))
    assert dict(newest.task) == {"length": 1}


def test_environments_of_several_agents_get_options() -> None:
    feed = TaskFeed({"curriculum": CURRICULUM})
    env = Script({"a": (0, 1)})
    vector = vector_of(env, feed=feed)
    step = vector.reset()
    feed.update(parameters(1, 1, length=3))
    step = vector.step(act(step))
    assert step.episodes[0][1]["metrics"]["task"] == 0
    step = vector.step(act(step))
    assert env.options == {"length": 3}
    assert vector.step(act(step)).episodes[0][1]["metrics"]["task"] == 1


@pytest.mark.parametrize(("given", "wanted"), [(None, None), ({"length": 1}, None), ({}, {})])
def test_none_and_an_equal_task_keep_the_present_one(
    monkeypatch: pytest.MonkeyPatch, given: Any, wanted: Any
) -> None:
    monkeypatch.setattr(functions, "by_steps", lambda progress, task: given)
    source = tasks_of(config())
    assert isinstance(source, Curriculum)
    assert source.next(CurriculumProgress(), {"length": 1}) == wanted


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"curriculum": f"{FUNCTIONS}:by_step"}, "has no 'by_step'; did you mean by_steps"),
        ({"curriculum": f"{SAMPLES}:Tasked"}, r"expected a function of \(progress, task\)"),
        ({"curriculum": CURRICULUM, "eval_task": {"a": [1]}}, "env_config.eval_task: a is"),
        ({"eval_task": {"a": 1}}, "eval_task belongs to a curriculum"),
        ({"curriculum": CURRICULUM, "env_name": "remote"}, "clients reset their environments"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        resolve(experiment(**{"env_name": "toy:chain", **settings}))


def experiment(**env_config: Any) -> Config:
    return read_experiment(None, {"env_config": env_config}, algorithm="dqn")


def test_a_file_beside_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_stages.py").write_text("def stages(progress, task):\n    return None\n")
    found = experiment(env_name="toy:chain", curriculum="own_stages:stages")
    assert found.session_config.import_path == ["."]


def test_the_first_task_is_tried_before_the_start() -> None:
    feed = TaskFeed(config())
    feed.begin_run()
    assert dict(feed.task) == {"length": 1}
    with pytest.raises(ConfigError, match=r"ZeroDivisionError.* in raises \(.*functions.py:\d+"):
        TaskFeed({"curriculum": f"{FUNCTIONS}:raises"}).begin_run()


@pytest.mark.parametrize(("own", "played"), [({}, {"length": 2}), ({"length": 4}, {"length": 4})])
def test_a_trained_policy_plays_the_task_of_evaluations(own: Any, played: Any) -> None:
    settings = Config(config(eval_task=own))
    source = tasks_of(settings)
    assert source is not None
    source.play(settings, {"length": 2})
    assert settings.eval_task == played
