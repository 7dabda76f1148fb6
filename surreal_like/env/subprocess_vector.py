"""N Envs in worker processes, for environments that are slow: they step at the same time.

Observations, rewards and actions go through shared memory; short frames on a socket request a step
and report its end. Workers end with their parent, however it ends.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import session.errors
import surreal_like.errors
from session import nest
from session.errors import ConfigError, RunError, SurrealError
from session.wire.frames import LENGTH_BYTES, FrameReader, pack_frame
from surreal_like.data.spec import compare, parse_action_spec, parse_obs_spec, plain
from surreal_like.env.actions import ActionValidator
from surreal_like.env.base import Info, Pulse, VectorEnv, VectorStep, no_pulse
from surreal_like.env.feed import RunFeed
from surreal_like.env.restarts import restarts_of

# Kinds of frames: the first four are commands, the others answers.
START, MAP, RESET, STEP, OK, ERROR = b"s", b"m", b"r", b"t", b"o", b"e"
_FRAME_BYTES = (1 << 32) - 1
_CHUNK_BYTES = 1 << 16


class WorkerLink:
    """Frames over a stream socket: one byte of kind, then a payload."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._reader = FrameReader(_FRAME_BYTES)

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        """Sends one frame."""
        self.socket.sendall(pack_frame(kind + payload))

    def wait(self, seconds: float) -> bool:
        """Waits until a frame begins to arrive or the peer is gone; False after ``seconds``."""
        poller = select.poll()
        poller.register(self.socket, select.POLLIN)
        return bool(poller.poll(1000 * seconds))

    def receive(self) -> tuple[bytes, bytes]:
        """Waits for one frame and returns (kind, payload).

        Raises EOFError when the peer is gone, TimeoutError after the socket's timeout.
        """
        while (frame := self._reader.next()) is None:
            try:
                part = self.socket.recv(_CHUNK_BYTES)
            except ConnectionResetError:
                part = b""
            if not part:
                raise EOFError("the other side is gone")
            self._reader.feed(part)
        return frame[:1], frame[1:]


class SharedBlock:
    """The arrays of one vector step, [N, ...] each, in memory shared by all workers.

    columns: `action`, `reward`, `terminated`, `truncated`, and `obs` or `obs/...`.
    """

    def __init__(
        self,
        descriptor: int,
        obs_spec: Mapping[str, Any],
        action_spec: Mapping[str, Any],
        num_envs: int,
    ) -> None:
        layout = {
            "action": parse_action_spec(action_spec).array.zeros(),
            "reward": np.zeros((), np.float32),
            "terminated": np.zeros((), np.bool_),
            "truncated": np.zeros((), np.bool_),
        }
        specs = nest.flatten(parse_obs_spec(obs_spec), "obs")
        layout.update({path: spec.zeros() for path, spec in specs.items()})
        sizes = {name: _align(num_envs * one.nbytes) for name, one in layout.items()}
        size_bytes = max(sum(sizes.values()), mmap.PAGESIZE)
        if os.fstat(descriptor).st_size < size_bytes:
            os.ftruncate(descriptor, size_bytes)
        memory = mmap.mmap(descriptor, size_bytes)
        self.columns: dict[str, npt.NDArray[Any]] = {}
        offset = 0
        for name, one in layout.items():
            shape = (num_envs, *one.shape)
            self.columns[name] = np.ndarray(shape, one.dtype, memory, offset)
            offset += sizes[name]


def encode_info(info: Info) -> bytes:
    """Encodes the info of a vector step; no bytes for an empty one."""
    if not info:
        return b""
    arrays = {key: value for key, value in info.items() if isinstance(value, np.ndarray)}
    header = {
        "arrays": [[key, array.dtype.str, array.shape] for key, array in arrays.items()],
        "metrics": info.get("metrics"),
        "restarts": info.get("restarts"),
    }
    text = json.dumps(header, default=float).encode()
    rows = [np.ascontiguousarray(array).tobytes() for array in arrays.values()]
    return b"".join([pack_frame(text), *rows])


def decode_info(data: bytes) -> Info:
    """Returns the info that `encode_info` encoded."""
    if not data:
        return {}
    offset = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
    header = json.loads(data[LENGTH_BYTES:offset])
    names = ("metrics", "restarts")
    info: Info = {name: header[name] for name in names if header[name] is not None}
    for key, dtype, shape in header["arrays"]:
        count = int(np.prod(shape))
        info[key] = np.frombuffer(data, dtype, count, offset).reshape(shape)
        offset += info[key].nbytes
    return info


def _align(size_bytes: int) -> int:
    return -(-size_bytes // 64) * 64


# Time for workers to close their environments before they are killed.
STOP_SECONDS = 5.0

# Time between two pulses while waiting for a worker.
_PULSE_SECONDS = 0.1

# Numeric libraries would start one thread per core in every worker.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class SubprocessVector(VectorEnv):
    """Steps one Env per seed, in `workers` processes with a share of the Envs each.

    workers: None for one per processor, at least two; at most one per stream.
    timeout_seconds: longest time of a worker for the start or a step of each of its Envs.
    pulse: called while waiting for workers; an error that it raises ends all of them.
    feed: progress and task of the run, which go to a worker before it resets one of its Envs.

    Raises the SurrealErrors of its environments as if they were built and stepped here. Any other
    error is a RunError if it may pass (:func:`session.errors.may_pass`), else a SurrealError, with
    the error and its place in the message. RunError, too, when a worker ends or hangs.
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
        feed: RunFeed | None = None,
    ) -> None:
        self.num_envs = len(seeds)
        self._pulse = pulse
        self._feed = feed or RunFeed(env_config, evaluation=evaluation)
        # Those of all workers, which make the environments anew.
        self._restarts = restarts_of(env_config, seeds)
        self._timeout_seconds = timeout_seconds
        count = min(self.num_envs, workers or max(2, os.cpu_count() or 1))
        self._memory = os.memfd_create("surreal-like-env", os.MFD_CLOEXEC)
        self._workers: list[_Worker] = []
        # Only this process holds the write end: its end, however it comes, closes the pipe.
        life_read, life_write = os.pipe()
        self._finalizer = weakref.finalize(self, _stop, self._workers, [life_write, self._memory])
        try:
            for share in np.array_split(np.arange(self.num_envs), count):
                self._workers.append(_spawn(share.tolist(), self._memory, life_read))
            for worker in self._workers:
                # The longest pause between the parts of one frame.
                worker.link.socket.settimeout(timeout_seconds)
            specs = self._start(env_config, seeds, evaluation)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(life_read)
        self.obs_spec, self.action_spec = specs
        self._validate_actions = ActionValidator(self.action_spec, (self.num_envs,))
        self._ended = np.zeros(self.num_envs, np.bool_)

    def reset(self) -> tuple[nest.Nest, Info]:
        """Resets every Env."""
        self._ended = np.zeros(self.num_envs, np.bool_)
        feeds = [self._news(worker) for worker in self._workers]
        infos = self._infos(self._ask(RESET, feeds))
        rewards = np.zeros(self.num_envs, np.float32)
        return self._observations(), self._info(infos, rewards)

    def step(self, actions: npt.NDArray[Any]) -> VectorStep:
        """Steps every Env, or resets it where its last step ended an episode."""
        columns = self._block.columns
        np.copyto(columns["action"], self._validate_actions(actions, self._ended))
        feeds = None
        if self._ended.any():
            feeds = [
                self._news(worker) if self._ended[worker.streams].any() else b""
                for worker in self._workers
            ]
        infos = self._infos(self._ask(STEP, feeds))
        reward = columns["reward"].copy()
        terminated, truncated = columns["terminated"].copy(), columns["truncated"].copy()
        self._ended = terminated | truncated
        return self._observations(), reward, terminated, truncated, self._info(infos, reward)

    @property
    def env_restarts(self) -> int:
        return 0 if self._restarts is None else self._restarts.count

    def _infos(self, replies: Sequence[bytes]) -> list[Info]:
        """Decodes the infos of all workers; counts restarts, too many of which raise the error."""
        infos = [decode_info(reply) for reply in replies]
        for info, worker in zip(infos, self._workers, strict=True):
            for described in info.pop("restarts", ()):
                if self._restarts is not None:
                    self._restarts.add(worker.error(described))
        return infos

    def _news(self, worker: _Worker) -> bytes:
        """Returns what is new for a worker that resets an Env; empty if nothing is."""
        if worker.revision == self._feed.revision:
            return b""
        worker.revision = self._feed.revision
        return _as_json(self._feed.state())

    def close(self) -> None:
        """Ends the workers and waits for them, a few seconds at most."""
        self._finalizer()

    def _start(
        self, env_config: Mapping[str, Any], seeds: Sequence[int], evaluation: bool
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Builds the environments in all workers at once, and maps the memory."""
        starts = []
        for worker in self._workers:
            start = {
                "env_config": plain(env_config),
                "seeds": [seeds[stream] for stream in worker.streams],
                "first": worker.streams[0],
                "num_envs": self.num_envs,
                "evaluation": evaluation,
                "path": sys.path,
            }
            starts.append(_as_json(start))
        replies = [json.loads(reply) for reply in self._ask(START, starts)]
        obs_spec, action_spec = replies[0]["obs_spec"], replies[0]["action_spec"]
        for reply in replies[1:]:
            compare(reply["obs_spec"], obs_spec, "obs_spec")
            compare(reply["action_spec"], action_spec, "action_spec")
        self._block = SharedBlock(self._memory, obs_spec, action_spec, self.num_envs)
        self._ask(MAP, [json.dumps(replies[0]).encode()] * len(self._workers))
        return obs_spec, action_spec

    def _ask(self, kind: bytes, payloads: Sequence[bytes] | None = None) -> list[bytes]:
        """Sends one frame to every worker, then waits for all answers.

        After an error all workers end, because answers left unread would be read as those of the
        next step.
        """
        if not self._finalizer.alive:
            raise RunError("the environment workers have ended: this VectorEnv is closed")
        try:
            for index, worker in enumerate(self._workers):
                worker.send(kind, payloads[index] if payloads else b"")
            return [self._answer(worker) for worker in self._workers]
        except BaseException:
            self.close()
            raise

    def _answer(self, worker: _Worker) -> bytes:
        """Returns the answer of a worker; calls the pulse while it waits."""
        if not worker.link.wait(_PULSE_SECONDS):
            # Workers step at the same time, each its own streams one after the other.
            allowed = self._timeout_seconds * len(worker.streams)
            deadline = time.monotonic() + allowed - _PULSE_SECONDS
            self._pulse()
            while not worker.link.wait(_PULSE_SECONDS):
                if time.monotonic() > deadline:
                    raise worker.failure(f"gave no answer for {allowed:g} seconds")
                self._pulse()
        return worker.receive()

    def _observations(self) -> nest.Nest:
        copies = {
            path: column.copy()
            for path, column in self._block.columns.items()
            if path == "obs" or path.startswith("obs/")
        }
        return nest.unflatten(copies, "obs")

    def _info(self, infos: Sequence[Info], rewards: npt.NDArray[Any]) -> Info:
        """Returns one info of all streams; keys that some workers lack are filled in."""
        merged: Info = {}
        for key in dict.fromkeys(key for info in infos for key in info):
            if key == "metrics":
                rows = zip(infos, self._workers, strict=True)
                parts = [info.get(key) or [None] * len(worker.streams) for info, worker in rows]
                merged[key] = [metrics for part in parts for metrics in part]
            else:
                others = np.zeros(self.num_envs, np.bool_) if key == "life_lost" else rewards
                parts = [
                    info[key] if key in info else others[worker.streams]
                    for info, worker in zip(infos, self._workers, strict=True)
                ]
                merged[key] = np.concatenate(parts)
        return merged


@dataclass(slots=True)
class _Worker:
    """The parent's side of one worker."""

    process: subprocess.Popen[bytes]
    link: WorkerLink
    streams: list[int]
    # Of the feed that it has got.
    revision: int = 0

    def send(self, kind: bytes, payload: bytes) -> None:
        try:
            self.link.send(kind, payload)
        except BrokenPipeError as error:
            raise self.failure(f"ended with exit code {self._exit_code()}") from error

    def receive(self) -> bytes:
        try:
            kind, payload = self.link.receive()
        except EOFError as error:
            raise self.failure(f"ended with exit code {self._exit_code()}") from error
        except TimeoutError as error:
            seconds = self.link.socket.gettimeout()
            raise self.failure(f"gave no answer for {seconds:g} seconds") from error
        if kind == OK:
            return payload
        raise self.error(json.loads(payload))

    def _exit_code(self) -> int | None:
        try:
            return self.process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            return None

    def failure(self, what: str) -> RunError:
        """Returns a RunError that names the worker's streams and the failure."""
        first, last = self.streams[0], self.streams[-1]
        return RunError(f"the environment worker of streams {first} to {last} {what}")

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
                *(sys.executable, "-P", "-m", "surreal_like.env.worker"),
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
    return _Worker(process, WorkerLink(mine), streams)


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


def _as_json(value: Any) -> bytes:
    try:
        return json.dumps(value).encode()
    except TypeError as error:
        raise ConfigError(f"env_config cannot be sent to worker processes: {error}") from error
