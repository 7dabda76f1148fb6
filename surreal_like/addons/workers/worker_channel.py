"""Link of an agent to its worker processes: frames on a socket, and arrays in shared memory."""

from __future__ import annotations

import json
import mmap
import os
import select
import socket
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session import nest
from session.wire.frames import LENGTH_BYTES, FrameReader, pack_frame
from surreal_like.data.spec import parse_action_spec, parse_obs_spec
from surreal_like.env.environment import Info

# Kinds of frames: the first four are commands, the others answers.
START, MAP, RESET, STEP, OK, ERROR = b"s", b"m", b"r", b"t", b"o", b"e"
_FRAME_BYTES = (1 << 32) - 1
_CHUNK_BYTES = 1 << 16


class WorkerChannel:
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
