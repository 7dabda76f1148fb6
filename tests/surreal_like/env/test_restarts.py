"""Environments that are made anew after an error."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from session.errors import ConfigError, describe
from surreal_like.env.multi_agent import AecJointEnv, ParallelJointEnv
from surreal_like.env.restarts import Restarts
from surreal_like.env.vector import SyncVector, make_vector_env
from tests.surreal_like.env import task_samples
from tests.surreal_like.env.joint_samples import InTurns, Script
from tests.surreal_like.env.test_multi_agent_vector import act, listed, vector_of

WANTED = {"on_error": "restart", "max_env_restarts": 1}
NAME = "tests.surreal_like.env.task_samples:Crashing"


@pytest.fixture(autouse=True)
def uncounted() -> Iterator[None]:
    task_samples.COUNTED.clear()
    yield
    task_samples.COUNTED.clear()


def crashing(at: list[int], *, counts: str = "step", **settings: Any) -> dict[str, Any]:
    args = {"at": at, "counts": counts}
    given = {"on_error": "restart", "max_env_restarts": 10, "vector": "sync", **settings}
    return {"env_name": NAME, "env_args": args, "eval_mode": {}, **given}


def build(env_config: dict[str, Any], num_envs: int = 2) -> Any:
    vector = make_vector_env(env_config, num_envs=num_envs, seed=3)
    for env in getattr(vector, "envs", ()):
        env.task = {"length": 4}
    return vector


def step(vector: Any) -> tuple[Any, ...]:
    obs, reward, terminated, truncated, info = vector.step(np.ones(vector.num_envs, np.int64))
    return obs[:, 0].tolist(), reward.tolist(), terminated.tolist(), truncated.tolist(), info


def play(vector: Any, steps: int) -> list[tuple[Any, ...]]:
    return [step(vector) for _ in range(steps)]


def test_an_error_of_step_truncates_its_episode_and_spares_the_others() -> None:
    vector = build(crashing([3]))
    first, other = vector.envs
    vector.reset()
    assert step(vector)[:4] == ([1, 1], [1, 1], [False] * 2, [False] * 2)
    obs, reward, terminated, truncated, info = step(vector)
    assert (obs, reward) == ([1, 2], [0, 1])  # the last observation again, no reward
    assert (terminated, truncated) == ([False] * 2, [True, False])
    assert info["metrics"] == [{"cut_short": 1}, None]
    assert first.closed
    assert vector.envs[0] is not first
    assert vector.envs[1] is other
    assert vector.envs[0].seeded != first.seeded
    assert step(vector)[0] == [0, 3]  # the reset of the new copy
    assert vector.env_restarts == 1


def test_an_error_of_reset_tries_another_copy() -> None:
    vector = build(crashing([2, 3], counts="reset"))
    obs, _ = vector.reset()
    assert obs[:, 0].tolist() == [0, 0]
    assert vector.env_restarts == 2


def test_too_many_errors_end_it_as_before() -> None:
    vector = build(crashing([1, 3, 5], max_env_restarts=2), num_envs=1)
    vector.reset()
    with pytest.raises(ValueError, match="the simulator crashed"):
        play(vector, 9)
    assert vector.env_restarts == 2
    assert len(task_samples.COUNTED) == 5


def test_by_default_an_error_passes() -> None:
    vector = build(crashing([1], on_error="fail"))
    vector.reset()
    with pytest.raises(ValueError, match="the simulator crashed"):
        step(vector)


def test_the_window_moves_and_one_cause_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    restarts = Restarts({**WANTED, "max_env_restarts": 2}, [5, 6], now=lambda: now[0])
    caplog.set_level(logging.WARNING)
    for _ in range(6):
        now[0] += 301.0
        restarts.add(ValueError("a"))
    assert restarts.count == 6
    seed = restarts.seed_of(0)
    assert len(caplog.records) == 1
    now[0] += 601.0
    for _ in range(2):
        restarts.add(ValueError("b"))
    assert len(caplog.records) == 2
    with pytest.raises(ValueError, match="c") as caught:
        restarts.add(ValueError("c"))
    limit = "more than 2 restarts within 10 minutes (env_config.max_env_restarts)"
    assert describe(caught.value).endswith(f"; {limit}")
    for number in range(100):
        now[0] += 601.0
        restarts.add(ValueError(str(number)))
    assert len(caplog.records) < 20
    assert len({seed, restarts.seed_of(0), restarts.seed_of(1)}) == 3


def test_an_error_of_the_contract_passes_and_that_of_a_constructor_counts() -> None:
    env, tries = task_samples.Crashing(), list[OSError]()

    def make() -> task_samples.Crashing:
        if tries:
            raise tries.pop()
        return task_samples.Crashing()

    restarts = Restarts({**WANTED, "max_env_restarts": 3}, [5], make)
    with pytest.raises(ConfigError):
        restarts.renew(env, ConfigError("wrong"))
    assert (restarts.count, env.closed) == (0, False)
    tries += [OSError("no port"), OSError("no port")]
    assert restarts.renew(env, ValueError("x")) is not env
    assert (restarts.count, env.closed) == (3, True)


def test_native_code_is_not_used() -> None:
    config = {"env_name": "gym:CartPole-v1", "on_error": "restart", "max_env_restarts": 1}
    vector = make_vector_env(config, num_envs=1, seed=0)
    assert isinstance(vector, SyncVector)
    vector.close()


class Broken(Script):
    """A script of two agents that crashes at its second step, once."""

    def __init__(self) -> None:
        super().__init__({"a": (0, 3), "b": (0, 3)})
        self.crashes = True

    def step(self, actions: dict[str, Any]) -> Any:
        if self.now == 1 and self.crashes:
            raise ValueError("the simulator crashed")
        return super().step(actions)


def test_an_error_truncates_all_agents_of_its_copy() -> None:
    vector = vector_of(Broken(), Script({"a": (0, 3), "b": (0, 3)}))
    whole = Broken()
    whole.crashes = False
    vector.restarts = Restarts(WANTED, [1, 2], lambda: ParallelJointEnv(whole))
    result = vector.step(act(vector.reset()))
    result = vector.step(act(result))
    rows = result.rows["default"]
    assert rows.truncated.tolist() == [True, True, False, False]
    assert rows.obs[:, 0].tolist() == [1, 1, 2, 2]
    assert rows.reward.tolist() == [0, 0, 1, 2]
    [(copy, summary)] = result.episodes
    assert (copy, summary["return"], summary["length"]) == (0, 3.0, 2)
    assert summary["metrics"]["cut_short"] == 1
    result = vector.step(act(result))
    assert result.rows["default"].first.tolist() == [True, True, False, False]
    assert vector.env_restarts == 1


class BrokenInTurns(InTurns):
    """Crashes at its fourth step."""

    steps = 0

    def step(self, action: Any) -> None:
        self.steps += 1
        if self.steps == 4:
            raise ValueError("the simulator crashed")
        super().step(action)


def test_an_error_truncates_all_agents_that_act_in_turns() -> None:
    vector = vector_of(BrokenInTurns())
    vector.restarts = Restarts(WANTED, [1], lambda: AecJointEnv(InTurns()))
    result = vector.reset()
    while not result.episodes:
        result = vector.step(act(result))
    rows = result.rows["default"]
    assert rows.truncated.all()
    assert not rows.terminated.any()
    assert len(rows.streams) == len(set(rows.streams.tolist())) >= 2
    assert listed(vector.step(act(result)))[0][3] == "FIRST"
