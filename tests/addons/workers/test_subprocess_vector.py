import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from session import nest
from session.errors import ConfigError, MissingExtra, RunError, SurrealError, describe, may_pass
from surreal_like.addons.workers.subprocess_vector import SubprocessVector
from surreal_like.addons.workers.worker_channel import SharedBlock, decode_info, encode_info
from surreal_like.env.environment import VectorEnv
from surreal_like.env.vector import make_vector_env
from surreal_like.errors import DataError, SpecError
from tests.contracts.env import VectorEnvContract, random_actions, same

SAMPLES = "tests.surreal_like.env.samples"
COUNTER = {"env_name": f"{SAMPLES}:Counter"}


class TestProcessCartPole(VectorEnvContract):
    steps = 60

    @pytest.fixture(scope="class")  # a worker takes a moment to start
    @classmethod
    def env(cls) -> Iterator[VectorEnv]:
        with contextlib.closing(cartpoles(cls.num_envs, 7)) as env:
            yield env

    def make(self, num_envs: int, seed: int) -> VectorEnv:
        return cartpoles(num_envs, seed)


def cartpoles(num_envs: int, seed: int) -> VectorEnv:
    config = {"env_name": "gym:CartPole-v1", "vector": "process"}
    return make_vector_env(config, num_envs=num_envs, seed=seed)


def until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Polls until a condition holds; False when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


@contextlib.contextmanager
def counters(num_envs: int = 3, **arguments: Any) -> Iterator[SubprocessVector]:
    config = {**COUNTER, "env_args": arguments, "info_keys": ["count"]}
    vector = SubprocessVector(config, list(range(num_envs)), workers=2, timeout_seconds=20.0)
    with contextlib.closing(vector):
        yield vector


@pytest.mark.parametrize("name", ["toy:grid", "gym:Blackjack-v1", "toy:target"])
def test_processes_give_what_this_process_gives(name: str) -> None:
    def play(mode: str) -> list[Any]:
        config = {"env_name": name, "vector": mode, "limit_episode_length": 6}
        with contextlib.closing(make_vector_env(config, num_envs=3, seed=11)) as env:
            rng = np.random.default_rng(0)
            rows: list[Any] = [env.reset()]
            for _ in range(30):
                rows.append(env.step(random_actions(env.action_spec, (3,), rng)))
            return rows

    for here, there in zip(play("sync"), play("process"), strict=True):
        assert same(here, there)
        for mine, theirs in zip(nest.leaves(here), nest.leaves(there), strict=True):
            assert np.asarray(mine).dtype == np.asarray(theirs).dtype


def test_info_comes_from_every_worker() -> None:
    with counters(length=2) as env:
        assert env.reset()[1]["count"].tolist() == [0, 0, 0]
        info = env.step(np.zeros(3, np.int64))[4]
        assert set(info) == {"count"}
        assert (info["count"].tolist(), info["count"].dtype) == ([1, 1, 1], np.int64)
        assert env.step(np.zeros(3, np.int64))[4]["metrics"] == [{"my/steps": 2}] * 3


def test_raw_rewards_come_back() -> None:
    config = {**COUNTER, "wrappers": [f"{SAMPLES}:Scaled"], "vector": "process"}
    with contextlib.closing(make_vector_env(config, num_envs=3, seed=0)) as env:
        env.reset()
        _, reward, _, _, info = env.step(np.zeros(3, np.int64))
        assert (reward.tolist(), info["raw_reward"].tolist()) == ([2, 2, 2], [1, 1, 1])


@pytest.mark.parametrize(
    ("config", "kind", "message"),
    [
        ({"env_name": "toy:chian"}, ConfigError, "did you mean toy:chain"),
        ({"env_name": "gym:phys2d/CartPole-v1"}, MissingExtra, "jax"),
        ({**COUNTER, "obs_spec": {"type": "uint8", "dim": [1]}}, SpecError, "obs_spec.type"),
        ({"env_name": f"{SAMPLES}:Broken"}, RunError, "streams 0 to 1 .*OSError\\('no robot at p"),
        (
            {"env_name": f"{SAMPLES}:Broken", "env_args": {"kind": "data"}},
            DataError,
            r"^calibration: NaN, in Broken.__init__ \(tests/.*samples.py:\d+\)$",
        ),
        ({**COUNTER, "env_args": {"length": {1, 2}}}, ConfigError, "cannot be sent"),
    ],
)
def test_the_error_of_a_constructor_comes_back(
    config: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        SubprocessVector(config, [1, 2, 3], workers=2)


@pytest.mark.parametrize("vector", ["sync", "process"])
@pytest.mark.parametrize(
    ("kind", "passes"),
    [
        ("TypeError", False),
        ("ImportError", False),
        ("SystemExit", False),
        ("data", False),
        ("plain", True),
        ("MemoryError", True),
        ("ConnectionError", True),
        ("RunError", True),
    ],
)
def test_whether_an_error_would_come_again_is_the_same_with_workers(
    vector: str, kind: str, passes: bool
) -> None:
    config = {"env_name": f"{SAMPLES}:Broken", "env_args": {"kind": kind}, "vector": vector}
    with pytest.raises((Exception, SystemExit)) as caught:
        make_vector_env({**config, "workers": 1}, num_envs=1, seed=0)
    assert may_pass(caught.value) is passes
    assert "in Broken.__init__ (tests/surreal_like/env/samples.py:" in describe(caught.value)


def test_the_error_of_a_step_comes_back_with_its_origin() -> None:
    with counters(fails_at=2) as env:
        env.reset()
        env.step(np.zeros(3, np.int64))
        said = r"streams 0 to 1 failed: ValueError\('the arm is stuck'\), in Counter.step \(tests"
        with pytest.raises(SurrealError, match=said) as caught:
            env.step(np.zeros(3, np.int64))
        assert not may_pass(caught.value)
        assert "samples.py" in caught.value.__notes__[0]
        with pytest.raises(RunError, match="closed"):
            env.step(np.zeros(3, np.int64))


def test_a_worker_that_dies_is_named() -> None:
    with counters(fails_at=1, does="kill") as env:
        env.reset()
        with pytest.raises(RunError, match="streams 0 to 1 ended with exit code -9"):
            env.step(np.zeros(3, np.int64))


def test_a_worker_that_hangs_is_named_and_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    with counters() as env:
        env.reset()
        env._timeout_seconds = 0.1
        for worker in env._workers:
            worker.process.send_signal(signal.SIGSTOP)  # not even its threads go on
        monkeypatch.setattr("surreal_like.addons.workers.subprocess_vector.STOP_SECONDS", 0.2)
        with pytest.raises(RunError, match=r"gave no answer for 0\.2 seconds"):
            env.step(np.zeros(3, np.int64))
        assert all(worker.process.poll() is not None for worker in env._workers)


def test_signs_of_life_go_on_while_workers_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surreal_like.addons.workers.subprocess_vector._PULSE_SECONDS", 0.01)
    calls: list[int] = []
    config = {**COUNTER, "vector": "process", "workers": 1}
    env = make_vector_env(config, num_envs=2, seed=0, pulse=lambda: calls.append(len(calls)))
    assert isinstance(env, SubprocessVector)
    with contextlib.closing(env):
        # Importing and building takes longer than that.
        assert len(calls) > 2
        assert len(env._workers) == 1


def test_each_environment_may_have_a_worker() -> None:
    config = {**COUNTER, "vector": "process", "workers": 100}
    env = make_vector_env(config, num_envs=3, seed=0)
    assert isinstance(env, SubprocessVector)
    with contextlib.closing(env):
        assert [worker.streams for worker in env._workers] == [[0], [1], [2]]


def test_a_vector_that_is_forgotten_ends_its_workers() -> None:
    env = SubprocessVector(COUNTER, [1, 2], workers=2)
    processes = [worker.process for worker in env._workers]
    assert all(process.poll() is None for process in processes)
    del env
    assert all(process.poll() == 0 for process in processes)


@pytest.mark.slow
def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np\n"
        "from surreal_like.addons.workers.subprocess_vector import SubprocessVector\n"
        f"config = dict(env_name={COUNTER['env_name']!r}, env_args=dict(fails_at=1, does='hang'))\n"
        "env = SubprocessVector(config, [1, 2], workers=2)\n"
        "env.reset()\n"
        "print(*(worker.process.pid for worker in env._workers), flush=True)\n"
        "env.step(np.zeros(2, np.int64))\n"  # both workers hang in it
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        os.kill(parent.pid, signal.SIGKILL)
        assert until(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def test_streams_are_shared_out_and_ctrl_c_is_the_parents() -> None:
    with counters() as env:
        assert [worker.streams for worker in env._workers] == [[0, 1], [2]]
        for worker in env._workers:
            worker.process.send_signal(signal.SIGINT)
        env.reset()
        assert env.step(np.zeros(3, np.int64))[1].tolist() == [1, 1, 1]


def test_shared_arrays_do_not_overlap_and_are_seen_from_both_sides() -> None:
    memory = os.memfd_create("env")
    specs: tuple[Any, Any] = (
        {"a": {"type": "uint8", "dim": [3]}, "b": {"type": "float32", "dim": []}},
        {"type": "continuous", "dim": [2]},
    )
    mine, theirs = SharedBlock(memory, *specs, 5), SharedBlock(memory, *specs, 5)
    os.close(memory)
    names = ["action", "reward", "terminated", "truncated", "obs/a", "obs/b"]
    assert list(mine.columns) == names
    for number, name in enumerate(names, 1):
        mine.columns[name][:] = number
    for number, name in enumerate(names, 1):
        assert (theirs.columns[name] == theirs.columns[name].dtype.type(number)).all()
        assert theirs.columns[name].shape[0] == 5


numbers = st.sampled_from([np.float32, np.int64, np.uint8, np.bool_])


@given(
    st.dictionaries(st.text(max_size=3), st.tuples(numbers, st.lists(st.integers(0, 3)))),
    st.none() | st.lists(st.none() | st.dictionaries(st.text(max_size=3), st.floats(-9, 9))),
)
def test_info_survives_the_way(arrays: dict[str, Any], metrics: Any) -> None:
    rng = np.random.default_rng(0)
    info: dict[str, Any] = {
        key: rng.integers(0, 2, shape[:3]).astype(dtype)
        for key, (dtype, shape) in arrays.items()
        if key != "metrics"
    }
    if metrics is not None:
        info["metrics"] = metrics
    back = decode_info(encode_info(info))
    assert back.keys() == info.keys()
    for key, value in info.items():
        assert np.array_equal(back[key], value) if key != "metrics" else back[key] == value
        if key != "metrics":
            assert (back[key].dtype, back[key].shape) == (value.dtype, value.shape)
