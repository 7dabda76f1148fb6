"""A component as a process of its own: command line, memory, signals, lifeline, exit code."""

from __future__ import annotations

import argparse
import ctypes
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from setproctitle import setproctitle

from session.config import Config
from session.errors import DeadlineError, SurrealError, UsageError, describe
from session.folder import RunFolder
from session.loggerplex.terminal import Terminal
from session.process.clock import WallClock
from session.process.component import LIFELINE, Topology
from session.process.context import Context, Launch, run_part
from session.process.heartbeat import State
from session.process.service import Build, Frame, seeded
from session.wire import AddressBook
from session.wire.contexts import make_context


class Lifeline:
    """Detects the death of the launcher; without a launcher it never breaks."""

    def __init__(self) -> None:
        self._poller = select.poll()
        self._watching = LIFELINE in os.environ
        if self._watching:
            self._poller.register(int(os.environ[LIFELINE]), select.POLLIN | select.POLLHUP)

    @property
    def broken(self) -> bool:
        """True once the launcher has died."""
        return self._watching and bool(self._poller.poll(0))

    def pass_on(self, *signals: int) -> None:
        """Raises signals in this process once the launcher has died, and then no more."""
        if self.broken:
            self._watching = False
            for number in signals:
                signal.raise_signal(number)


# Numbers of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 2**31 - 1


def keep_freed_memory() -> None:
    """Makes the C library keep freed large blocks; does nothing if mallopt is missing.

    By default glibc returns blocks of some megabytes to the system at once; the next batch then
    gets new pages, which the system has to clear first. The peak memory does not change, but the
    process keeps it: mallopt(3).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST)
        mallopt(_TRIM_THRESHOLD, _LARGEST)


_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# A process of this niceness gets a third of the time of one of niceness 0.
_NICE = 5


def run_service(
    kind: str,
    build: Build,
    argv: Sequence[str] | None = None,
    *,
    keeps_memory: bool = False,
    gives_way: bool = False,
) -> int:
    """Runs one component as this process until it is done or stopped; returns the exit code.

    Args:
        kind: kind of component, such as ``agent``.
        build: makes the Service from its Context.
        argv: command-line arguments; None: those of this process.
        keeps_memory: the component allocates large arrays all the time, see
            :mod:`session.process.entry`.
        gives_way: see :func:`give_way`.
    """
    if keeps_memory:
        keep_freed_memory()
    if gives_way:
        give_way()
    try:
        launch = _launch(kind, argv)
    except SurrealError as error:
        sys.stderr.write(f"{kind}: {error}\n")
        return error.exit_code
    _set_title(launch)
    try:
        frame = make_frame(launch, seeded(build))
    except SurrealError as error:
        sys.stderr.write(f"{launch.component.name}: {error}\n")
        return error.exit_code
    try:
        return _run(frame)
    finally:
        release(frame.context)


def make_frame(launch: Launch, build: Build) -> Frame:
    """Makes the frame of a component in a context of :func:`open_context`."""
    context = open_context(launch)
    try:
        return Frame(context, build)
    except BaseException:
        release(context)
        raise


def open_context(launch: Launch) -> Context:
    """Makes a context with its own ZeroMQ context, which :func:`release` ends."""
    zmq_context, incarnation = make_context(), time.time_ns() // 1_000_000
    if launch.component.sends:
        incarnation = run_part(launch.config)
    try:
        return Context(launch, zmq_context, clock=WallClock(), incarnation=incarnation)
    except BaseException:
        zmq_context.destroy(0)
        raise


def release(context: Context) -> None:
    """Ends the ZeroMQ context of a component that has ended, and removes its folder of sockets."""
    context.wire.context.destroy(0)
    remove_socket_folders(context.wire.addresses)


def give_way() -> None:
    """Lets processes of normal priority go first where processors are short.

    For components of which there are many: otherwise they would take the processor from the few
    that all of them wait for.
    """
    os.nice(_NICE)
    # Linux shares the processor between sessions first, and each component is a session. Some
    # systems have no such groups, or refuse changes that follow each other too fast: sched(7).
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_NICE))


def _run(frame: Frame) -> int:
    _handle_signals(frame.context)
    name = frame.context.name
    terminal = Terminal.of_process()
    if terminal is None:
        frame.context.warn = lambda text: sys.stderr.write(f"{name}: {text}\n")
        terminal = Terminal(-1)
    frame.context.log.show(terminal.record)
    frame.watch = partial(_stop_orphan, frame.context, Lifeline())
    try:
        while frame.state is not State.done:
            if not frame.step():
                frame.idle()
    except SurrealError as error:
        terminal.silence()
        problem = frame.context.wire.problem() if isinstance(error, DeadlineError) else None
        code = frame.fail(error)
        line = describe(error)
        sys.stderr.write(f"{frame.context.name}: {line}{f': {problem}' if problem else ''}\n")
        return code
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the run must get every error
        # Caught because only an author's code raises SystemExit here.
        terminal.silence()
        code = frame.fail(error)
        traceback.print_exc()
        return code
    finally:
        # Python restores default handlers at exit; another signal would then kill the process.
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
    return frame.exit_code


def _handle_signals(context: Context) -> None:
    def stop(number: int, stack: object) -> None:
        # Only flags: a handler may run between any two instructions, in the middle of a send, too.
        context.on_signal(number)

    for number in _SIGNALS:
        signal.signal(number, stop)


def _stop_orphan(context: Context, lifeline: Lifeline) -> None:
    """Stops a component whose launcher has died, detected by the closed pipe from the launcher."""
    if not context.orphaned and lifeline.broken:
        # No supervisor is left that could start it again.
        context.orphaned = context.ends_run = context.stopping = True


def remove_socket_folders(addresses: AddressBook) -> None:
    """Removes the folder of a run's ipc sockets if this process was its last user."""
    folders = {
        Path(a.bind.removeprefix("ipc://")).parent
        for a in addresses.values()
        if a.bind.startswith("ipc://")
    }
    for folder in folders:
        # Fails while sockets of other components are left in it.
        with suppress(OSError):
            folder.rmdir()


def _launch(kind: str, argv: Sequence[str] | None) -> Launch:
    parser = argparse.ArgumentParser(
        prog=f"python -P -m main.{kind}",
        description=f"One {kind} process of a run. "
        "Where the run folder is shared: --name and --folder. Elsewhere: --config and --address.",
    )
    parser.add_argument("--name", default=None, help="component name, such as agent-0")
    parser.add_argument(
        "--folder", help="run folder with config.yaml, topology.json, addresses.json"
    )
    parser.add_argument("--config", help="resolved config.yaml, where no folder is shared")
    parser.add_argument(
        "--address",
        help="address book (addresses.json), with topology.json beside it, where no folder is "
        "shared",
    )
    parser.add_argument(
        "--keys", help="folder of the run's keys; default: the run folder's keys/, if it is there"
    )
    given = parser.parse_args(argv)
    if given.folder is None and (given.config is None or given.address is None):
        parser.error("give --folder, or --config together with --address")
    return _load(kind, given)


def _load(kind: str, given: argparse.Namespace) -> Launch:
    folder = RunFolder(given.folder) if given.folder is not None else None
    # The topology is beside the addresses: in the run folder, or where both were copied.
    files = RunFolder(Path(given.address).parent if given.address else given.folder)
    config = Config.load_file(given.config) if given.config else files.read_config()
    addresses = AddressBook.load(Path(given.address) if given.address else files.addresses)
    if folder is not None:
        folder.find_modules(config.session_config.import_path)
    else:
        # Searched last: a user's folder must not hide the library's own modules.
        sys.path.extend(config.session_config.import_path)
    topology = Topology.load(files.topology)
    name = given.name or next(iter(topology.of_kind(kind))).name
    component = topology.component(name)
    if component.kind != kind:
        raise UsageError(f"'{name}' is a {component.kind}; start it with -m {component.module}")
    keys = Path(given.keys) if given.keys is not None else None
    return Launch(component, config, topology, addresses, folder, keys)


def _set_title(launch: Launch) -> None:
    folder = str(launch.folder) if launch.folder is not None else "-"
    setproctitle(" ".join(["python", "-P", "-m", *launch.component.command(folder)[3:]]))
