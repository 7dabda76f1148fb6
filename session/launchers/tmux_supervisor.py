"""Supervisor of a run in windows of tmux, whose processes are not its children."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from session.config import Config
from session.errors import UsageError
from session.folder import RunFolder
from session.launchers.backend import Backend
from session.launchers.instruction import Instruction
from session.launchers.supervisor import Supervisor
from session.launchers.tmux_backend import TmuxBackend
from session.launchers.tmux_session import TmuxSession, session_name
from session.process.component import Topology


class TmuxSupervisor(Supervisor):
    """Supervises the windows of a run; takes over windows that exist already.

    Args:
        config: the resolved experiment.
        topology: its components.
        folder: the run folder; the session of the run exists already.
    """

    def __init__(self, config: Config, topology: Topology, folder: RunFolder) -> None:
        super().__init__(config, topology, folder)
        self._session = find_session(folder)
        self._windows: TmuxBackend | None = None

    def _write_files(self) -> None:
        servers = [each.name for each in self._topology if each.binds]
        preamble_cmd = self._config.session_config.launcher.preamble_cmd
        self._windows = TmuxBackend(
            self._folder, self._session, preamble_cmd=preamble_cmd, servers=servers
        )
        if not (self._windows.starts and self._folder.addresses.is_file()):
            super()._write_files()

    def _make_backend(self) -> Backend:
        if self._windows is None:
            raise UsageError("a supervisor is launched once")
        return self._windows

    def _begin(self, now: float) -> list[Instruction]:
        starts = self._windows.starts if self._windows is not None else {}
        return self._supervision.adopt(starts, now) if starts else super()._begin(now)

    def _close(self) -> None:
        had_backend = self.running
        super()._close()
        if had_backend:
            # This process may live in a window of the session that ends now.
            with suppress(ValueError):
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
            self._session.end()


def find_session(folder: RunFolder) -> TmuxSession:
    """Returns the session of a run, from its config, or with the name that a launch would use."""
    facts: Mapping[str, str] = folder.read_run().get("tmux") or {}
    path = Path(facts["socket"]) if "socket" in facts else None
    return TmuxSession(facts.get("session", session_name(folder)), path)
