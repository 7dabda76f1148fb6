"""Heartbeats and states: one small file per component, read by the supervisor and by commands."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from session.atomic_file import write_atomically
from session.config.string_enum import StringEnum
from session.json_file import (
    COUNT,
    FLAG,
    NUMBER,
    TEXT,
    VALUE,
    Leaf,
    MapOf,
    Maybe,
    parse_object,
    read_file,
)
from session.process.clock import Moment


class State(StringEnum):
    """State of a component.

    A service reports the first five of its own process. The others are seen from outside.

    Attributes:
        starting: the service is being built.
        running: it works.
        draining: it was asked to end and completes its work.
        done: it has ended as planned.
        failed: it has ended with an error.
        waiting: the process will be started, or started again.
        gone: the process has ended as planned, or was never wanted.
        dead: the process has ended unexpectedly, and nothing starts it again.
        silent: the process may live, but its heartbeat is late.
    """

    starting = ()
    running = ()
    draining = ()
    done = ()
    failed = ()
    waiting = ()
    gone = ()
    dead = ()
    silent = ()


# Of a process that lives.
ALIVE = (State.starting, State.running, State.draining)
# What a service reports of itself.
REPORTED = (*ALIVE, State.done, State.failed)
# Of a component that the run keeps alive; a draining one is not restarted.
KEPT = (State.waiting, State.starting, State.running)
# Heartbeats come once a second: a component without one for so long may hang [s].
HANGS_SECONDS = 10.0
ENDED = (State.done, State.failed, State.gone, State.dead)


def beat_interval(timeout_seconds: float) -> float:
    """Returns the time between two heartbeats [s]: 1, or a fifth of the time limit for one."""
    return min(1.0, timeout_seconds / 5)


def starting_seconds(timeout_seconds: float) -> float:
    """Returns the time limit for a start [s]: 120, or that for one heartbeat if it is longer."""
    return max(120.0, timeout_seconds)


_READS = 2
# Of the file of a heartbeat with a short status [bytes].
_LENGTH = 1024
# Longer than between two heartbeats of a process that is not busy.
_RECENT_SECONDS = 5.0
_SECONDS = Leaf(
    "a number of seconds", lambda value: type(value) in (int, float) and 0.0 <= value <= 1e11
)
_MOMENT = ("boot", "now", "began")
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
    # Older versions write none.
    **dict.fromkeys(_MOMENT, Maybe(NUMBER)),
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
        boot: number of the boot of its machine, 0 if unknown; below 0: of this machine.
        now: monotonic clock of that boot at the heartbeat [s].
        began: the same at the start of the process [s].
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
    boot: float = -1.0
    now: float = 0.0
    began: float = 0.0

    def __post_init__(self) -> None:
        """Completes a heartbeat of this machine; raises ValueError for an unknown state."""
        if self.boot < 0.0:
            _, self.boot, self.now = Moment.at(self.time)
            self.began = self.began or self.now
        if not isinstance(self.state, State):
            self.state = State(self.state)

    @property
    def age_seconds(self) -> float:
        """Age of the heartbeat [s]."""
        return Moment(self.time, self.boot, self.now).seconds_since()

    @property
    def life_seconds(self) -> float:
        """Seconds from the start of the process to the heartbeat, 0 if unknown."""
        return self.now - self.began

    def late(self, timeout_seconds: float) -> bool:
        """True if it is older than ``timeout_seconds`` plus ``busy_seconds``."""
        return self.age_seconds > timeout_seconds + self.busy_seconds


def write_beat(folder: Path, beat: Beat) -> None:
    """Writes the component's file; ignores a full disk or a missing folder.

    It writes nothing where a later process of the same component beats: that one has taken over.
    """
    # Not asdict: its deep copy takes as long as the rest.
    text = json.dumps({name: getattr(beat, name) for name in _SHAPE})
    # Padded: most beats have the same length then.
    line = text.ljust(_LENGTH - 1) + "\n"
    # A full disk must not look like a dead component, which would be killed for it.
    with suppress(OSError):
        try:
            _write_over(folder, beat, line.encode())
        except FileNotFoundError:
            write_atomically(folder / beat.name, line)


def _write_over(folder: Path, beat: Beat, line: bytes) -> None:
    """Overwrites a file of one line in place: 30 times as fast as a new file, and needs no space.

    For a moment there is more behind the line, if the one before was longer.
    """
    file = os.open(f"{folder}/{beat.name}", os.O_RDWR | os.O_NONBLOCK)
    try:
        before = os.read(file, 4 * _LENGTH)
        # The usual case, one's own last heartbeat, is not parsed.
        if b'"incarnation": %d,' % beat.incarnation not in before and _is_taken(folder, beat):
            return
        os.pwrite(file, line, 0)
        if len(before) > len(line):
            os.ftruncate(file, len(line))
    finally:
        os.close(file)


def _is_taken(folder: Path, beat: Beat) -> bool:
    """True if a later process of the same component beats."""
    # An old heartbeat does not count: its process is gone, or the clock was set back since.
    other = read_beat(folder, beat.name) or beat
    recent = abs(beat.time - other.time) < _RECENT_SECONDS
    return recent and other.incarnation > beat.incarnation


def read_beat(folder: Path, name: str) -> Beat | None:
    """Reads a component's last heartbeat; None if there is none or it is damaged."""
    for _ in range(_READS):
        # A beat that is half written at the moment is damaged, the next reading is not.
        with suppress(OSError, ValueError):
            found = parse_object(read_file(folder / name).partition(b"\n")[0], _SHAPE)
            values: dict[str, Any] = dict.fromkeys(_MOMENT, 0.0)
            values |= {each: found[each] for each in _SHAPE if found.get(each) is not None}
            beat = Beat(**values)
            return beat if beat.name == name else None
    return None


def read_beats(folder: Path) -> dict[str, Beat]:
    """Reads all heartbeats: component name -> last heartbeat."""
    if not folder.is_dir():
        return {}
    # Names with a dot are files that are being written.
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    return {name: beat for name in names if (beat := read_beat(folder, name)) is not None}
