"""Environment worker: `python -P -m surreal_like.addons.workers.worker SOCKET MEMORY LIFE`.

Started by `SubprocessVector` only, with three inherited file descriptors. It steps its share of
the streams and ends when its parent does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from typing import Any

import numpy as np

from session import nest
from session.errors import describe, may_pass
from session.process.seeding import build_seeded
from surreal_like.addons.workers.worker_channel import (
    ERROR,
    MAP,
    OK,
    RESET,
    START,
    STEP,
    SharedBlock,
    WorkerChannel,
    encode_info,
)
from surreal_like.env.environment import Info
from surreal_like.env.task_feed import TaskFeed
from surreal_like.env.vector import SyncVector, make_sync


def main(arguments: list[str]) -> None:
    """Serves until the parent closes the socket."""
    link_end, memory, life = (int(argument) for argument in arguments)
    # Ctrl-C reaches every process of the terminal; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The socket is not read during a step, which may take minutes: a thread watches the parent.
    threading.Thread(target=_end_with_parent, args=(life,), daemon=True).start()
    Worker(WorkerChannel(socket.socket(fileno=link_end)), memory).serve()


class Worker:
    """Answers the frames of one parent.

    link: frames from and to the parent; memory: descriptor of the memory of the arrays.
    """

    def __init__(self, link: WorkerChannel, memory: int) -> None:
        self._link = link
        self._memory = memory
        self._first = self._num_envs = 0
        self._vector: SyncVector | None = None
        self._feed = TaskFeed({})
        self._block: SharedBlock | None = None

    def serve(self) -> None:
        """Answers frames until the parent is gone; errors are sent as answers."""
        commands = {START: self._start, MAP: self._map, RESET: self._reset, STEP: self._step}
        try:
            while True:
                kind, payload = self._link.receive()
                try:
                    self._link.send(OK, commands[kind](payload))
                except (Exception, SystemExit) as error:  # noqa: BLE001  (the parent raises it)
                    self._link.send(ERROR, _describe(error))
        except (EOFError, BrokenPipeError):
            if self._vector is not None:
                self._vector.close()

    def _start(self, payload: bytes) -> bytes:
        start = json.loads(payload)
        sys.path.extend(path for path in start["path"] if path not in sys.path)
        self._first, self._num_envs = start["first"], start["num_envs"]
        seeds, given = start["seeds"], {"evaluation": start["evaluation"]}
        self._feed = TaskFeed(start["env_config"], **given)
        # The parent knows the tasks of all streams.
        self._feed.numbered = False
        self._vector = build_seeded(
            seeds[0], lambda: make_sync(start["env_config"], seeds, **given, feed=self._feed)
        )
        self._vector.restarts.relayed = []
        specs = {"obs_spec": self._vector.obs_spec, "action_spec": self._vector.action_spec}
        return json.dumps(specs).encode()

    def _map(self, payload: bytes) -> bytes:
        specs = json.loads(payload)
        self._block = SharedBlock(
            self._memory, specs["obs_spec"], specs["action_spec"], self._num_envs
        )
        return b""

    def _reset(self, news: bytes) -> bytes:
        vector, rows = self._mapped()
        self._read(news)
        obs, info = vector.reset()
        flags = {"terminated": False, "truncated": False}
        return self._write(rows, {"obs": obs, **flags}, self._with_restarts(info))

    def _step(self, news: bytes) -> bytes:
        vector, rows = self._mapped()
        self._read(news)
        # The parent sets them, too: where a worker before this one was lost.
        vector.ended = rows["terminated"] | rows["truncated"]
        obs, reward, terminated, truncated, info = vector.step(rows["action"])
        flags = {"reward": reward, "terminated": terminated, "truncated": truncated}
        return self._write(rows, {"obs": obs, **flags}, self._with_restarts(info))

    def _with_restarts(self, info: Info) -> Info:
        """Adds the errors after which environments were made anew; the parent logs them."""
        restarts = self._mapped()[0].restarts
        if not restarts.relayed:
            return info
        errors, restarts.relayed = restarts.relayed, []
        return {**info, "restarts": [json.loads(_describe(error)) for error in errors]}

    def _read(self, news: bytes) -> None:
        """Takes over progress and task of the run, which come before resets."""
        if news:
            self._feed.restore(json.loads(news))

    def _mapped(self) -> tuple[SyncVector, dict[str, Any]]:
        """Returns the streams, and their rows of the shared columns."""
        if self._vector is None or self._block is None:
            raise RuntimeError("stepped before it was started and mapped")
        own = slice(self._first, self._first + self._vector.num_envs)
        return self._vector, {name: column[own] for name, column in self._block.columns.items()}

    def _write(self, rows: dict[str, Any], columns: dict[str, Any], info: Info) -> bytes:
        for name, value in nest.flatten(columns).items():
            np.copyto(rows[name], value)
        return encode_info(info)


def _describe(error: BaseException) -> bytes:
    """Encodes an error for the parent: class, message with its place, whether it may pass."""
    import traceback

    return json.dumps(
        {
            "type": type(error).__name__,
            "message": describe(error),
            "may_pass": may_pass(error),
            "traceback": "".join(traceback.format_exception(error)),
        }
    ).encode()


def _end_with_parent(life: int) -> None:
    """Ends this process when the pipe closes, whose other end only the parent holds open."""
    os.read(life, 1)
    os._exit(0)  # sys.exit would end this thread only


if __name__ == "__main__":
    main(sys.argv[1:])
