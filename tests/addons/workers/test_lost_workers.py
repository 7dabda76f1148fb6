"""Workers of environments that end or hang: only their own streams are cut."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.errors import ConfigError, RunError
from surreal_like.addons.workers import subprocess_vector
from surreal_like.addons.workers.subprocess_vector import SubprocessVector, _Worker
from surreal_like.addons.workers.worker import Worker
from surreal_like.addons.workers.worker_channel import WorkerChannel
from surreal_like.data.episodes import CUT_SHORT
from surreal_like.data.timestep import StepType
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.row_writer import RowWriter

LENGTH = 5
SAMPLES = "tests.surreal_like.env.samples"
CONFIG = {"env_name": f"{SAMPLES}:Gated", "on_error": "restart", "max_env_restarts": 10**6}


class Thread:
    """A worker in a thread of this process; a kill closes its socket, between two steps."""

    def __init__(self, end: socket.socket, memory: int) -> None:
        self._end = end
        self._thread = threading.Thread(
            target=lambda: Worker(WorkerChannel(end), memory).serve(), daemon=True
        )
        self._thread.start()

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)

    def wait(self, timeout: float | None = None) -> int:
        self._thread.join(timeout)
        self._end.close()
        return -9


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts workers as threads, thousands of which cost little."""

    def spawn(streams: list[int], memory: int, life: int) -> _Worker:
        mine, its = socket.socketpair()
        process: Any = Thread(its, memory)
        return _Worker(process, WorkerChannel(mine), streams)

    monkeypatch.setattr(subprocess_vector, "_spawn", spawn)


@contextlib.contextmanager
def vector_of(
    num_envs: int, workers: int, config: dict[str, Any] | None = None, seconds: float = 60.0
) -> Iterator[SubprocessVector]:
    seeds = list(range(num_envs))
    given = {**CONFIG, **(config or {})}
    vector = SubprocessVector(given, seeds, workers=workers, timeout_seconds=seconds)
    with contextlib.closing(vector):
        yield vector


class Recorder:
    """Writes the rows of a vector into chunks, as an agent does."""

    def __init__(self, vector: SubprocessVector, *, leaves_out: bool, overlap: int) -> None:
        session = Config(BASE_CONFIG["session_config"])
        session.sender.flush_iteration = 4
        self.vector, self.chunks = vector, list[Chunk]()
        self.leaves_out, self.present_rows = leaves_out, 0
        if leaves_out:
            assert vector.leave_out()
        self.writer = RowWriter(
            vector.num_envs,
            obs_spec=vector.obs_spec,
            action_spec=vector.action_spec,
            settings=session.sender,
            overlap=overlap,
            send=self.chunks.append,
        )
        self.writer.begin(*vector.reset())

    def step(self) -> dict[str, Any]:
        actions = np.zeros(self.vector.num_envs, np.int64)
        self.writer.act(actions, {}, version=1, now=0.0, metrics={})
        result = self.vector.step(actions)
        self.writer.observe(*result)
        info: dict[str, Any] = result[4]
        return info

    def rows(self) -> dict[int, list[tuple[int, float]]]:
        """Returns (kind, observation) of the rows of each stream, in order, each once."""
        self.writer.end({}, final=True)
        found: dict[int, list[tuple[int, float]]] = {}
        for chunk in self.chunks:
            kinds, obs = chunk.columns["step_type"], chunk.columns["obs"]
            for place, stream in enumerate(chunk.streams):
                pairs = zip(
                    kinds[: chunk.length, place], obs[: chunk.length, place, 0], strict=True
                )
                found.setdefault(stream, []).extend((int(k), float(o)) for k, o in pairs)
        return found


def episodes_of(rows: list[tuple[int, float]]) -> list[list[float]]:
    """Returns the observations of each complete episode; checks that every row belongs to one."""
    episodes: list[list[float]] = []
    for kind, obs in rows:
        if kind == StepType.FIRST:
            episodes.append([])
        episodes[-1].append(obs)
        if kind == StepType.LAST:
            episodes[-1].append(-1.0)
    return [each[:-1] for each in episodes if each[-1] == -1.0]


def hunt(kills: int, *, leaves_out: bool, overlap: int, seed: int) -> None:
    """Kills workers at random steps, several at once; the last one is never killed."""
    rng = np.random.default_rng(seed)
    with vector_of(8, 4, {"info_keys": ["seed"]}) as vector:
        recorder, killed, cut = Recorder(vector, leaves_out=leaves_out, overlap=overlap), 0, 0
        summaries: list[Any] = []
        while killed < kills:
            for place in range(3):
                worker = vector._workers[place]
                if rng.random() < 0.3 and not worker.begins and killed < kills:
                    cut += int((~vector.ended[worker.streams]).sum())
                    worker.process.kill()
                    killed += 1
            for _ in range(int(rng.integers(1, 4))):
                recorder.step()
                summaries += recorder.writer.finished
        while vector._left_out:
            recorder.step()
            summaries += recorder.writer.finished
        assert vector.env_restarts == kills
    rows = recorder.rows()
    whole, short = list(range(LENGTH + 1)), 0
    for stream, each in rows.items():
        assert sum(kind == StepType.FIRST for kind, _ in each) >= 1
        for episode in episodes_of(each):
            if episode != whole:
                # Cut at its last observation, which is there again.
                assert episode == [*range(len(episode) - 1), len(episode) - 2]
                assert stream % 8 < 6, "a sibling was cut"
                short += 1
    assert short == cut == sum(CUT_SHORT in each["metrics"] for each in summaries)
    uncut = [each for each in summaries if CUT_SHORT not in each["metrics"]]
    assert {(each["length"], each["return"]) for each in uncut} == {(LENGTH, float(LENGTH))}
    finished = [each for chunk in recorder.chunks for each in chunk.finished]
    assert len(finished) == len(summaries)
    steps = sum(kind != StepType.FIRST for each in rows.values() for kind, _ in each)
    assert sum(chunk.env_steps for chunk in recorder.chunks) == steps
    # Siblings never missed a step.
    assert len({len(each) for stream, each in rows.items() if stream % 8 >= 6}) == 1


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("overlap", [0, 1])
@pytest.mark.parametrize("leaves_out", [True, False])
def test_of_many_kills_each_cuts_its_own_streams_and_all_accounts_are_exact(
    leaves_out: bool, overlap: int
) -> None:
    hunt(50, leaves_out=leaves_out, overlap=overlap, seed=overlap)


@pytest.mark.slow
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("leaves_out", [True, False])
def test_of_a_thousand_kills_each_cuts_its_own_streams(leaves_out: bool) -> None:
    hunt(1000, leaves_out=leaves_out, overlap=0, seed=7)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("overlap", [0, 1])
def test_without_faults_chunks_are_the_same(overlap: int) -> None:
    found = []
    for leaves_out in (True, False):
        with vector_of(4, 2, {"info_keys": ["seed"]}) as vector:
            recorder = Recorder(vector, leaves_out=leaves_out, overlap=overlap)
            for _ in range(23):
                recorder.step()
            recorder.writer.end({}, final=True)
            found.append(recorder.chunks)
    for one, other in zip(*found, strict=True):
        assert (one.streams, one.env_steps, one.tail) == (
            other.streams,
            other.env_steps,
            other.tail,
        )
        assert one.finished == other.finished
        assert one.columns.keys() == other.columns.keys()
        for name, column in one.columns.items():
            assert column.dtype == other.columns[name].dtype
            assert np.array_equal(column, other.columns[name])


def advance(vector: SubprocessVector) -> tuple[Any, ...]:
    obs, reward, terminated, truncated, info = vector.step(np.zeros(vector.num_envs, np.int64))
    return obs[:, 0].tolist(), reward.tolist(), terminated.tolist(), truncated.tolist(), info


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_siblings_go_on_while_a_worker_is_made_anew(
    tmp_path: Path, how: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    config = {"env_args": {"gate": str(gate)}, "info_keys": ["seed"]}
    with vector_of(4, 2, config) as vector:
        assert vector.leave_out()
        seeds = vector.reset()[1]["seed"].tolist()
        assert advance(vector)[0] == [1] * 4
        gate.unlink()
        lost = vector._workers[0]
        vector._timeout_seconds = 0.1
        lost.process.send_signal(how)
        obs, reward, terminated, truncated, info = advance(vector)
        assert (obs, reward) == ([1, 1, 2, 2], [0, 0, 1, 1])
        assert (terminated, truncated) == ([False] * 4, [True, True, False, False])
        assert info["metrics"] == [{CUT_SHORT: 1}, {CUT_SHORT: 1}, None, None]
        assert "absent_streams" not in info
        vector._workers[0].deadline += 600.0
        for count in (3, 4, 5, 0, 1):
            obs, reward, _, truncated, info = advance(vector)
            assert (obs[:2], obs[2:], reward[:2]) == ([1, 1], [count, count], [0, 0])
            assert (truncated, info["absent_streams"].tolist()) == ([True, True, False, False],) * 2
        gate.touch()
        steps = 0
        while "absent_streams" in (outcome := advance(vector))[4]:
            steps += 1
        assert outcome[0][:2] == [0, 0]
        assert (outcome[1][:2], outcome[3]) == ([0, 0], [False] * 4)
        assert not set(outcome[4]["seed"][:2].tolist()) & set(seeds)
        assert advance(vector)[0][:2] == [1, 1]
        assert vector.env_restarts == 1
        assert lost.process.poll() is not None
        assert vector._workers[1].process.poll() is None
    assert (
        caplog.text.count("an environment was made anew after an error: the environment wor") == 1
    )


@pytest.mark.usefixtures("threads")
def test_resets_that_are_lost_are_made_again_where_streams_are_not_left_out() -> None:
    """One of the streams has to be reset in the step in which the worker is lost."""
    with vector_of(2, 1) as vector:
        vector.reset()
        vector.ended = vector.ended | [True, False]
        vector._block.columns["truncated"][0] = True
        vector._workers[0].process.kill()
        obs, _, _, truncated, info = advance(vector)
        assert (obs, truncated) == ([0, 0], [False, True])
        assert info["metrics"] == [None, {CUT_SHORT: 1}]
        assert advance(vector)[0] == [1, 0]


@pytest.mark.usefixtures("threads")
def test_a_reset_of_all_waits_for_lost_workers() -> None:
    with vector_of(2, 2) as vector:
        vector.leave_out()
        vector.reset()
        for worker in vector._workers:
            worker.process.kill()
        assert vector.reset()[0].tolist() == [[0], [0]]
        # With none left there is no row to go on with, so the step waits.
        for worker in vector._workers:
            worker.process.kill()
        assert advance(vector)[3] == [True, True]
        assert advance(vector)[0] == [0, 0] or "absent_streams" in advance(vector)[4]
        assert vector.env_restarts == 4


@pytest.mark.usefixtures("threads")
def test_too_many_lost_workers_end_all() -> None:
    with vector_of(2, 2, {"max_env_restarts": 1}) as vector:
        vector.reset()
        workers = list(vector._workers)
        for worker in workers:
            worker.process.kill()
        with pytest.raises(RunError, match="streams 1 to 1 ended") as caught:
            advance(vector)
        assert "more than 1 restarts" in caught.value.__notes__[0]
        with pytest.raises(RunError, match="closed"):
            advance(vector)


@pytest.mark.usefixtures("threads")
def test_a_new_worker_that_cannot_work_is_an_error_of_its_own(tmp_path: Path) -> None:
    fails = tmp_path / "fails"
    with vector_of(2, 2, {"env_args": {"fails": str(fails)}}) as vector:
        vector.reset()
        fails.touch()
        vector._workers[0].process.kill()
        advance(vector)
        with pytest.raises(ConfigError, match="no such arm"):
            advance(vector)


@pytest.mark.slow
def test_workers_leave_no_descriptor_behind() -> None:

    def play() -> int:
        with vector_of(2, 2) as vector:
            vector.reset()
            vector._workers[0].process.kill()
            advance(vector)
            advance(vector)
        # The map of the memory has one of its own while there is the vector.
        del vector
        return len(os.listdir("/proc/self/fd"))

    assert play() == play()
