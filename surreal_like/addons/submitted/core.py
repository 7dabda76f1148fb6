"""Runs everything of a run but its agents, which join as machines of their own."""

from __future__ import annotations

import sys

from session.config import Config
from session.errors import NOTICE, START_AGAIN
from session.folder import RunFolder
from session.launchers.instruction import Event
from session.launchers.local import LocalLauncher
from session.process.component import Topology
from session.process.periodic import wait_until
from surreal_like.run.observer import RunObserver
from surreal_like.run.request import RunRequest
from surreal_like.run.start import LocalStarter
from surreal_like.run.train import run_here

_LOCK_SECONDS = 60.0
_LOOK_SECONDS = 0.5


class _CoreStarter(LocalStarter):
    """Starts the components of a run but its agents."""

    def launch(self, config: Config, topology: Topology, folder: RunFolder) -> LocalLauncher:
        """Starts every component but the agents as a supervised process."""
        core = Topology(each for each in topology if each.kind != "agent")
        return super().launch(config, core, folder)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class _Lines(RunObserver):
    """Prints messages and events, one a line, for the output of a job."""

    def on_message(self, text: str) -> None:
        _print(text)

    def on_event(self, event: Event) -> None:
        _print(str(event))


def run_core(folder: RunFolder, host: str) -> int:
    """Begins the run that a launcher has written, or goes on with it, in this process.

    Args:
        folder: the run folder.
        host: address of this machine that others can reach.

    Returns the exit code of ``surreal-like train``; 75 if SIGTERM has ended it: it is saved.

    Raises:
        ConfigError, UsageError: the run cannot go on; nothing was started.
    """
    # The part before, on another machine, may hold it a little longer.
    wait_until(lambda: not folder.in_use, _LOCK_SECONDS, look_seconds=_LOOK_SECONDS)
    request = RunRequest(None, folder.launcher, folder=folder.path, host=host, resume=True)
    ended = run_here(request, _Lines(), _CoreStarter(request.read().algorithm))
    _print(f"{ended.result.get('status')}: {ended.result.get('reason')}")
    return START_AGAIN if ended.result.get("reason") == NOTICE else ended.exit_code
