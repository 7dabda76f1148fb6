"""N Envs in worker processes, for environments that are slow: they step at the same time.

Observations, rewards and actions go through shared memory; short frames on a socket request a step
and report its end. Workers end with their parent, however it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import session.errors
import surreal_like.errors
from session import nest
from session.errors import ConfigError, RunError, SurrealError
from surreal_like.addons.workers.worker_channel import (
    MAP,
    OK,
    RESET,
    START,
    STEP,
    SharedBlock,
    WorkerChannel,
    decode_info,
)
from surreal_like.data.episodes import CUT_SHORT
from surreal_like.data.spec import compare, plain
from surreal_like.env.environment import Info, Pulse, VectorStep, no_pulse
from surreal_like.env.restarts import Restarts
from surreal_like.env.task_feed import TaskFeed
from surreal_like.env.vector_base import CheckedVector, Flags

# Time for workers to close their environments before they are killed.
STOP_SECONDS = 5.0

# Time between two pulses while waiting for a worker.
_PULSE_SECONDS = 0.1

# Numeric libraries would start one thread per core in every worker.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class SubprocessVector(CheckedVector):
    """Steps one Env per seed, in `workers` processes with a share of the Envs each.

    workers: None for `env_config.workers`, without which there is one per processor, at least two;
        at most one per stream.
    timeout_seconds: longest time of a worker for the start or a step of each of its Envs.
    pulse: called while waiting for workers; an error that it raises ends all of them.
    feed: progress and task of the run, which go to a worker before it resets one of its Envs.

    With `on_error: restart` a worker that ends or hangs is replaced. Its streams are truncated at
    their last observations, and their next rows are the first ones of the new worker. The other
    workers wait for it, unless `leave_out` was called.

    Raises the SurrealErrors of its environments as if they were built and stepped here. Any other
    error is a RunError if it may pass (:func:`session.errors.may_pass`), else a SurrealError, with
    the error and its place in the message. RunError, too, when a worker ends or hangs and is not
    replaced.
    """

    def __init__(
        self,
        env_config: Mapping[str, Any],
        seeds: Sequence[int],
        *,
        evaluation: bool = False,
        workers: int | None = None,
        timeout_seconds: float = 120.0,
        pulse: Pulse = no_pulse,
        feed: TaskFeed | None = None,
    ) -> None:
        self.num_envs = len(seeds)
        self._pulse = pulse
        # Those of all workers, which make the environments anew.
        self.restarts = Restarts(env_config, seeds)
        self._leaves_out = False
        self._timeout_seconds = timeout_seconds
        self._given = {"env_config": plain(env_config), "evaluation": evaluation, "path": sys.path}
        # What workers map the memory by; empty until the first ones have told their specs.
        self._specs = b""
        workers = workers or env_config.get("workers") or max(2, os.cpu_count() or 1)
        count = min(self.num_envs, workers)
        self._memory = os.memfd_create("surreal-like-env", os.MFD_CLOEXEC)
        self._workers: list[_Worker] = []
        # Only this process holds the write end: its end, however it comes, closes the pipe.
        self._life, life_write = os.pipe()
        kept = [self._life, life_write, self._memory]
        self._finalizer = weakref.finalize(self, _stop, self._workers, kept)
        try:
            for share in np.array_split(np.arange(self.num_envs), count):
                self._workers.append(self._spawn(share.tolist()))
            self._places = range(count)
            specs = self._start(seeds)
        except BaseException:
            self.close()
            raise
        keys = env_config.get("info_keys") or ()
        feed = feed or TaskFeed(env_config, evaluation=evaluation)
        super().__init__(self.num_envs, *specs, metadata={}, info_keys=keys, feed=feed)
        # A row of zeros of each key of `info_keys`.
        self._zeros: dict[str, npt.NDArray[Any]] = dict.fromkeys(keys, np.zeros(1, np.float32))

    def leave_out(self) -> bool:
        self._leaves_out = self.restarts.wanted and len(self._workers) > 1
        return self._leaves_out

    def _reset(self) -> tuple[nest.Nest, Info]:
        lost: Sequence[int] = self._places
        while lost:
            self._admit(all)
            lost = self._ask(RESET, self._news, lost)
        return self._observations(), self._info(np.zeros(self.num_envs, np.float32))

    def _step(self, actions: npt.NDArray[Any], ended: Flags) -> VectorStep:
        columns, before = self._block.columns, ended
        np.copyto(columns["action"], actions)
        news = self._news_at_ends if before.any() else _no_payload
        self._admit(any if self._leaves_out else all)
        lost = self._ask(STEP, news, self._places)
        missing = self._missing(before, news, lost) if lost or self._left_out else None
        reward = columns["reward"].copy()
        terminated, truncated = columns["terminated"].copy(), columns["truncated"].copy()
        info = self._info(reward)
        if missing is not None:
            self._mark(missing, before, info)
        return self._observations(missing), reward, terminated, truncated, info

    @property
    def _left_out(self) -> bool:
        return any(worker.begins for worker in self._workers)

    def _missing(
        self,
        before: npt.NDArray[np.bool_],
        news: Callable[[_Worker], bytes],
        lost: Sequence[int],
    ) -> npt.NDArray[np.bool_]:
        """Returns the streams without an outcome, bool [N], and marks them as truncated.

        The memory says so, too, by which the next step of a new worker resets them.

        before: [N], streams that had to be reset; unless they may be left out, they are.
        lost: places of workers that were lost in this step.
        """
        missing = np.zeros(self.num_envs, np.bool_)
        while lost:
            for place in lost:
                streams = self._workers[place].streams
                missing[streams] = self._leaves_out or ~before[streams]
            resets = [] if self._leaves_out else [p for p in lost if self._needs_reset(p, before)]
            if resets:
                self._admit(all)
            lost = self._ask(STEP, news, resets)
        for worker in self._workers:
            missing[worker.streams] |= bool(worker.begins)
        columns = self._block.columns
        columns["reward"][missing], columns["terminated"][missing] = 0.0, False
        columns["truncated"][missing] = True
        return missing

    def _needs_reset(self, place: int, before: npt.NDArray[np.bool_]) -> bool:
        return bool(before[self._workers[place].streams].any())

    def _mark(
        self, missing: npt.NDArray[np.bool_], before: npt.NDArray[np.bool_], info: Info
    ) -> None:
        """Marks in the info which episodes were cut short, and which streams are absent."""
        absent = missing & before
        if absent.any():
            info["absent_streams"] = absent
        cut = np.flatnonzero(missing & ~before).tolist()
        if cut:
            self._add_metric(info, cut, CUT_SHORT, [1] * len(cut))

    def _news(self, worker: _Worker) -> bytes:
        """Returns what is new for a worker that resets an Env; empty if nothing is."""
        if worker.revision == self.feed.revision:
            return b""
        worker.revision = self.feed.revision
        return _as_json(self.feed.state())

    def _news_at_ends(self, worker: _Worker) -> bytes:
        return self._news(worker) if self.ended[worker.streams].any() else b""

    def close(self) -> None:
        """Ends the workers and waits for them, a few seconds at most."""
        self._finalizer()

    def _start(self, seeds: Sequence[int]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Builds the environments in all workers at once, and maps the memory."""

        def start(worker: _Worker) -> bytes:
            return self._start_of(worker, [seeds[stream] for stream in worker.streams])

        self._ask(START, start, self._places)
        replies = [json.loads(worker.answer) for worker in self._workers]
        obs_spec, action_spec = replies[0]["obs_spec"], replies[0]["action_spec"]
        for reply in replies[1:]:
            compare(reply["obs_spec"], obs_spec, "obs_spec")
            compare(reply["action_spec"], action_spec, "action_spec")
        self._block = SharedBlock(self._memory, obs_spec, action_spec, self.num_envs)
        specs = json.dumps(replies[0]).encode()
        self._ask(MAP, lambda worker: specs, self._places)
        self._specs = specs
        return obs_spec, action_spec

    def _start_of(self, worker: _Worker, seeds: Sequence[int]) -> bytes:
        """Returns what a worker builds its environments of."""
        place = {"seeds": list(seeds), "first": worker.streams[0], "num_envs": self.num_envs}
        return _as_json({**self._given, **place})

    def _ask(
        self, kind: bytes, payload: Callable[[_Worker], bytes], places: Sequence[int]
    ) -> list[int]:
        """Sends one frame to workers, then waits for all answers; those that begin are left out.

        A worker that is lost is replaced; returns the places of these. After any error all workers
        end, because answers left unread would be read as those of the next step.
        """
        self._check_open()
        asked = [each for each in (self._workers[p] for p in places) if not each.begins]
        lost: dict[_Worker, _WorkerLostError] = {}
        try:
            for worker in asked:
                try:
                    worker.send(kind, payload(worker))
                except _WorkerLostError as error:
                    lost[worker] = error
            for worker in asked:
                try:
                    if worker not in lost:
                        worker.answer = self._answer(worker)
                        self._read_info(worker, kind)
                except _WorkerLostError as error:
                    lost[worker] = error
            return [self._replace(worker, error) for worker, error in lost.items()]
        except BaseException:
            self.close()
            raise
        finally:
            # Their tracebacks refer to this frame: a cycle would keep the memory mapped.
            lost.clear()

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise RunError("the environment workers have ended: this VectorEnv is closed")

    def _read_info(self, worker: _Worker, kind: bytes) -> None:
        """Decodes the info of a step; counts restarts, too many of which raise the error."""
        if kind not in (RESET, STEP):
            return
        worker.info = decode_info(worker.answer)
        for described in worker.info.pop("restarts", ()):
            self.restarts.add(worker.error(described))

    def _answer(self, worker: _Worker) -> bytes:
        """Returns the answer of a worker; calls the pulse while it waits."""
        if not worker.link.wait(_PULSE_SECONDS):
            deadline = time.monotonic() + self._seconds_for(worker) - _PULSE_SECONDS
            self._pulse()
            while not worker.link.wait(_PULSE_SECONDS):
                if time.monotonic() > deadline:
                    raise worker.silent(self._seconds_for(worker))
                self._pulse()
        return worker.receive()

    def _seconds_for(self, worker: _Worker) -> float:
        # Workers step at the same time, each its own streams one after the other.
        return self._timeout_seconds * len(worker.streams)

    def _spawn(self, streams: list[int]) -> _Worker:
        worker = _spawn(streams, self._memory, self._life)
        # The longest pause between the parts of one frame.
        worker.link.socket.settimeout(self._timeout_seconds)
        return worker

    def _replace(self, worker: _Worker, error: SurrealError) -> int:
        """Starts a worker in the place of one that is lost; raises the error if that is unwanted.

        The new one writes the same memory, so it begins after the end of the old one.
        """
        if not self._specs:
            raise error
        self.restarts.add(error)
        worker.kill()
        place = self._workers.index(worker)
        new = self._workers[place] = self._spawn(worker.streams)
        new.begins, new.deadline = [START, MAP], time.monotonic() + self._seconds_for(new)
        seeds = [self.restarts.seed_of(stream) for stream in new.streams]
        # If it is lost already, its answer is the end of its socket.
        with contextlib.suppress(_WorkerLostError):
            new.send(START, self._start_of(new, seeds))
        return place

    def _admit(self, enough: Callable[[Iterable[bool]], bool]) -> None:
        """Takes new workers on that have built their environments.

        enough: of the workers that are ready, whether they are enough to go on: `any` or `all`.
        """
        self._check_open()
        try:
            while starting := [each for each in self._workers if each.begins]:
                for each in starting:
                    self._begin(each)
                if enough(not each.begins for each in self._workers):
                    return
                self._pulse()
                starting[0].link.wait(_PULSE_SECONDS)
        except BaseException:
            self.close()
            raise

    def _begin(self, worker: _Worker) -> None:
        """Takes a new worker a step further if it has answered; replaces it if it is lost."""
        try:
            while worker.begins and worker.link.wait(0.0):
                worker.receive()
                if worker.begins.pop(0) == START:
                    worker.send(MAP, self._specs)
            if worker.begins and time.monotonic() > worker.deadline:
                raise worker.silent(self._seconds_for(worker))
        except SurrealError as error:
            # Any other kind is an error of its own, such as a wrong setting, which would recur.
            if type(error) not in (_WorkerLostError, RunError, SurrealError):
                raise
            self._replace(worker, error)

    def _observations(self, missing: npt.NDArray[np.bool_] | None = None) -> nest.Nest:
        """Returns the observations; of missing streams the last ones, again."""
        copies = {
            path: column.copy()
            for path, column in self._block.columns.items()
            if path == "obs" or path.startswith("obs/")
        }
        if missing is not None:
            newest = nest.flatten(self.newest, "obs")
            for path, column in copies.items():
                column[missing] = newest[path][missing]
        return nest.unflatten(copies, "obs")

    def _info(self, rewards: npt.NDArray[Any]) -> Info:
        """Returns one info of all streams; keys that some workers lack are filled in."""
        merged: Info = {}
        workers = self._workers
        for key in dict.fromkeys((*self._zeros, *(key for each in workers for key in each.info))):
            if key == "metrics":
                parts = [each.info.get(key) or [None] * len(each.streams) for each in workers]
                merged[key] = [metrics for part in parts for metrics in part]
                continue
            if key in self._zeros:
                given = next((each.info[key] for each in workers if key in each.info), None)
                if given is not None:
                    self._zeros[key] = np.zeros_like(given[:1])
                others = np.repeat(self._zeros[key], self.num_envs, axis=0)
            else:
                others = np.zeros(self.num_envs, np.bool_) if key == "life_lost" else rewards
            parts = [each.info.get(key, others[each.streams]) for each in workers]
            merged[key] = np.concatenate(parts)
        return merged


class _WorkerLostError(RunError):
    """A worker has ended, or hangs."""


@dataclass(slots=True, eq=False)
class _Worker:
    """The parent's side of one worker."""

    process: subprocess.Popen[bytes]
    link: WorkerChannel
    streams: list[int]
    # Of the feed that it has got.
    revision: int = 0
    # The newest one, and the info in it.
    answer: bytes = b""
    info: Info = field(default_factory=dict)
    # Frames of the start of a new worker that are not answered yet, and the time for that.
    begins: list[bytes] = field(default_factory=list)
    deadline: float = 0.0

    def send(self, kind: bytes, payload: bytes) -> None:
        try:
            self.link.send(kind, payload)
        except TimeoutError as error:
            raise self.silent(self.link.socket.gettimeout() or 0.0) from error
        except OSError as error:
            raise self.lost(f"ended with exit code {self._exit_code()}") from error

    def receive(self) -> bytes:
        try:
            kind, payload = self.link.receive()
        except EOFError as error:
            raise self.lost(f"ended with exit code {self._exit_code()}") from error
        except TimeoutError as error:
            raise self.silent(self.link.socket.gettimeout() or 0.0) from error
        if kind == OK:
            return payload
        raise self.error(json.loads(payload))

    def kill(self) -> None:
        """Ends the process, and waits for its end."""
        self.link.socket.close()
        self.process.kill()
        try:
            self.process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise self.failure("cannot be killed") from error

    def _exit_code(self) -> int | None:
        try:
            return self.process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            return None

    def _describe(self, what: str) -> str:
        first, last = self.streams[0], self.streams[-1]
        return f"the environment worker of streams {first} to {last} {what}"

    def failure(self, what: str) -> RunError:
        """Returns a RunError that names the worker's streams and the failure."""
        return RunError(self._describe(what))

    def lost(self, what: str) -> _WorkerLostError:
        """Returns the error of a worker that has ended or hangs."""
        return _WorkerLostError(self._describe(what))

    def silent(self, seconds: float) -> _WorkerLostError:
        """Returns the error of a worker that hangs."""
        return self.lost(f"gave no answer for {seconds:g} seconds")

    def error(self, described: Mapping[str, Any]) -> SurrealError:
        """Returns the worker's error, of the same class if that is a SurrealError.

        Another error keeps its kind: one that would recur ends the run as it does without workers.
        """
        name, message = described["type"], described["message"]
        for module in (surreal_like.errors, session.errors):
            kind = getattr(module, name, None)
            if isinstance(kind, type) and issubclass(kind, SurrealError):
                return kind(message)
        error: SurrealError = self.failure(f"failed: {message}")
        if not described["may_pass"]:
            error = SurrealError(str(error))
        error.add_note(described["traceback"])
        return error


def _spawn(streams: list[int], memory: int, life: int) -> _Worker:
    mine, its = socket.socketpair()
    root = str(Path(surreal_like.errors.__file__).parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    descriptors = (its.fileno(), memory, life)
    try:
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "surreal_like.addons.workers.worker"),
                *(str(descriptor) for descriptor in descriptors),
            ],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)},
        )
    except BaseException:
        mine.close()
        raise
    finally:
        its.close()
    return _Worker(process, WorkerChannel(mine), streams)


def _stop(workers: list[_Worker], descriptors: list[int]) -> None:
    """Ends all workers: closes their sockets, and kills those that still run after 5 s."""
    for worker in workers:
        worker.link.socket.close()
    deadline = time.monotonic() + STOP_SECONDS
    for worker in workers:
        try:
            worker.process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
    for descriptor in descriptors:
        os.close(descriptor)


def _no_payload(worker: _Worker) -> bytes:
    return b""


def _as_json(value: Any) -> bytes:
    try:
        return json.dumps(value).encode()
    except TypeError as error:
        raise ConfigError(f"env_config cannot be sent to worker processes: {error}") from error
