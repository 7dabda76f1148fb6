"""The tmux launcher: one window per component, and one for the supervisor."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from session.addons.tmux.backend import SUPERVISOR, ShellCommand, TmuxBackend
from session.addons.tmux.session import Pane, TmuxSession, require_tmux, session_name
from session.config import Config
from session.errors import UsageError
from session.folder import RunFolder
from session.launchers.backend import Backend
from session.launchers.handle import Cluster, RunHandle
from session.launchers.instruction import Instruction
from session.launchers.launcher import (
    SUPERVISOR_MODULE,
    await_supervisor,
    refuse_running,
    write_launch,
)
from session.launchers.status import ComponentStatus, state_by_beat, status_row
from session.launchers.supervisor import Supervisor
from session.process.component import Topology
from session.process.heartbeat import Beat, State, read_beats
from session.process.periodic import wait_until


class TmuxSupervisor(Supervisor):
    """Supervises the windows of a run; takes over windows that exist already.

    Args:
        config: the resolved experiment.
        topology: components of the run and their wiring.
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


_LOOK_SECONDS, _END_SECONDS = 0.05, 5.0


class TmuxRun(RunHandle):
    """Controls a run in tmux from any shell of its machine, even if its supervisor is dead.

    Args:
        folder: the run folder.
    """

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(RunFolder(folder.path.resolve()))
        self._session = find_session(self._folder)

    @property
    def running(self) -> bool:
        """True while a supervisor holds the run folder or the tmux session exists."""
        return self._folder.in_use or self._session.exists

    def status(self) -> list[ComponentStatus]:
        """Returns the table of components; without a supervisor from tmux and heartbeats."""
        if self._folder.in_use or not self._session.exists:
            return super().status()
        beats = read_beats(self._folder.alive)
        panes = self._session.panes()
        supervisor = status_row(SUPERVISOR, None, state=State.dead)
        rows = [_row(pane, beats.get(name)) for name, pane in panes.items() if name != SUPERVISOR]
        return [*rows, supervisor]

    def restart(self, name: str) -> None:
        """Ends one component and starts it again; ``supervisor`` restarts a dead supervisor.

        Raises:
            UsageError: there is no such component; the run is over, or has no supervisor.
        """
        if name == SUPERVISOR:
            self._restart_supervisor()
        else:
            self._refuse_unsupervised()
            super().restart(name)

    def scale(self, kind: str, num: int) -> None:
        """Sets the number of agents or evaluators (``agent``, ``eval``).

        Raises:
            UsageError: there is nothing of that kind to scale; the run is over, or has no
                supervisor.
        """
        self._refuse_unsupervised()
        super().scale(kind, num)

    def stop(self, *, interrupted: bool = False, reason: str = "stopped by command") -> None:
        """Begins the clean end of the run and returns at once; restarts a dead supervisor first.

        Raises:
            UsageError: it does not run.
        """
        revived = not self._folder.in_use and self._session.exists
        if revived:
            self._restart_supervisor()
        # A restarted supervisor of a run that is over cleans up without a command.
        if not revived or not self._folder.over:
            super().stop(interrupted=interrupted, reason=reason)

    def _goes_on(self) -> bool:
        """Returns True while a process of its windows lives, even after the supervisor's end."""
        return self._folder.in_use or self._living()

    def attach_command(self) -> list[str]:
        """Returns the command that shows the windows of the run in a terminal.

        Raises:
            UsageError: it has no windows any more.
        """
        if not self._session.exists:
            raise UsageError(f"run {self._folder} is not running: it has no windows to attach to")
        return self._session.attach_command()

    def _living(self) -> bool:
        return any(not pane.dead for pane in self._session.panes().values())

    def _refuse_unsupervised(self) -> None:
        if not self._folder.in_use and self._session.exists:
            raise UsageError(
                f"the supervisor of run {self._folder} is dead: bring it back with: "
                f"surreal-like restart {self._folder} {SUPERVISOR}"
            )

    def _restart_supervisor(self) -> None:
        """Starts the supervisor again; it takes over the living processes."""
        panes = self._session.panes()
        if not panes:
            raise UsageError(f"run {self._folder} is not running: it has no windows")
        pane = panes.get(SUPERVISOR)
        if pane is not None and not pane.dead:
            # SIGKILL, because on SIGTERM it would end the run.
            with suppress(ProcessLookupError):
                os.kill(pane.pid, signal.SIGKILL)
            self._await_end()
        line, starts = self._line(), pane.starts + 1 if pane is not None else 2
        script = line.script(self._folder.logs / f"{SUPERVISOR}.err")
        if pane is not None:
            self._session.respawn(pane, script, Path.cwd(), starts)
        else:
            self._session.open(SUPERVISOR, script, Path.cwd(), starts)
        await_supervisor(self._folder, lambda: not self._supervise())

    def _line(self) -> ShellCommand:
        config = self._folder.read_config()
        module = config["run"]["tmux"]["supervisor"]
        preamble_cmd = config.session_config.launcher.preamble_cmd
        return ShellCommand.of_supervisor(module, str(self._folder), preamble_cmd)

    def _supervise(self) -> bool:
        pane = self._session.panes().get(SUPERVISOR)
        return pane is not None and not pane.dead

    def _await_end(self) -> None:
        wait_until(lambda: not self._supervise(), _END_SECONDS, look_seconds=_LOOK_SECONDS)


class TmuxCluster(TmuxRun, Cluster):
    """Launches a run in a session of tmux, detached from this process; then controls it.

    Args:
        config: the resolved experiment.
        topology: components of the run and their wiring.
        folder: the run folder, made already.
        preamble_cmd: shell command to run before each component, for example to activate an
            environment; empty: ``session_config.launcher.preamble_cmd``.
        supervisor_module: entry module of the supervisor.
    """

    name = "tmux"

    def __init__(
        self,
        config: Config,
        topology: Topology,
        folder: RunFolder,
        preamble_cmd: str = "",
        *,
        supervisor_module: str = SUPERVISOR_MODULE,
    ) -> None:
        super().__init__(folder)
        self._config = config
        self._topology = topology
        self._supervisor_module = supervisor_module
        launcher = config.session_config.launcher
        launcher.preamble_cmd = preamble_cmd or launcher.preamble_cmd

    def launch(self) -> None:
        """Starts the supervisor in the first window, and returns once it replies.

        Raises:
            UsageError: there is no tmux, or the run exists already.
            RunError: the supervisor died at once; with its own message.
        """
        require_tmux()
        refuse_running(self._folder)
        if self._session.exists:
            raise UsageError(
                f"tmux has a session {self._session.name} already, of an earlier part of this "
                f"run; end it with: surreal-like stop {self._folder}"
            )
        facts = {"socket": str(self._session.path), "session": self._session.name}
        facts["supervisor"] = self._supervisor_module
        write_launch(self._folder, self._config, self._topology, self.name, tmux=facts)
        stderr = self._folder.logs / f"{SUPERVISOR}.err"
        self._session.create(SUPERVISOR, self._line().script(stderr), Path.cwd())
        try:
            await_supervisor(self._folder, lambda: not self._supervise())
        except BaseException:
            # A run whose launch failed must leave no process; its output is in the folder.
            for pane in self._session.panes().values():
                with suppress(ProcessLookupError):
                    os.killpg(pane.pid, signal.SIGKILL)
            self._session.end()
            raise

    def dry_run(self) -> str:
        """Returns the command of each window; pasted into shells they are the same run."""
        preamble_cmd, folder = self._config.session_config.launcher.preamble_cmd, str(self._folder)
        supervisor = ShellCommand.of_supervisor(self._supervisor_module, folder, preamble_cmd)
        lines = [ShellCommand.of(each, folder, preamble_cmd) for each in self._topology]
        where = self._session.command("attach-session", "-t", f"={self._session.name}")
        return "\n".join([f"# windows of: {where}", str(supervisor), *map(str, lines)])


def _row(pane: Pane, beat: Beat | None) -> ComponentStatus:
    """Builds the row of a window of a run without a supervisor."""
    own = beat if beat is not None and beat.pid == pane.pid else None
    if not pane.dead:
        state = state_by_beat(own) if own is not None else State.starting
    else:
        state = State.gone if pane.exit_code == 0 else State.dead
    return status_row(
        pane.component,
        beat,
        state=state,
        pid=0 if pane.dead else pane.pid,
        restarts=max(0, pane.starts - 1),
        exit_code=pane.exit_code,
    )


def attach(run: TmuxRun) -> None:
    """Replaces this process by a client of tmux that shows the windows of a run."""
    command = run.attach_command()
    os.execvp(command[0], command)
