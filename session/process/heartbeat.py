"""Heartbeats: one small file per component, read by the supervisor and by commands."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from session.errors import ConfigError
from session.folder import write_atomically
from session.json_file import COUNT, FLAG, TEXT, VALUE, Leaf, MapOf, read_object
from session.process.state import State

_SECONDS = Leaf(
    "a number of seconds", lambda value: type(value) in (int, float) and 0.0 <= value <= 1e11
)
_SHAPE = {
    "name": TEXT,
    # Half the range of messages, as in a hello: the next start of the name has a higher one.
    "incarnation": Leaf(
        "an incarnation", lambda value: type(value) is int and 0 <= value < 1 << 52
    ),
    "state": Leaf("a state of a component", lambda value: value in tuple(map(str, State))),
    "pid": Leaf("a process id", lambda value: type(value) is int and 0 <= value < 1 << 31),
    "time": _SECONDS,
    "busy_seconds": _SECONDS,
    "doing": TEXT,
    "dropped_records": COUNT,
    "ready": FLAG,
    "status": MapOf(VALUE),
}


@dataclass(slots=True)
class Beat:
    """Last heartbeat of one component.

    Args:
        name: component name.
        incarnation: milliseconds of the wall clock at its start.
        state: ``starting``, ``running``, ``draining``, ``done`` or ``failed``.
        pid: process id.
        time: wall clock of the heartbeat [s].
        busy_seconds: allowed additional delay of the next heartbeat [s], counted from ``time``.
        doing: present long operation, or reason of the failure, in one line.
        dropped_records: number of metric and log records dropped for lack of a reader.
        ready: False while not running, or while alive although its work for the run is over.
        status: numbers that are also reported to Tensorplex.
    """

    name: str
    incarnation: int
    state: State
    pid: int
    time: float
    busy_seconds: float = 0.0
    doing: str = ""
    dropped_records: int = 0
    ready: bool = True
    status: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError for a state that does not exist."""
        self.state = State(self.state)

    @property
    def age_seconds(self) -> float:
        """Age of the heartbeat [s]."""
        return max(0.0, time.time() - self.time)

    def late(self, timeout_seconds: float) -> bool:
        """True if it is older than ``timeout_seconds`` plus ``busy_seconds``."""
        return self.age_seconds > timeout_seconds + self.busy_seconds


def write_beat(folder: Path, beat: Beat) -> None:
    """Writes the component's file; ignores a full disk or a missing folder."""
    # Not asdict: its deep copy takes as long as the rest.
    text = json.dumps({name: getattr(beat, name) for name in _SHAPE})
    path = folder / beat.name
    try:
        write_atomically(path, text)
    # A full disk must not look like a dead component, which would be killed for it.
    except OSError:
        with suppress(OSError):
            _write_over(path, text)


def _write_over(path: Path, text: str) -> None:
    """Overwrites the old file in place, for a disk without space for a new file.

    A reader that sees a partial heartbeat treats it as missing and reads again later.
    """
    with path.open("r+") as file:
        file.write(text)
        file.truncate()


def read_beat(folder: Path, name: str) -> Beat | None:
    """Reads a component's last heartbeat; None if there is none or it is damaged."""
    try:
        found = read_object(folder / name, _SHAPE)
    except ConfigError:
        return None
    beat = Beat(**{name: found[name] for name in _SHAPE})
    return beat if beat.name == name else None


def read_beats(folder: Path) -> dict[str, Beat]:
    """Reads all heartbeats: component name -> last heartbeat."""
    if not folder.is_dir():
        return {}
    # Names with a dot are files that are being written.
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    return {name: beat for name in names if (beat := read_beat(folder, name)) is not None}
