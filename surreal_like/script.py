"""Components inside a script or a notebook: one context for the process, made at first use.

The script's ``session_config.folder`` is a run folder that ``surreal-like plan CONFIG --format
shell`` has written; its address book says where everybody is.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import zmq

from session.clock import WallClock
from session.component import Topology
from session.config import Config
from session.context import Context, Launch
from session.errors import UsageError
from session.folder import RunFolder
from session.service import Build, Frame, Service
from session.wire import AddressBook
from surreal_like.topology import make_topology


class _Idle(Service):
    """The service of a script: the script itself does the work."""

    def tick(self) -> bool:
        return False


@dataclass
class _Script:
    """What this process is, as far as its components have said."""

    index: int = 0
    frame: Frame | None = None


_SCRIPT = _Script()


def this_is_agent(index: int) -> None:
    """An agent of this process says its index, for a sender that is made before it."""
    _SCRIPT.index = index


def script_context(session_config: Config, kind: str) -> Context:
    """The context of this script; the first component decides what it is called.

    Waits until the parameter server has answered the hello. Closed, with a deadline, at exit.

    Args:
        session_config: its ``folder`` is a planned run folder.
        kind: ``agent``, ``learner``, ``evaluator`` or ``replay``.

    Raises:
        UsageError: there is no planned run folder.
        RefusedError: the parameter server belongs to another experiment.
    """
    if _SCRIPT.frame is None:
        frame = _make_frame(session_config, kind, _SCRIPT.index, _build_idle)
        while frame.state == "starting":
            if not frame.step():
                frame.idle()
        # The script calls this whenever it waits or steps: heartbeat, telemetry, hello.
        frame.context.pulse = frame.step
        _keep(frame)
    assert _SCRIPT.frame is not None  # made above
    return _SCRIPT.frame.context


def run_in_background(session_config: Config, kind: str, index: int, build: Build) -> threading.Thread:
    """Runs a service in a thread of this process, until the process exits."""
    frame = _make_frame(session_config, kind, index, build)

    def work() -> None:
        while not frame.finished:
            if not frame.step():
                frame.idle()

    thread = threading.Thread(target=work, name=frame.context.name, daemon=True)
    thread.start()

    def end() -> None:
        frame.context.stopping = True
        thread.join(timeout=10.0)

    atexit.register(end)
    return thread


def _build_idle(context: Context) -> Service:
    return _Idle()


def _make_frame(
    session_config: Config, kind: str, index: int, build: Callable[[Context], Service]
) -> Frame:
    folder = _planned(session_config)
    config = Config.load_file(str(folder.config))
    topology: Topology = make_topology(config)
    first = topology.of_kind(kind)[0].name
    name = f"{first.removesuffix('-0')}-{index}" if first.endswith("-0") else first
    launch = Launch(
        topology.component(name), config, topology, AddressBook.load(folder.addresses), folder
    )
    zmq_context: zmq.Context[Any] = zmq.Context()
    atexit.register(zmq_context.destroy, 0)
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


def _keep(frame: Frame) -> None:
    _SCRIPT.frame = frame
    atexit.register(frame.close)
