"""One session of a private tmux server, with its windows and their processes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import signal
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import libtmux

from session.errors import RunError, UsageError
from session.folder import RunFolder
from session.process.periodic import wait_until

SOCKET_NAME = "surreal-like"
# Not the user's own configuration: a run must not depend on it.
_CONFIG_FILE = "/dev/null"
_PANE = (
    "#{pane_id} #{pane_pid} #{pane_dead} status=#{pane_dead_status} signal=#{pane_dead_signal} "
    "starts=#{@starts} component=#{@component}"
)
_OPTIONS = (
    # A window stays after the end of its process, so that its exit code can be read.
    ("set-option", "-g", "remain-on-exit", "on"),
    ("set-option", "-g", "automatic-rename", "off"),
    ("set-option", "-g", "allow-rename", "off"),
    ("set-option", "-g", "history-limit", "20000"),
    # Room for long names of runs.
    ("set-option", "-g", "status-left-length", "60"),
    ("set-option", "-g", "mouse", "on"),
)
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_END_SECONDS = 3.0
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Pane:
    """The window of one component.

    Args:
        pane_id: identifier in tmux.
        component: name of its component.
        pid: process id, kept after the end.
        dead: True if its process has ended.
        exit_code: code of that process, below 0 its signal; None while it lives, and for
            a moment after. Before tmux 3.3 it stays None after a signal.
        starts: number of processes that a launcher has started in it.
    """

    pane_id: str
    component: str
    pid: int
    dead: bool
    exit_code: int | None
    starts: int

    @classmethod
    def parse(cls, line: str) -> Self:
        """Parses a line of ``list-panes``."""
        pane_id, pid, dead, *rest = line.split(" ")
        values = dict(word.partition("=")[::2] for word in rest)
        # For tmux a pane is dead once no process holds its terminal; children may hold it longer
        # than the process itself, or release it earlier.
        known = bool(values["status"] or values["signal"])
        code = int(values["status"] or -int(values["signal"])) if known else None
        starts = int(values["starts"] or 1)
        return cls(pane_id, values["component"], int(pid), known or dead == "1", code, starts)


def require_tmux() -> None:
    """Refuses a machine without tmux.

    Raises:
        UsageError: with the command that installs it.
    """
    if shutil.which("tmux") is None:
        raise UsageError(
            "no tmux on the PATH: install it (Debian, Ubuntu: apt-get install tmux), or launch "
            "with --on local"
        )


def session_name(folder: RunFolder) -> str:
    """Returns the session name of a run: folder name plus hash, as two folders may share a name."""
    path = folder.path.resolve()
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:6]
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '-', path.name).strip('-') or 'run'}-{digest}"


def default_socket() -> Path:
    """Returns the socket of this user's private server, by the environment of this shell."""
    return Path(os.environ.get("TMUX_TMPDIR") or "/tmp") / f"tmux-{os.getuid()}" / SOCKET_NAME


class TmuxSession:
    """The session of one run.

    Args:
        name: name of the session.
        path: socket of the server, default :func:`default_socket`.
    """

    def __init__(self, name: str, path: Path | None = None) -> None:
        self.name = name
        self.path = path or default_socket()
        self._server = libtmux.Server(socket_path=self.path, config_file=_CONFIG_FILE)

    @property
    def exists(self) -> bool:
        """True while the session exists in tmux."""
        if not self.path.exists() or shutil.which("tmux") is None:
            return False
        return self._server.cmd("has-session", "-t", f"={self.name}").returncode == 0

    def panes(self) -> dict[str, Pane]:
        """Returns component -> its window; empty without a session."""
        done = self._server.cmd("list-panes", "-s", "-t", f"={self.name}", "-F", _PANE)
        panes = [Pane.parse(line) for line in (done.stdout if done.returncode == 0 else ())]
        if any(pane.dead and pane.exit_code is None for pane in panes):
            self._wake()
        return {pane.component: pane for pane in panes if pane.component}

    def _wake(self) -> None:
        """Makes tmux check its children again, by SIGCHLD: it can miss the end of one.

        A tmux that records terminals in utmp misses ends while it writes there. It writes when a
        terminal is released, which is just when its process ends.
        """
        for pid in self._server.cmd("display-message", "-p", "#{pid}").stdout:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGCHLD)

    def create(self, component: str, script: str, folder: Path) -> Pane:
        """Starts the session with its first window; its processes inherit this one's environment.

        Args:
            component: name of the window's component.
            script: bash script to run in it.
            folder: current folder of all windows.

        Raises:
            RunError: tmux reports an error.
        """
        # tmux makes this folder for -L only; 0700 keeps other users out.
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        options = [word for option in _OPTIONS for word in (";", *option)]
        # A server keeps the environment of its first client: each session gets its own.
        names = " ".join(sorted(self._environment_names()))
        new = ("new-session", "-d", "-s", self.name, "-n", component, "-c", str(folder))
        self._do(
            *("start-server", *options, ";", "set-option", "-g", "update-environment", names, ";"),
            *(*new, "-x", "200", "-y", "50", "bash", "-c", script, ";"),
            # Clients that attach later must not change the environment of restarted components.
            *("set-option", "-t", self.name, "update-environment", ""),
        )
        return self._mark(f"={self.name}:={component}", component, 1)

    def open(self, component: str, script: str, folder: Path, starts: int) -> Pane:
        """Opens another window; arguments as in :meth:`create`.

        Raises:
            RunError: tmux reports an error.
        """
        new = ("new-window", "-d", "-P", "-F", "#{pane_id}", "-t", f"={self.name}:")
        output = self._do(*new, "-n", component, "-c", str(folder), "bash", "-c", script)
        return self._mark(output[0], component, starts)

    def respawn(self, pane: Pane, script: str, folder: Path, starts: int) -> Pane:
        """Starts a process in a window whose last one has ended; keeps one that still lives.

        Raises:
            RunError: the window does not exist any more.
        """
        again = ("respawn-pane", "-t", pane.pane_id, "-c", str(folder), "bash", "-c", script)
        # Fails if a user has restarted it first: then the user's process is kept.
        self._server.cmd(*again)
        return self._mark(pane.pane_id, pane.component, starts)

    def _mark(self, target: str, component: str, starts: int) -> Pane:
        option = ("set-option", "-p", "-t", target)
        output = self._do(
            *(*option, "@component", component, ";", *option, "@starts", str(starts), ";"),
            *("display-message", "-p", "-t", target, _PANE),
        )
        return Pane.parse(output[0])

    def close(self, pane: Pane) -> None:
        """Closes a window and ends its processes."""
        self._server.cmd("kill-window", "-t", pane.pane_id)

    def end(self) -> None:
        """Ends the session; with the last session the server ends and its socket is removed."""
        if self.exists:
            self._server.cmd("kill-session", "-t", f"={self.name}")
        wait_until(self._is_removed, _END_SECONDS, look_seconds=_LOOK_SECONDS)

    def _is_removed(self) -> bool:
        """Returns True if the server has other sessions, or has ended; then its socket is gone."""
        if not self.path.exists() or self._server.cmd("list-sessions").stdout:
            return True
        remove_dead_socket(self.path)
        return not self.path.exists()

    def attach_command(self) -> list[str]:
        """Returns the command that shows the session in a terminal."""
        tmux, target = ["tmux", "-S", str(self.path)], ["-t", f"={self.name}"]
        inside = os.environ.get("TMUX", "")
        if inside.partition(",")[0] == str(self.path):
            return [*tmux, "switch-client", *target]
        # tmux refuses to nest while TMUX is set, so it is unset inside another server.
        nested = ["env", "-u", "TMUX"] if inside else []
        return [*nested, *tmux, "attach-session", *target]

    def command(self, *words: str) -> str:
        """Returns a tmux command for this server, as a user would type it."""
        where = ["-S", str(self.path)] if self.path != default_socket() else ["-L", SOCKET_NAME]
        return shlex.join(["tmux", *where, *words])

    def _environment_names(self) -> Iterable[str]:
        names = set(os.environ)
        done = self._server.cmd("show-environment", "-g") if self.path.exists() else None
        if done is not None and done.returncode == 0:
            names |= {line.lstrip("-").partition("=")[0] for line in done.stdout}
        return filter(_ENVIRONMENT_NAME.fullmatch, names)

    def _do(self, *words: str) -> list[str]:
        done = self._server.cmd(*words)
        if done.returncode != 0:
            raise RunError(f"tmux: {' '.join(done.stderr) or 'failed'} ({words[0]})")
        return list(done.stdout)


def remove_dead_socket(path: Path) -> None:
    """Removes the socket that a tmux server leaves behind at its end."""
    if not path.exists():
        return
    # tmux takes the same lock to start a server: none can start between the two steps.
    lock = Path(f"{path}.lock")
    with suppress(OSError), lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
        lock.unlink(missing_ok=True)
