"""Clients of Tensorplex and Loggerplex for any script, even without an algorithm."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Self

from session.addons.hooks import ADMIT
from session.atomic_file import write_atomically
from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.errors import SurrealError, UsageError
from session.folder import RunFolder
from session.loggerplex.log_client import Log, make_log
from session.loggerplex.log_server import Loggerplex
from session.process.component import CLIENT, Component, Topology
from session.process.context import Launch
from session.process.entry import make_frame, open_context, release
from session.process.script import ServiceThread
from session.tensorplex import metrics_client as component_client
from session.tensorplex.groups import name_of, own_client_id
from session.tensorplex.metrics_server import Tensorplex
from session.wire import AddressBook
from session.wire.contexts import cancel_close_at_exit, close_at_exit

# Replaces the names of algorithm and environment: the folder belongs to no run.
_PLAIN = "none"

_SEND_SECONDS = 0.1
_SILENT_SECONDS = 5.0
_CLOSE_SECONDS = 1.0
# Additional time in which libzmq sends its queued messages while the server reads them.
_LINGER_SECONDS = 5.0


class _Connection:
    """A socket to a run, and its thread: calls of the script only fill a buffer.

    Args:
        where, name, token: arguments of the clients.
        plex: ``tensorplex`` or ``loggerplex``.
    """

    def __init__(self, where: str | Path, name: str, token: str | None, plex: str) -> None:
        self.client_id = own_client_id(name)
        launch = _launch(_folder(where, name, token), name_of(self.client_id), f"{plex}.records")
        self.context = open_context(launch)
        self.channel = self.context.channel(plex)
        self._where = f"{plex} of {where}"
        self._closing = threading.Event()
        self._close_seconds = _CLOSE_SECONDS
        self._moved_at, self._sent, self._warned = time.monotonic(), 0, False
        self._thread = threading.Thread(target=self._serve, name=f"{plex}-client", daemon=True)
        self._thread.start()
        close_at_exit(self.close)

    def close(self, timeout_seconds: float = _CLOSE_SECONDS) -> None:
        """Sends records until the deadline, then closes; further calls do nothing."""
        cancel_close_at_exit(self.close)
        self._close_seconds = timeout_seconds
        self._closing.set()
        # Not for a limited time: the thread has deadlines, and its context must be closed before
        # the process ends.
        self._thread.join()

    def _serve(self) -> None:
        try:
            while not self._closing.wait(_SEND_SECONDS):
                self._send()
            self.channel.close(self._close_seconds)
            if self.channel.dropped:
                self._warn(f"{self.channel.dropped} records were dropped")
        finally:
            self._close()

    def _close(self) -> None:
        ends_at = time.monotonic() + _LINGER_SECONDS
        self.context.close(_LINGER_SECONDS)
        release(self.context)
        if time.monotonic() > ends_at:
            self._warn(f"the {self._where} reads too slowly; the last records may be lost")

    def _send(self) -> None:
        try:
            self.context.flush()
        except SurrealError as error:
            # Admission was refused or revoked: later records are dropped and counted.
            self._warn(str(error))
            self.channel.close(0.0)
            self._closing.wait()
            return
        now = time.monotonic()
        sent = sum(each.sent for each in self.context.wire.counters().values())
        if sent != self._sent or not len(self.channel):
            self._moved_at, self._sent, self._warned = now, sent, False
        elif not self._warned and now - self._moved_at >= _SILENT_SECONDS:
            self._warned = True
            self._warn(
                f"the {self._where} does not answer; {len(self.channel)} records wait, "
                f"{self.channel.dropped} were dropped"
            )

    def _warn(self, text: str) -> None:
        sys.stderr.write(f"{self.context.name}: {text}\n")


class _Connected:
    """Base of both clients: a connection that can be closed."""

    _connection: _Connection

    def close(self, timeout_seconds: float = _CLOSE_SECONDS) -> None:
        """Sends records until the deadline; the rest and all later records are dropped.

        Called at exit, too.
        """
        self._connection.close(timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class TensorplexClient(_Connected, component_client.TensorplexClient):
    """Reports metrics of any script to the Tensorplex of a run, also from another machine.

    No call blocks: a thread sends the records. While Tensorplex does not answer, the newest 10,000
    records are kept; older ones are dropped and counted (:attr:`dropped`), and one line on standard
    error reports it. Open the client in the process that uses it: a forked child sends nothing.

    Args:
        where: the run folder; with a token the ``HOST:PORT`` of ``surreal-like join``.
        name: ``<group>/<id>`` in lower case letters, digits and '-', such as ``simulator/0``; no
            component of the run may have that group. Each numeric id has a folder, so that equal
            tags share a chart; other ids share the folder of the group.
        token: token for a run of another machine; a token that no other machine has used.

    Raises:
        UsageError: the name is invalid, no other process can reach the run, or the token is wrong.
    """

    def __init__(self, where: str | Path, name: str, *, token: str | None = None) -> None:
        self._connection = _Connection(where, name, token, "tensorplex")
        super().__init__(
            self._connection.client_id,
            self._connection.channel,
            clock=self._connection.context.clock,
        )


class LoggerplexClient(_Connected, Log):
    """Writes log lines of any script to ``client-<group>-<id>.log`` and ``all.log`` of a run.

    Used as a logger of Python's ``logging``; ``handler`` may be added to other loggers. No call
    blocks, as with :class:`TensorplexClient`.

    Args:
        where, name, token: as for :class:`TensorplexClient`.
        level: lowest level that is sent, such as ``debug``; None: the level of the run.

    Raises:
        UsageError: as for :class:`TensorplexClient`.
        ConfigError: the level does not exist.
    """

    def __init__(
        self,
        where: str | Path,
        name: str,
        *,
        token: str | None = None,
        level: str | None = None,
    ) -> None:
        self._connection = _Connection(where, name, token, "loggerplex")
        context = self._connection.context
        if level is None:
            level = str(context.config.session_config.loggerplex.level)
        log = make_log(context.name, self._connection.channel, level=level, clock=context.clock)
        super().__init__(log.logger, log.handler)

    @property
    def dropped(self) -> int:
        """Number of dropped records."""
        return self._connection.channel.dropped


def _folder(where: str | Path, name: str, token: str | None) -> RunFolder:
    """Returns the folder with config, addresses and keys of a run; with a token joins it first."""
    if token is not None:
        admit = ADMIT.require(f"a token for {where} needs the add-on join, which is not here")
        return admit(str(where), token, name)
    folder = RunFolder(where)
    if not folder.addresses.is_file():
        raise UsageError(
            f"{where} is not the folder of a run that was started: it has no addresses.json; for "
            "a run of another machine give its HOST:PORT and token="
        )
    return folder


def _launch(folder: RunFolder, name: str, endpoint: str) -> Launch:
    book = AddressBook.load(folder.addresses)
    if endpoint not in book or book[endpoint].connect.startswith("inproc://"):
        raise UsageError(f"run {folder} has no {endpoint} that another process could reach")
    keys = folder.keys if (folder.keys / "server.pub").exists() else None
    component = Component(name, CLIENT, "", connects=(endpoint,))
    addresses = AddressBook({endpoint: book[endpoint]})
    # Without the folder: a script is no component, and writes no heartbeat there.
    return Launch(component, folder.read_config(), Topology(()), addresses, None, keys)


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
        write_atomically(self._folder.addresses, addresses.dump())
        self._threads: list[ServiceThread] = []
        for component, build in zip(topology, (Loggerplex, Tensorplex), strict=True):
            launch = Launch(component, config, topology, addresses, self._folder)
            self._threads.append(ServiceThread(make_frame(launch, build)))
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

    def close(self) -> None:
        """Writes received records and ends both; called at exit, too. Close clients before."""
        cancel_close_at_exit(self.close)
        for thread in self._threads:
            thread.frame.context.stopping = True
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
