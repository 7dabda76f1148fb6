"""Backend that runs the components of one run in windows of tmux.

A process in a window is not a child of this process: its end is detected by pidfd, and tmux
reports its exit code. A user may start it again, in the window or in another shell. Of several
processes with one name the latest is supervised.
"""

from __future__ import annotations

import os
import select
import shlex
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from session.addons.tmux.session import Pane, TmuxSession
from session.errors import START_AGAIN, RunError
from session.folder import RunFolder
from session.launchers.backend import Exit, StderrTail
from session.launchers.fork_client import ONE_THREAD
from session.launchers.memory_use import OutOfMemory
from session.launchers.status import process_lives
from session.loggerplex.terminal import TERMINAL
from session.process.component import Component
from session.process.heartbeat import Beat, State, read_beats
from session.process.periodic import Every
from session.program import shell_line


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """Command line that starts one process, in a window or in any other shell.

    Args:
        command: command line.
        preamble_cmd: shell command to run first, for example to activate an environment.
    """

    command: str
    preamble_cmd: str = ""

    @classmethod
    def of(cls, component: Component, folder: str, preamble_cmd: str = "") -> Self:
        """Returns the command of a component in a run folder."""
        variables = [f"{name}={value}" for name, value in ONE_THREAD.items()]
        return cls(shlex.join(["env", *variables, *component.command(folder)]), preamble_cmd)

    @classmethod
    def of_supervisor(cls, module: str, folder: str, preamble_cmd: str = "") -> Self:
        """Returns the command of a supervisor."""
        command = [sys.executable, "-P", "-m", module, "--folder", folder]
        return cls(shlex.join(command), preamble_cmd)

    def __str__(self) -> str:
        return shell_line(self.command, self.preamble_cmd)

    def script(self, output: Path) -> str:
        """Bash script for a window: prints the command, executes it and records its output.

        Args:
            output: file to which standard output and standard error are also appended.
        """
        steps = [
            f"printf '%s\\n' {shlex.quote(str(self))}",
            # tee must survive Ctrl-C and the hang-up at the end of the process: it still reads the
            # last output.
            "trap '' INT HUP",
            f"exec > >(exec tee -a {shlex.quote(str(output))}) 2>&1",
            "trap - INT HUP",
            # Output for display only goes to the terminal and not through tee into the file.
            f"export {TERMINAL}=/dev/tty",
            shell_line(f"exec {self.command}", self.preamble_cmd),
        ]
        if self.preamble_cmd.strip().rstrip(";"):
            # Reached only if the preamble fails: the window must show the error before it closes.
            steps.append("code=$?; exec >&- 2>&-; wait $!; exit $code")
        return "\n".join(steps)


SUPERVISOR = "supervisor"
_LOOK_SECONDS = 0.5
# tmux reports an end a moment later than the kernel.
_SETTLE_SECONDS = 2.0
_OPEN_STATES = (State.starting, State.running)


@dataclass(slots=True)
class _Window:
    """One component.

    Args:
        output: output of its process.
        pane: latest known state of its window.
        pid: living process, 0 without one.
        descriptor: pidfd, readable once the process has ended; -1 without one.
        ended_at: time at which the kernel reported its end; 0 while it lives.
        since: monotonic time of its start [s].
    """

    output: StderrTail
    pane: Pane
    pid: int = 0
    descriptor: int = -1
    ended_at: float = 0.0
    since: float = 0.0

    @property
    def elsewhere(self) -> bool:
        """True if its process was started outside the window."""
        return self.pid not in (0, self.pane.pid)

    def watch(self, pid: int, since: float) -> None:
        """Sets its process."""
        self.forget()
        self.pid, self.since = pid, since
        with suppress(OSError):
            self.descriptor = os.pidfd_open(pid)

    def forget(self) -> None:
        """Removes its process."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.pid, self.descriptor, self.ended_at = 0, -1, 0.0

    def dead(self, pane: Pane | None) -> bool:
        """Returns True once tmux reports that the process has ended."""
        return pane is not None and pane.pid == self.pid and pane.dead

    def exit_known(self, pane: Pane | None) -> bool:
        """Returns True once tmux reports the exit code of the process."""
        return pane is not None and pane.pid == self.pid and pane.exit_code is not None

    def older_than(self, beat: Beat) -> bool:
        """Returns True if the heartbeat comes from a living process that was started later."""
        return (
            beat.pid not in (self.pid, self.pane.pid)
            and beat.began > self.since
            and beat.state in _OPEN_STATES
            and process_lives(beat)
        )

    @property
    def over(self) -> bool:
        """True once the kernel reports that the process has ended."""
        if self.descriptor < 0:
            return not Path(f"/proc/{self.pid}").exists()
        return bool(select.select([self.descriptor], [], [], 0)[0])


class TmuxBackend:
    """The windows of one run; the session exists already, with the supervisor's window.

    Args:
        folder: the run folder, as an absolute path.
        session: session of the run.
        preamble_cmd: shell command to run before each component.
        servers: components that bind endpoints.
    """

    def __init__(
        self,
        folder: RunFolder,
        session: TmuxSession,
        *,
        preamble_cmd: str = "",
        servers: Collection[str] = (),
    ) -> None:
        self._folder = folder
        self._session = session
        self._preamble_cmd = preamble_cmd
        self._windows: dict[str, _Window] = {}
        self._starts: dict[str, int] = {}
        self._servers = servers
        self._exits: list[Exit] = []
        self._taken: list[str] = []
        self._look_due = Every(seconds=_LOOK_SECONDS, clock=time.monotonic)
        self._memory = OutOfMemory()
        for name, pane in session.panes().items():
            if name != SUPERVISOR:
                self._windows[name] = _Window(StderrTail(folder, name, self._memory), pane)
                self._windows[name].watch(pane.pid, 0)
                self._starts[name] = pane.starts

    @property
    def starts(self) -> dict[str, int]:
        """Component -> number of its starts, for all components with a window, living or not."""
        return {name: self._starts[name] for name in self._windows}

    def pid(self, name: str) -> int:
        """Returns the process id of a component, 0 if it has no process."""
        return self._windows[name].pid if name in self._windows else 0

    def start(self, component: Component) -> None:
        """Starts a component, in its existing window if there is one."""
        name, output = component.name, StderrTail(self._folder, component.name, self._memory)
        self._starts[name] = starts = self._starts.get(name, 0) + 1
        line = ShellCommand.of(component, str(self._folder), self._preamble_cmd)
        script, there, since = line.script(output.path), self._windows.get(name), time.monotonic()
        try:
            if there is not None and name in self._session.panes():
                pane = self._session.respawn(there.pane, script, Path.cwd(), starts)
            else:
                pane = self._session.open(name, script, Path.cwd(), starts)
        except RunError as error:
            self._exits.append(output.exit(0, 1, f"cannot start it: {error}"))
            return
        if there is not None:
            there.forget()
        self._windows[name] = _Window(output, pane)
        self._windows[name].watch(pane.pid, since)

    def signal(self, name: str, number: int) -> None:
        """Sends a signal; SIGKILL goes to the whole group of the process."""
        if (pid := self.pid(name)) == 0:
            return
        with suppress(ProcessLookupError):
            if number == signal.SIGKILL and os.getpgid(pid) == pid:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)

    def wait_on(self) -> list[int]:
        """Returns file descriptors that are readable when :meth:`poll` has something to return."""
        # A pidfd that was readable once stays so and would make each wait return at once.
        living = (w for w in self._windows.values() if w.descriptor >= 0 and not w.ended_at)
        return [window.descriptor for window in living]

    def poll(self) -> list[Exit]:
        """Returns the processes that have ended since the last call, without waiting."""
        now = time.monotonic()
        ended = [w for w in self._windows.values() if w.pid and not w.ended_at and w.over]
        for window in ended:
            window.ended_at = now
        if ended or self._look_due() or any(w.ended_at for w in self._windows.values()):
            self._read_panes(now)
        exits, self._exits = self._exits, []
        return exits

    def manual_restarts(self) -> list[str]:
        """Returns the components that a user has restarted by hand since the last call."""
        taken, self._taken = self._taken, []
        return taken

    def _read_panes(self, now: float) -> None:
        panes, beats = self._session.panes(), read_beats(self._folder.alive)
        for name, window in self._windows.items():
            pane = panes.get(name)
            if pane is not None and pane.pid != window.pane.pid and not pane.dead:
                self._on_manual_restart(name, window, pane.pid, time.monotonic())
            elif (beat := beats.get(name)) is not None and window.older_than(beat):
                self._on_manual_restart(name, window, beat.pid, beat.began)
            elif window.pid and (window.ended_at or window.dead(pane)):
                window.ended_at = window.ended_at or now
                self._reap(window, pane, now)
            if pane is not None:
                window.pane = pane

    def _on_manual_restart(self, name: str, window: _Window, pid: int, since: float) -> None:
        """Takes over a process that a user has started; ends the previous one if it lives."""
        if window.pid and not window.ended_at:
            # A server that drains would close the endpoints that the new one has bound.
            self.signal(name, signal.SIGKILL if name in self._servers else signal.SIGTERM)
        window.output = StderrTail(self._folder, name, self._memory)
        window.watch(pid, since)
        self._taken.append(name)
        self._starts[name] = self._starts.get(name, 0) + 1

    def _reap(self, window: _Window, pane: Pane | None, now: float) -> None:
        """Reports the exit once tmux reports its code, or after 2 seconds without."""
        known = window.exit_known(pane)
        waits = not known and pane is not None and not window.elsewhere
        if waits and now - window.ended_at < _SETTLE_SECONDS:
            return
        if window.elsewhere:
            end = window.output.exit(window.pid, self._code_by_beat(window))
        elif pane is None:
            end = window.output.exit(window.pid, -signal.SIGHUP, "its window was closed")
        elif pane.exit_code is not None:
            end = window.output.exit(window.pid, pane.exit_code)
        else:
            # Before version 3.3 tmux does not report the signal.
            end = window.output.exit(window.pid, -signal.SIGKILL)
        if not known:
            # Its children may still hold the terminal of the window.
            with suppress(OSError):
                os.killpg(window.pid, signal.SIGKILL)
        window.forget()
        self._exits.append(end)

    def _code_by_beat(self, window: _Window) -> int:
        """Derives the exit code from the last heartbeat: tmux reports none outside the window."""
        beats = read_beats(self._folder.alive).values()
        if not any(b.pid == window.pid and b.state == State.done for b in beats):
            return 1
        # It was not ended by itself while the run goes on.
        return 0 if self._folder.over else START_AGAIN

    def remove(self, name: str) -> None:
        """Closes the window of a component that has ended."""
        window = self._windows.pop(name, None)
        if window is not None:
            window.forget()
            self._session.close(window.pane)

    def close(self) -> None:
        """Kills the remaining processes and closes their windows; the session stays."""
        for name in list(self._windows):
            self.signal(name, signal.SIGKILL)
            self.remove(name)
