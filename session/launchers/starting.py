"""Common steps of detached launches: a note in the config, waiting for the supervisor's reply."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from session.config import Config
from session.errors import RunError, UsageError, WireError
from session.folder import RunFolder
from session.launchers.asking import ask
from session.launchers.launcher import SUPERVISOR_CONTROL, write_topology
from session.process.component import Topology
from session.wire.sockets import poll

SUPERVISOR_MODULE = "main.supervisor"
_START_SECONDS = 60.0
_ANSWER_SECONDS = 1.0
_LOOK_SECONDS = 0.05
_LAST_WORD_SECONDS = 0.5


def write_launch(
    folder: RunFolder, config: Config, topology: Topology, launcher: str, **facts: object
) -> None:
    """Writes the files that the supervisor reads: ``config.yaml`` and ``topology.json``.

    The config gets a note of the launcher and of how to find the run.

    Args:
        folder: the run folder.
        config: the resolved experiment; the note is also added to it.
        topology: components of the run and their wiring.
        launcher: ``local`` or ``tmux``.
        facts: further entries of the note.
    """
    now = time.time()
    run = {"started": now, "first_started": now, "seconds_before": 0.0, **(config.get("run") or {})}
    config["run"] = {**run, "launcher": launcher, **facts}
    config.dump_file(folder.config)
    write_topology(folder, topology)


def await_supervisor(folder: RunFolder, died: Callable[[], bool]) -> None:
    """Waits until the supervisor of a run replies.

    Args:
        folder: the run folder, as an absolute path.
        died: function that returns True once the supervisor's process has ended.

    Raises:
        UsageError, RunError: it ended at once; with its own message.
    """
    deadline = time.monotonic() + _START_SECONDS
    while not _answers(folder):
        if died() and not folder.over:
            raise RunError(f"the supervisor of run {folder} died at once: {_last_word(folder)}")
        if folder.over and not folder.in_use:
            # The run was so short that it is over before the first request.
            return
        if time.monotonic() > deadline:
            raise RunError(
                f"the supervisor of run {folder} does not answer; see: {_error_file(folder)}"
            )
        poll([], _LOOK_SECONDS)


def refuse_running(folder: RunFolder) -> None:
    """Refuses a folder in which a run goes on.

    Raises:
        UsageError: a supervisor holds it.
    """
    if folder.in_use:
        raise UsageError(
            f"run {folder} is in use by another launcher; stop it with: surreal-like stop {folder}"
        )


def _answers(folder: RunFolder) -> bool:
    if not folder.in_use or not folder.addresses.is_file():
        return False
    try:
        ask(folder, SUPERVISOR_CONTROL, "status", timeout_seconds=_ANSWER_SECONDS)
    except (WireError, UsageError):
        return False
    return True


def _error_file(folder: RunFolder) -> str:
    return str(folder.logs / "supervisor.err")


def _last_word(folder: RunFolder) -> str:
    """Returns the last line of the supervisor's log; waits for it, as another process writes it."""
    deadline = time.monotonic() + _LAST_WORD_SECONDS
    while not (text := _read(folder.logs / "supervisor.err")) and time.monotonic() < deadline:
        poll([], _LOOK_SECONDS)
    if not text:
        return f"it left no word in {folder.logs}"
    return text.splitlines()[-1].removeprefix("supervisor: ")


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
