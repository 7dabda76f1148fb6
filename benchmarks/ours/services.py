"""The servers of a run without agents and learner, and contexts for their stand-ins."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import zmq
from machine import cpu_of

from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.config.sections import sections_of
from session.folder import RunFolder
from session.launchers.held_files import HeldMemory
from session.launchers.launcher import protect, write_run_files
from session.process.clock import WallClock
from session.process.context import Context, Launch
from session.process.heartbeat import read_beats
from session.wire import AddressBook
from surreal_like.experiment.topology import make_topology
from surreal_like.replay.table import Table

TableT = TypeVar("TableT", bound=Table)

_START_SECONDS = 60.0
_LOOK_SECONDS = 0.05
_FIRST_PORT = 17000


def make_config(changes: Mapping[str, Any]) -> Config:
    """The defaults with some settings changed, by their dotted keys."""
    config = BASE_CONFIG.copy()
    config.algorithm = "none"
    config.env_config.env_name = "none"
    config.session_config.at_end = "idle"
    for key, value in changes.items():
        *path, last = key.split(".")
        section: Any = config
        for name in path:
            section = section[name]
        section[last] = value
    return config


def make_replay(kind: type[TableT], changes: Mapping[str, Any]) -> TableT:
    """A replay in this process, of :func:`make_config`."""
    config = make_config(changes)
    return kind(**sections_of(config))


class Services:
    """A parameter server and the shards of replay, each the process that a run would start.

    Args:
        folder: for the files of the run; made here.
        changes: of settings, by their dotted keys; or a complete config.
        kinds: of the components to start.
        prefix: words before each command line, such as those that enter a network namespace;
            ``session_config.launcher.host`` is then an address there.
    """

    def __init__(
        self,
        folder: Path,
        changes: Mapping[str, Any],
        kinds: tuple[str, ...] = ("ps", "replay"),
        prefix: tuple[str, ...] = (),
    ) -> None:
        self.folder = RunFolder(folder)
        self.folder.create()
        config = changes if isinstance(changes, Config) else make_config(changes)
        topology = make_topology(config)
        self._held = HeldMemory()
        if config.session_config.replay.keep != "none":
            topology = self._held.give(topology)
        config.dump_file(str(self.folder.config))
        self.folder.sockets.mkdir(mode=0o700, exist_ok=True)
        book = AddressBook.ipc(topology.endpoints, self.folder.sockets)
        if (host := config.session_config.launcher.host) is not None:
            # No port is asked of this machine: the address is one of another namespace.
            ports = {name: _FIRST_PORT + each for each, name in enumerate(topology.endpoints)}
            book = AddressBook.tcp(ports, host)
            protect(self.folder, config)
        write_run_files(self.folder, topology, book)
        self._processes = {
            component.name: subprocess.Popen(
                [*prefix, sys.executable, *component.command(str(folder))[1:]],
                stdin=subprocess.DEVNULL,
            )
            for component in topology
            if component.kind in kinds
        }
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        missing = set(self._processes)
        while missing:
            beats = read_beats(self.folder.alive)
            missing -= {name for name, beat in beats.items() if beat.state == "running"}
            if time.monotonic() > deadline:
                self.close()
                raise RuntimeError(f"{', '.join(sorted(missing))} did not start")
            time.sleep(_LOOK_SECONDS)

    def cpu_seconds(self, kind: str = "replay") -> float:
        """Processor seconds that the processes of a kind have used so far."""
        return sum(map(cpu_of, self.pids(kind)))

    def pids(self, kind: str) -> list[int]:
        """The processes of a kind."""
        return [process.pid for name, process in self._processes.items() if name.startswith(kind)]

    def close(self) -> None:
        """Ends them; there is nothing that they would have to save."""
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._held.close()
        shutil.rmtree(self.folder.sockets, ignore_errors=True)

    def __enter__(self) -> Self:
        """Gives itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Ends them."""
        self.close()


@contextmanager
def play(folder: str, *names: str) -> Iterator[list[Context]]:
    """The contexts of components of a run that this process plays."""
    where = RunFolder(folder)
    config = Config.load_file(str(where.config))
    topology, addresses = make_topology(config), AddressBook.load(where.addresses)
    # Its keys are in the folder.
    keyed = where.keys.is_dir()
    zmq_context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    # Many senders have many sockets, and each socket that watches its connection another two.
    zmq_context.set(zmq.MAX_SOCKETS, 16384)
    contexts = [
        Context(
            Launch(topology.component(name), config, topology, addresses, where if keyed else None),
            zmq_context,
            clock=WallClock(),
            incarnation=time.time_ns() // 1_000_000,
        )
        for name in names
    ]
    try:
        yield contexts
    finally:
        for context in contexts:
            context.wire.close(0.2)
        zmq_context.destroy(0)
