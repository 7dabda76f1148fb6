"""The tmux launcher: every component a window, and a supervisor in a window of its own."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from session.component import Topology
from session.config import Config
from session.errors import DeadlineError, UsageError
from session.folder import RunFolder
from session.heartbeat import Beat, read_beats
from session.launchers.handle import RunHandle
from session.launchers.launcher import ComponentStatus, Outcome
from session.launchers.shell_command import ShellCommand
from session.launchers.starting import (
    SUPERVISOR_MODULE,
    await_supervisor,
    refuse_running,
    write_config,
)
from session.launchers.status import state_by_beat, status_row
from session.launchers.tmux_backend import SUPERVISOR
from session.launchers.tmux_session import Pane, require_tmux
from session.launchers.tmux_supervisor import find_session
from session.wire.sockets import poll

_LOOK_SECONDS = 0.05


class TmuxRun(RunHandle):
    """A run in tmux, commanded from any shell of its machine, its supervisor dead or alive.

    Args:
        folder: the run folder.
    """

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(RunFolder(folder.path.resolve()))
        self._session = find_session(self._folder)

    @property
    def running(self) -> bool:
        """True while somebody supervises it, or its session is there."""
        return self._folder.in_use or self._session.exists

    def status(self) -> list[ComponentStatus]:
        """The table of components; without a supervisor what tmux and the beats tell."""
        if self._folder.in_use or not self._session.exists:
            return super().status()
        beats = read_beats(self._folder.alive)
        panes = self._session.panes()
        supervisor = status_row(SUPERVISOR, None, state="dead")
        rows = [_row(pane, beats.get(name)) for name, pane in panes.items() if name != SUPERVISOR]
        return [*rows, supervisor]

    def restart(self, name: str) -> None:
        """Ends one component and starts it again; ``supervisor`` is brought back where it died.

        Raises:
            UsageError: there is no such component; the run is over, or without a supervisor.
        """
        if name == SUPERVISOR:
            self._revive()
        else:
            self._refuse_unsupervised()
            super().restart(name)

    def scale(self, kind: str, num: int) -> None:
        """Makes it so many agents or evaluators (``agent``, ``eval``).

        Raises:
            UsageError: there is nothing of that kind to scale; the run is over, or without a
                supervisor.
        """
        self._refuse_unsupervised()
        super().scale(kind, num)

    def stop(self, *, interrupted: bool = False, reason: str = "stopped by command") -> None:
        """Begins the clean end of the run and returns; without a supervisor it gets one first.

        Raises:
            UsageError: it does not run.
        """
        if not self._folder.in_use and self._session.exists:
            self._revive()
        # One that comes back finds its run over, and clears up.
        if self._folder.in_use or not self._folder.over:
            super().stop(interrupted=interrupted, reason=reason)

    def wait(self, timeout_seconds: float | None = None) -> Outcome:
        """Waits until the run is over: until its session has gone, or all in it have ended.

        Raises:
            DeadlineError: that took longer than ``timeout_seconds``.
        """
        start = time.monotonic()
        while self._folder.in_use or self._living():
            if timeout_seconds is not None and time.monotonic() - start > timeout_seconds:
                raise DeadlineError(f"run {self._folder} goes on after {timeout_seconds:g} s")
            poll([], _LOOK_SECONDS)
        result = self._folder.read_result() or {}
        return Outcome(str(result.get("status", "failed")), str(result.get("reason", "")))

    def attach_command(self) -> list[str]:
        """The command that shows the windows of the run in a terminal.

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

    def _revive(self) -> None:
        """Starts the supervisor again; it takes over whoever lives."""
        panes = self._session.panes()
        if not panes:
            raise UsageError(f"run {self._folder} is not running: it has no windows")
        pane = panes.get(SUPERVISOR)
        if pane is not None and not pane.dead:
            # Politely asked it would end the run.
            with suppress(ProcessLookupError):
                os.kill(pane.pid, signal.SIGKILL)
            self._await_end()
        line, starts = self._line(), pane.starts + 1 if pane is not None else 2
        script = line.script(self._folder.logs / f"{SUPERVISOR}.err")
        if pane is not None:
            self._session.respawn(pane, script, Path.cwd(), starts)
        else:
            self._session.open(SUPERVISOR, script, Path.cwd(), starts)
        await_supervisor(self._folder, lambda: not self._supervised())

    def _line(self) -> ShellCommand:
        config = Config.load_file(self._folder.config)
        module = config["run"]["tmux"]["supervisor"]
        preamble_cmd = config.session_config.launcher.preamble_cmd
        return ShellCommand.of_supervisor(module, str(self._folder), preamble_cmd)

    def _supervised(self) -> bool:
        pane = self._session.panes().get(SUPERVISOR)
        return pane is not None and not pane.dead

    def _await_end(self) -> None:
        deadline = time.monotonic() + _LOOK_SECONDS * 100
        while self._supervised() and time.monotonic() < deadline:
            poll([], _LOOK_SECONDS)


class TmuxCluster(TmuxRun):
    """Launches a run into a session of tmux, where it goes on by itself; then commands it.

    Args:
        config: the resolved experiment.
        topology: its components.
        folder: the run folder, made already.
        preamble_cmd: shell command before that of each component, such as one that activates an
            environment; empty: ``session_config.launcher.preamble_cmd``.
        supervisor_module: entry module of the supervisor.
    """

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
        """Starts the supervisor in the first window, and returns once it answers.

        Raises:
            UsageError: there is no tmux, or the run is there already.
            RunError: the supervisor died at once; in its own words.
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
        write_config(self._folder, self._config, "tmux", tmux=facts)
        said = self._folder.logs / f"{SUPERVISOR}.err"
        self._session.create(SUPERVISOR, self._line().script(said), Path.cwd())
        try:
            await_supervisor(self._folder, lambda: not self._supervised())
        except BaseException:
            # Nothing may be left of a run that nobody commands; its words are in the folder.
            for pane in self._session.panes().values():
                with suppress(ProcessLookupError):
                    os.killpg(pane.pid, signal.SIGKILL)
            self._session.end()
            raise

    def dry_run(self) -> str:
        """The line of each window; pasted into shells they are the same run."""
        preamble_cmd, folder = self._config.session_config.launcher.preamble_cmd, str(self._folder)
        supervisor = ShellCommand.of_supervisor(self._supervisor_module, folder, preamble_cmd)
        lines = [ShellCommand.of(each, folder, preamble_cmd) for each in self._topology]
        where = self._session.command("attach-session", "-t", f"={self._session.name}")
        return "\n".join([f"# windows of: {where}", str(supervisor), *map(str, lines)])


def _row(pane: Pane, beat: Beat | None) -> ComponentStatus:
    """A window as it is, where nobody supervises it."""
    own = beat if beat is not None and beat.pid == pane.pid else None
    if not pane.dead:
        state = state_by_beat(own) if own is not None else "starting"
    else:
        state = "gone" if pane.exit_code == 0 else "dead"
    return status_row(
        pane.component,
        beat,
        state=state,
        pid=0 if pane.dead else pane.pid,
        restarts=max(0, pane.starts - 1),
        exit_code=pane.exit_code,
    )
