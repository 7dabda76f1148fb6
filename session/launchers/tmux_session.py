"""One session of a private tmux server: its windows, their processes, its end without a trace."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import signal
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import libtmux

from session.errors import RunError, UsageError
from session.folder import RunFolder

SOCKET_NAME = "surreal-like"
# Nothing of the user's own configuration: a run must not depend on it.
_CONFIG_FILE = "/dev/null"
_PANE = (
    "#{pane_id} #{pane_pid} #{pane_dead} status=#{pane_dead_status} signal=#{pane_dead_signal} "
    "starts=#{@starts} component=#{@component}"
)
_OPTIONS = (
    # A window whose process has ended stays, to tell why.
    ("set-option", "-g", "remain-on-exit", "on"),
    ("set-option", "-g", "automatic-rename", "off"),
    ("set-option", "-g", "allow-rename", "off"),
    ("set-option", "-g", "history-limit", "20000"),
    # Names of runs are long.
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
        pane_id: how tmux calls it.
        component: whose it is.
        pid: its process, also after the end.
        dead: that process has ended.
        exit_code: of that process, below 0 the signal that ended it; None while it lives, and for
            a moment after. Before tmux 3.3 it stays None after a signal.
        starts: how often a process was started in it by a launcher.
    """

    pane_id: str
    component: str
    pid: int
    dead: bool
    exit_code: int | None
    starts: int

    @classmethod
    def parse(cls, line: str) -> Self:
        """The pane that a line of ``list-panes`` tells of."""
        pane_id, pid, dead, *rest = line.split(" ")
        values = dict(word.partition("=")[::2] for word in rest)
        # For tmux a pane is dead when nobody holds its terminal any more: what the process has
        # started may hold it, or have let go of it before.
        told = bool(values["status"] or values["signal"])
        code = int(values["status"] or -int(values["signal"])) if told else None
        starts = int(values["starts"] or 1)
        return cls(pane_id, values["component"], int(pid), told or dead == "1", code, starts)


def require_tmux() -> None:
    """Refuses a machine without tmux.

    Raises:
        UsageError: says what to install.
    """
    if shutil.which("tmux") is None:
        raise UsageError(
            "no tmux on the PATH: install it (Debian, Ubuntu: apt-get install tmux), or launch "
            "with --on local"
        )


def session_name(folder: RunFolder) -> str:
    """The name of a run's session: its folder's, and a hash, for two runs may have one name."""
    path = folder.path.resolve()
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:6]
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '-', path.name).strip('-') or 'run'}-{digest}"


def default_socket() -> Path:
    """Where the private server of this user listens, as seen from this shell."""
    return Path(os.environ.get("TMUX_TMPDIR") or "/tmp") / f"tmux-{os.getuid()}" / SOCKET_NAME


class TmuxSession:
    """The session of one run.

    Args:
        name: of the session.
        path: socket of the server, by default that of this shell's user.
    """

    def __init__(self, name: str, path: Path | None = None) -> None:
        self.name = name
        self.path = path or default_socket()
        self._server = libtmux.Server(socket_path=self.path, config_file=_CONFIG_FILE)

    @property
    def exists(self) -> bool:
        """True while tmux has it."""
        if not self.path.exists() or shutil.which("tmux") is None:
            return False
        return self._server.cmd("has-session", "-t", f"={self.name}").returncode == 0

    def panes(self) -> dict[str, Pane]:
        """Component -> its window; empty where there is no session."""
        done = self._server.cmd("list-panes", "-s", "-t", f"={self.name}", "-F", _PANE)
        panes = [Pane.parse(line) for line in (done.stdout if done.returncode == 0 else ())]
        if any(pane.dead and pane.exit_code is None for pane in panes):
            self._wake()
        return {pane.component: pane for pane in panes if pane.component}

    def _wake(self) -> None:
        """Has tmux look which of its processes have ended: it can miss one.

        Where it notes terminals in utmp, it hears of no end while it does that; and it does that
        when one has been let go of, just when the process that had it ends.
        """
        for pid in self._server.cmd("display-message", "-p", "#{pid}").stdout:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGCHLD)

    def create(self, component: str, script: str, folder: Path) -> Pane:
        """Begins the session with its first window; its processes have this one's environment.

        Args:
            component: whose window it is.
            script: what runs in it, for bash.
            folder: current folder of all windows.

        Raises:
            RunError: tmux could not do that.
        """
        # tmux makes this folder for -L only, and other programs must not look into it.
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        options = [word for option in _OPTIONS for word in (";", *option)]
        # A server keeps the environment of whoever started it: each session gets its own.
        names = " ".join(sorted(self._environment_names()))
        new = ("new-session", "-d", "-s", self.name, "-n", component, "-c", str(folder))
        self._do(
            *("start-server", *options, ";", "set-option", "-g", "update-environment", names, ";"),
            *(*new, "-x", "200", "-y", "50", "bash", "-c", script, ";"),
            # Whoever attaches later must not change what a restarted component sees.
            *("set-option", "-t", self.name, "update-environment", ""),
        )
        return self._mark(f"={self.name}:={component}", component, 1)

    def open(self, component: str, script: str, folder: Path, starts: int) -> Pane:
        """A further window; arguments as of :meth:`create`.

        Raises:
            RunError: tmux could not do that.
        """
        new = ("new-window", "-d", "-P", "-F", "#{pane_id}", "-t", f"={self.name}:")
        said = self._do(*new, "-n", component, "-c", str(folder), "bash", "-c", script)
        return self._mark(said[0], component, starts)

    def respawn(self, pane: Pane, script: str, folder: Path, starts: int) -> Pane:
        """Starts a process in a window whose last one has ended; one that lives there lives on.

        Raises:
            RunError: the window is not there any more.
        """
        again = ("respawn-pane", "-t", pane.pane_id, "-c", str(folder), "bash", "-c", script)
        # It fails where somebody was faster, by hand: then that process is the one.
        self._server.cmd(*again)
        return self._mark(pane.pane_id, pane.component, starts)

    def _mark(self, target: str, component: str, starts: int) -> Pane:
        option = ("set-option", "-p", "-t", target)
        said = self._do(
            *(*option, "@component", component, ";", *option, "@starts", str(starts), ";"),
            *("display-message", "-p", "-t", target, _PANE),
        )
        return Pane.parse(said[0])

    def close(self, pane: Pane) -> None:
        """Takes a window away, and ends what runs in it."""
        self._server.cmd("kill-window", "-t", pane.pane_id)

    def end(self) -> None:
        """Takes everything away; the server goes with its last session, and so does its socket."""
        if self.exists:
            self._server.cmd("kill-session", "-t", f"={self.name}")
        deadline = time.monotonic() + _END_SECONDS
        while self.path.exists() and time.monotonic() < deadline:
            if self._server.cmd("list-sessions").stdout:
                return
            remove_dead_socket(self.path)
            time.sleep(_LOOK_SECONDS)

    def attach_command(self) -> list[str]:
        """The command that shows the session in a terminal."""
        tmux, target = ["tmux", "-S", str(self.path)], ["-t", f"={self.name}"]
        inside = os.environ.get("TMUX", "")
        if inside.partition(",")[0] == str(self.path):
            return [*tmux, "switch-client", *target]
        # Inside another server of tmux a client must be told that it is meant to be nested.
        nested = ["env", "-u", "TMUX"] if inside else []
        return [*nested, *tmux, "attach-session", *target]

    def command(self, *words: str) -> str:
        """A command of tmux about this server, as a person would type it."""
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
    """Removes the socket of a server that has gone, which tmux leaves behind."""
    if not path.exists():
        return
    # tmux takes the same lock when it starts a server: none begins between the two steps.
    lock = Path(f"{path}.lock")
    with suppress(OSError), lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
        lock.unlink(missing_ok=True)
