"""Components inside a script or a notebook: one context for the process, made at first use.

The script's ``session_config.folder`` is a run folder written by ``surreal-like plan CONFIG
--format shell``; its address book has the addresses of all components.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType

from session.config import Config
from session.errors import SurrealError, UsageError, describe
from session.folder import RunFolder, is_planned
from session.loggerplex.log_client import Log
from session.process.component import Topology
from session.process.context import Context, Launch
from session.process.entry import make_frame, open_context, release
from session.process.service import Build, Frame, Service
from session.tensorplex.metrics_client import TensorplexClient
from session.wire import AddressBook
from session.wire.contexts import cancel_close_at_exit, close_at_exit

_PARTS_KEPT = 64
_PLEXES = ("tensorplex", "loggerplex")


@dataclass(frozen=True, slots=True)
class Part:
    """An agent, a learner or a replay with early records.

    Args:
        session_config: the ``folder`` is that of the run.
        kind: kind of component.
        index: number of the component.
        log: log from ``early_log``.
        metrics: client from ``TensorplexClient.early``.
    """

    session_config: Config
    kind: str
    index: int
    log: Log
    metrics: TensorplexClient

    def joins(self, context: Context) -> bool:
        """True if its records go by this context; a replay has another one, in its thread."""
        folder = RunFolder(self.session_config.folder).path
        same = context.folder is not None and context.folder.path == folder
        return same and self.kind != "replay"

    def join(self, context: Context) -> None:
        """Sends its records by a context, the later ones, too."""
        self.log.join(context.log)
        self.metrics.join(context.metrics(self.metrics.client_id))

    def send(self, launch: Launch) -> None:
        """Sends its records with a deadline, without being admitted to the run."""
        if any(each.connect.startswith("inproc://") for each in launch.addresses.values()):
            return
        waiting = self.log.buffered + self.metrics.buffered
        # Without the folder: the heartbeat there is that of another process, if there is one.
        keys = RunFolder(self.session_config.folder).keys
        launch = replace(launch, folder=None, keys=keys if keys.exists() else None)
        context = open_context(launch)
        try:
            self.join(context)
            context.close()
            lost = sum(context.channel(plex).dropped for plex in _PLEXES)
        finally:
            release(context)
        if lost:
            sys.stderr.write(
                f"{launch.component.name}: {lost} of {waiting} records were lost: its run's "
                "servers do not answer\n"
            )


class Parts:
    """Parts of this process that have not been connected; the oldest of too many are forgotten.

    Attributes:
        open: False while the library makes some that belong to no run.
    """

    def __init__(self) -> None:
        self.open = True
        self._parts: deque[Part] = deque(maxlen=_PARTS_KEPT)

    def add(self, part: Part) -> None:
        """Keeps a part until it is connected."""
        self._parts.append(part)

    def join(self, context: Context) -> None:
        """Sends the records of all parts of the run of a context."""
        for part in [part for part in self._parts if part.joins(context)]:
            self._parts.remove(part)
            part.join(context)

    def send(self, make_launch: Callable[[Config, str, int], Launch]) -> None:
        """Sends the records of all parts that nothing has connected, each with a deadline."""
        while self._parts:
            part = self._parts.popleft()
            if part.log.buffered + part.metrics.buffered and is_planned(part.session_config.folder):
                part.send(make_launch(part.session_config, part.kind, part.index))


_JOIN_SECONDS = 0.1


class _Idle(Service):
    """The service of a script: the script itself does the work."""

    def tick(self) -> bool:
        return False


class ServiceThread(threading.Thread):
    """Steps a component in a thread until it is done; started at once.

    Args:
        frame: frame of the component from ``make_frame``, which the thread releases.
    """

    def __init__(self, frame: Frame) -> None:
        super().__init__(name=frame.context.name, daemon=True)
        self.frame = frame
        self.start()

    def run(self) -> None:
        frame = self.frame
        try:
            while not frame.finished:
                if not frame.step():
                    frame.idle()
        except SurrealError as error:
            frame.fail(error)
            sys.stderr.write(f"{frame.context.name}: {describe(error)}\n")
        except Exception as error:
            frame.fail(error)
            raise
        finally:
            release(frame.context)


@dataclass
class _Script:
    """State of this process in a run, as far as known from its components.

    Args:
        index: number of the agent.
        frame: frame of the component that the script itself is.
        background: services in threads.
        closing: callbacks that run before the services end.
        watched: True once exit and signal handlers are installed.
        parts: made, but not connected.
        asked_to_end: True once a signal has arrived.
        at_its_end: True once the script has run to its end and only its services continue.
    """

    index: int = 0
    frame: Frame | None = None
    background: list[ServiceThread] = field(default_factory=list)
    closing: ExitStack = field(default_factory=ExitStack)
    watched: bool = False
    parts: Parts = field(default_factory=Parts)
    asked_to_end: bool = False
    at_its_end: bool = False


_SCRIPT = _Script()


def this_is_agent(index: int) -> None:
    """Records the index of the agent of this process."""
    _SCRIPT.index = index


def add_part(
    session_config: Config, kind: str, index: int, log: Log, metrics: TensorplexClient
) -> None:
    """Sends the early records of a part of a planned run as soon as this script is connected.

    Records of a part that nothing has connected are sent at exit, if the servers of the run answer
    at once. Arguments as for :class:`Part`. Does nothing if the run of the config is not planned.
    """
    if not _SCRIPT.parts.open or not is_planned(session_config.folder):
        return
    if kind in ("agent", "evaluator"):
        # A sender of this process is made before its agent, but connects after it.
        this_is_agent(index)
    part, context = Part(session_config, kind, index, log, metrics), current_context()
    if context is not None and part.joins(context):
        part.join(context)
    else:
        _SCRIPT.parts.add(part)
        # Registered anew, so that it comes before whatever was registered earlier.
        cancel_close_at_exit(_send_early_records)
        close_at_exit(_send_early_records)


def _send_early_records() -> None:
    _SCRIPT.parts.send(_make_launch)


@contextmanager
def outside_a_run() -> Iterator[None]:
    """Makes agents and learners that are no parts of the run that their config names."""
    before, _SCRIPT.parts.open = _SCRIPT.parts.open, False
    try:
        yield
    finally:
        _SCRIPT.parts.open = before


def current_context() -> Context | None:
    """Returns the context of this script; None before its first component connects."""
    return None if _SCRIPT.frame is None else _SCRIPT.frame.context


def script_context(session_config: Config, kind: str) -> Context:
    """Returns the context of this script; the first component determines its name.

    Waits until the parameter server has replied to the hello. Closed, with a deadline, at exit;
    SIGTERM ends a script like ``sys.exit()``.

    Args:
        session_config: the ``folder`` is a planned run folder.
        kind: ``agent``, ``learner``, ``evaluator`` or ``replay``.

    Raises:
        UsageError: there is no planned run folder.
        DeadlineError: the parameter server did not reply in time.
        RefusedError: the parameter server belongs to another experiment.
    """
    if _SCRIPT.frame is None:
        _watch()
        frame = _make_frame(session_config, kind, _SCRIPT.index, lambda context: _Idle())
        try:
            while frame.state == "starting":
                if not frame.step():
                    frame.idle()
        except BaseException:
            release(frame.context)
            raise
        # The script calls `pulse` whenever it waits or steps: it sends heartbeat, telemetry and
        # hello.
        frame.context.pulse = frame.step
        _SCRIPT.frame = frame
        _SCRIPT.parts.join(frame.context)
    return _SCRIPT.frame.context


def run_in_background(
    session_config: Config, kind: str, index: int, build: Build
) -> threading.Thread:
    """Runs a service in a thread of this process, and returns that thread.

    A script that has come to its end waits until the service is done: at the end of the run, or
    after SIGTERM or Ctrl-C. :func:`leave` ends it earlier.

    Raises:
        UsageError: there is no planned run folder.
    """
    _watch()
    thread = ServiceThread(_make_frame(session_config, kind, index, build))
    _SCRIPT.background.append(thread)
    return thread


def at_leave(close: Callable[[], object]) -> None:
    """Calls ``close`` when this process leaves the run, while its services still run."""
    _SCRIPT.closing.callback(close)


def leave() -> None:
    """Ends this process's part in the run: environments, services in threads, its context.

    Called at exit; a notebook may call it earlier. Components made before are unusable afterwards;
    new ones may be made.
    """
    _SCRIPT.asked_to_end = True
    try:
        _leave()
    finally:
        _SCRIPT.asked_to_end = False


def _leave() -> None:
    try:
        _SCRIPT.closing.close()
    finally:
        _wait_for_services()
        _SCRIPT.background.clear()
        frame, _SCRIPT.frame = _SCRIPT.frame, None
        _SCRIPT.index = 0
        if frame is not None:
            frame.close()
            release(frame.context)


def _wait_for_services() -> None:
    """Waits until all services are done; stops them if this process has to end."""
    while any(each.is_alive() for each in _SCRIPT.background):
        for each in _SCRIPT.background:
            each.frame.context.stopping |= _SCRIPT.asked_to_end
            each.join(_JOIN_SECONDS)


def _leave_at_exit() -> None:
    _SCRIPT.at_its_end = True
    # Exiting an interactive interpreter or a notebook must not wait for services.
    _SCRIPT.asked_to_end |= hasattr(sys, "ps1")
    _leave()


def _make_frame(session_config: Config, kind: str, index: int, build: Build) -> Frame:
    launch = _make_launch(session_config, kind, index)
    # Appended: a user's folder must not shadow the library's own modules.
    paths = launch.config.session_config.import_path
    sys.path.extend(path for path in paths if path not in sys.path)
    return make_frame(launch, build)


def _make_launch(session_config: Config, kind: str, index: int) -> Launch:
    folder = _plan(session_config)
    config = folder.read_config()
    topology = Topology.load(folder.topology)
    first = topology.of_kind(kind)[0].name
    name = f"{first.removesuffix('-0')}-{index}" if first.endswith("-0") else first
    return Launch(
        topology.component(name), config, topology, AddressBook.load(folder.addresses), folder
    )


def _plan(session_config: Config) -> RunFolder:
    if not is_planned(session_config.folder):
        raise UsageError(
            "a script needs a planned run: write one with "
            "'surreal-like plan CONFIG.yaml --format shell --folder RUN' and set "
            f"session_config.folder to it (it is {session_config.folder})"
        )
    return RunFolder(session_config.folder)


def _watch() -> None:
    """Installs the exit handler and the signal handlers, once."""
    if _SCRIPT.watched:
        return
    _SCRIPT.watched = True
    close_at_exit(_leave_at_exit)
    if threading.current_thread() is not threading.main_thread():
        return
    # Handlers of the user are kept.
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_signal)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _on_signal)


def _on_signal(number: int, stack: FrameType | None) -> None:
    _SCRIPT.asked_to_end = True
    if _SCRIPT.at_its_end:
        return
    if number == signal.SIGTERM:
        raise SystemExit(0)
    signal.default_int_handler(number, stack)
