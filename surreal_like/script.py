"""Components inside a script or a notebook: one context for the process, made at first use.

The script's ``session_config.folder`` is a run folder that ``surreal-like plan CONFIG --format
shell`` has written; its address book says where everybody is.
"""

from __future__ import annotations

import atexit
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import zmq

from session.clock import WallClock
from session.component import Topology
from session.config import Config
from session.context import Context, Launch
from session.errors import SurrealError, UsageError, describe
from session.folder import RunFolder
from session.process import remove_socket_folders
from session.service import Build, Frame, Service
from session.wire import AddressBook
from surreal_like.topology import make_topology

_JOIN_SECONDS = 0.1


class _Idle(Service):
    """The service of a script: the script itself does the work."""

    def tick(self) -> bool:
        return False


@dataclass
class _Background:
    """A service that a thread of this process runs."""

    frame: Frame
    thread: threading.Thread


@dataclass
class _Script:
    """What this process is, as far as its components have said.

    Args:
        index: number of the agent.
        frame: of the component that the script itself is.
        background: services in threads.
        closing: what is to be closed before them.
        watched: it is known what happens at exit.
        asked_to_end: a signal has come.
        at_its_end: the script has run to its end; only its services go on.
    """

    index: int = 0
    frame: Frame | None = None
    zmq_context: zmq.Context[Any] | None = None
    background: list[_Background] = field(default_factory=list)
    closing: ExitStack = field(default_factory=ExitStack)
    watched: bool = False
    asked_to_end: bool = False
    at_its_end: bool = False


_SCRIPT = _Script()


def this_is_agent(index: int) -> None:
    """An agent of this process says its index, for a sender that is made before it."""
    _SCRIPT.index = index


def current_context() -> Context | None:
    """The context of this script; None before its first component connects, and in a process."""
    return None if _SCRIPT.frame is None else _SCRIPT.frame.context


def script_context(session_config: Config, kind: str) -> Context:
    """The context of this script; the first component decides what it is called.

    Waits until the parameter server has answered the hello. Closed, with a deadline, at exit;
    SIGTERM ends a script as ``sys.exit()`` does.

    Args:
        session_config: its ``folder`` is a planned run folder.
        kind: ``agent``, ``learner``, ``evaluator`` or ``replay``.

    Raises:
        UsageError: there is no planned run folder.
        DeadlineError: the parameter server did not answer in time.
        RefusedError: the parameter server belongs to another experiment.
    """
    if _SCRIPT.frame is None:
        _watch()
        zmq_context: zmq.Context[Any] = zmq.Context()
        try:
            frame = _make_frame(session_config, kind, _SCRIPT.index, _build_idle, zmq_context)
            while frame.state == "starting":
                if not frame.step():
                    frame.idle()
        except BaseException:
            zmq_context.destroy(0)
            raise
        # The script calls this whenever it waits or steps: heartbeat, telemetry, hello.
        frame.context.pulse = frame.step
        _SCRIPT.frame, _SCRIPT.zmq_context = frame, zmq_context
    return _SCRIPT.frame.context


def run_in_background(
    session_config: Config, kind: str, index: int, build: Build
) -> threading.Thread:
    """Runs a service in a thread of this process, and returns that thread.

    A script that has come to its end stays until the service is done: when the run is over, or
    after SIGTERM or Ctrl-C. :func:`leave` ends it earlier.

    Raises:
        UsageError: there is no planned run folder.
    """
    _watch()
    zmq_context: zmq.Context[Any] = zmq.Context()
    try:
        frame = _make_frame(session_config, kind, index, build, zmq_context)
    except BaseException:
        zmq_context.destroy(0)
        raise
    thread = threading.Thread(
        target=serve, args=(frame, zmq_context), name=frame.context.name, daemon=True
    )
    _SCRIPT.background.append(_Background(frame, thread))
    thread.start()
    return thread


def at_leave(close: Callable[[], object]) -> None:
    """Calls ``close`` when this process leaves the run, while its services still run."""
    _SCRIPT.closing.callback(close)


def leave() -> None:
    """Ends what this process has in the run: environments, services in threads, its context.

    Done at exit; a notebook may do it earlier. Components that were made before are of no use any
    more; new ones may be made.
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
        frame, zmq_context = _SCRIPT.frame, _SCRIPT.zmq_context
        _SCRIPT.frame = _SCRIPT.zmq_context = None
        _SCRIPT.index = 0
        if frame is not None and zmq_context is not None:
            frame.close()
            _give_back(frame, zmq_context)


def _give_back(frame: Frame, zmq_context: zmq.Context[Any]) -> None:
    addresses = frame.context.wire.addresses
    zmq_context.destroy(0)
    remove_socket_folders(addresses)


def _wait_for_services() -> None:
    """Until all are done; they are told to end if this process is."""
    while any(each.thread.is_alive() for each in _SCRIPT.background):
        for each in _SCRIPT.background:
            each.frame.context.stopping |= _SCRIPT.asked_to_end
            each.thread.join(_JOIN_SECONDS)


def _leave_at_exit() -> None:
    _SCRIPT.at_its_end = True
    # Whoever closes a notebook or an interpreter waits for nothing.
    _SCRIPT.asked_to_end |= hasattr(sys, "ps1")
    _leave()


def serve(frame: Frame, zmq_context: zmq.Context[Any]) -> None:
    """Steps a service until it is done, then gives its sockets back; for a thread of its own."""
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
        _give_back(frame, zmq_context)


def _build_idle(context: Context) -> Service:
    return _Idle()


def _make_frame(
    session_config: Config, kind: str, index: int, build: Build, zmq_context: zmq.Context[Any]
) -> Frame:
    folder = _planned(session_config)
    config = folder.read_config()
    # Behind everything else: a user's folder must not hide the library's own modules.
    paths = config.session_config.import_path
    sys.path.extend(path for path in paths if path not in sys.path)
    topology: Topology = make_topology(config)
    first = topology.of_kind(kind)[0].name
    name = f"{first.removesuffix('-0')}-{index}" if first.endswith("-0") else first
    launch = Launch(
        topology.component(name), config, topology, AddressBook.load(folder.addresses), folder
    )
    return Frame(
        launch, build, zmq_context, clock=WallClock(), incarnation=time.time_ns() // 1_000_000
    )


def _planned(session_config: Config) -> RunFolder:
    if session_config.folder is None or not RunFolder(session_config.folder).addresses.exists():
        raise UsageError(
            "a script needs a planned run: write one with "
            "'surreal-like plan CONFIG.yaml --format shell --folder RUN' and set "
            f"session_config.folder to it (it is {session_config.folder})"
        )
    return RunFolder(session_config.folder)


def _watch() -> None:
    """Once: what is to happen at exit, and which signals lead there."""
    if _SCRIPT.watched:
        return
    _SCRIPT.watched = True
    atexit.register(_leave_at_exit)
    if threading.current_thread() is not threading.main_thread():
        return
    # Whoever has a handler of their own knows what to do.
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
