"""Supervising a run as the only work of a process."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from setproctitle import setproctitle

from session.addons import load
from session.config import Config
from session.errors import SurrealError
from session.folder import RunFolder
from session.launchers.fork_client import Preload
from session.launchers.instruction import Event
from session.launchers.launcher import Outcome
from session.launchers.registry import launcher_of
from session.launchers.supervisor import Supervisor
from session.loggerplex.terminal import Terminal
from session.process.component import Topology

_POLL_SECONDS = 0.2
# SIGHUP comes when the window of a supervisor is closed.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_EXIT_CODES = {"stopped": 0, "interrupted": 130}


def run_supervisor(module: str, preload: Preload, argv: Sequence[str] | None = None) -> int:
    """Supervises the run in a folder, as this process, to its end; returns the exit code.

    Args:
        module: module on the command line of this process.
        preload: modules that the fork servers of a local run import.
        argv: command line, by default this process's own.
    """
    parser = argparse.ArgumentParser(prog=f"python -P -m {module}", description=__doc__)
    parser.add_argument("--folder", required=True, help="run folder with config.yaml")
    given = parser.parse_args(argv)
    setproctitle(f"python -P -m {module} --folder {given.folder}")
    folder = RunFolder(given.folder)
    # Not standard error: that is kept in a file, for errors of the supervisor.
    terminal = Terminal.of_process() or Terminal(-1)
    try:
        config = folder.read_config()
        topology = Topology.load(folder.topology)
        names = [component.name for component in topology]
        terminal.show(f"supervising {len(names)} components: {', '.join(names)}")
        launcher = _make_supervisor(config, topology, folder, preload)
        outcome = supervise(launcher, lambda event: terminal.show(str(event)))
    except SurrealError as error:
        sys.stderr.write(f"supervisor: {error}\n")
        return error.exit_code
    return _EXIT_CODES.get(outcome.status, 1)


def _make_supervisor(
    config: Config, topology: Topology, folder: RunFolder, preload: Preload
) -> Supervisor:
    if home := launcher_of(folder.launcher).supervisor:
        supervisor: Supervisor = load(home)(config, topology, folder)
        return supervisor
    from session.launchers.local import LocalLauncher

    return LocalLauncher(config, topology, folder, preload=preload)


def supervise(launcher: Supervisor, report: Callable[[Event], None]) -> Outcome:
    """Launches a run and supervises it until it is over.

    The first SIGINT, SIGTERM or SIGHUP ends the run cleanly, the second ends it at once.

    Args:
        launcher: launcher of the run.
        report: function that is called with each event.

    Raises:
        UsageError: the folder is in use, or an address.
    """
    with launcher, _interrupts() as interrupts:
        launcher.launch()
        handled = 0
        while launcher.running:
            for event in launcher.poll(_POLL_SECONDS):
                report(event)
            if len(interrupts) > handled:
                handled = len(interrupts)
                if handled == 1:
                    launcher.stop(interrupted=True, reason=f"got {interrupts[0]}")
                else:
                    launcher.kill()
        return launcher.wait()


@contextmanager
def _interrupts() -> Iterator[list[str]]:
    """Collects the names of signals that arrive; raises nothing for them."""
    came: list[str] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        came.append(signal.Signals(number).name)

    before = {each: signal.signal(each, on_signal) for each in _SIGNALS}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
