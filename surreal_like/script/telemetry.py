"""A Tensorplex and a Loggerplex without a run: curves and logs of scripts."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Self

from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.errors import UsageError
from session.folder import RunFolder
from session.loggerplex.server import Loggerplex
from session.process.clock import WallClock
from session.process.component import Component, Topology
from session.process.context import Launch
from session.process.script import serve
from session.process.service import Build, Frame
from session.tensorplex.server import Tensorplex
from session.wire import AddressBook
from session.wire.contexts import cancel_close_at_exit, close_at_exit, make_context

# Replaces the names of algorithm and environment: the folder belongs to no run.
_PLAIN = "none"


class Telemetry:
    """A Tensorplex and a Loggerplex for scripts without a run, in threads of this process.

    They write ``tensorboard/`` and ``logs/`` into a folder, in the format of a run. Clients in this
    and in other processes of this machine open that folder. A folder may be used again: curves and
    logs then continue.

    Args:
        folder: output folder; created if it does not exist.

    Raises:
        UsageError: the folder holds a run, is in use, or is not writable.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = RunFolder(folder)
        config = self._enter()
        topology = Topology(_SERVERS)
        addresses = AddressBook.ipc(topology.endpoints, self._folder.sockets)
        config.dump_file(self._folder.config)
        self._folder.addresses.write_text(addresses.dump())
        self._frames: list[Frame] = []
        self._threads: list[threading.Thread] = []
        for component, build in zip(topology, (Loggerplex, Tensorplex), strict=True):
            self._start(Launch(component, config, topology, addresses, self._folder), build)
        close_at_exit(self.close)

    def _enter(self) -> Config:
        folder = self._folder
        if folder.in_use:
            raise UsageError(f"{folder} is in use: open clients of it")
        if folder.config.exists() and folder.read_config().algorithm != _PLAIN:
            raise UsageError(f"{folder} holds a run: open clients of it, or choose another folder")
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot make the folder {folder}: {error.strerror}") from None
        folder.lock()
        plain = {"algorithm": _PLAIN, "env_config": {"env_name": _PLAIN}}
        config = Config(plain).extend(BASE_CONFIG, strict=True)
        config.session_config.folder = str(folder)
        return config

    def _start(self, launch: Launch, build: Build) -> None:
        zmq_context = make_context()
        incarnation = time.time_ns() // 1_000_000
        frame = Frame(launch, build, zmq_context, clock=WallClock(), incarnation=incarnation)
        thread = threading.Thread(
            target=serve, args=(frame, zmq_context), name=frame.context.name, daemon=True
        )
        self._frames.append(frame)
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        """Writes received records and ends both; called at exit, too. Close clients before."""
        cancel_close_at_exit(self.close)
        for frame in self._frames:
            frame.context.stopping = True
        for thread in self._threads:
            thread.join()
        self._folder.unlock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


_SERVERS = (
    Component(
        "loggerplex",
        "loggerplex",
        "main.loggerplex",
        binds=("loggerplex.records",),
        connects=("tensorplex.records",),
    ),
    Component(
        "tensorplex",
        "tensorplex",
        "main.tensorplex",
        binds=("tensorplex.records", "tensorplex.requests"),
        connects=("loggerplex.records",),
    ),
)
