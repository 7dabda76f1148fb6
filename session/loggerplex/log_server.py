"""Loggerplex: writes one log file per component, a log merged in time order, and the events."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from session.errors import UsageError
from session.json_file import ANY
from session.loggerplex.append_file import AppendFile
from session.loggerplex.telemetry_server import Bound, Collector
from session.nest import Array
from session.process.component import has_joined, is_client
from session.process.context import Context
from session.process.heartbeat import ALIVE, read_beat
from session.wire import Identity, Message
from session.wire.schema import Kinds, MapOf, Name, Optional, Plain, Schema, Text, Time

_REORDER_SECONDS = 0.5
_ROTATE_BYTES = 50_000_000
_HELD_LINES = 20_000
# Maximum log files of components that join or are added, besides the planned ones.
_LOGS = 1000
# The same for scripts; separate, so that scripts do not use up the agents' log files.
_SCRIPTS = 200
_RESERVED = ("time", "component", "event", "detail")
_LINE = Text((1 << 14) + 64)
RECORDS: Kinds = {
    "loggerplex": Schema(
        {
            "time": Time(),
            "level": Text(32),
            # Each component has its own file; ``all`` is the merged log.
            "component": Name(),
            "text": Optional(_LINE),
            "event": Optional(_LINE),
            "detail": Optional(_LINE),
            # Written as JSON, and checked as such by those who read that.
            "fields": Optional(MapOf(_LINE, Plain(ANY, (1 << 14) + 64), 1000)),
        }
    )
}
# Escapes terminal control characters except line feeds and tabs.
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}


class Loggerplex(Collector):
    """Writes ``logs/<component>.log``, ``logs/all.log`` and ``events.jsonl`` of a run folder.

    Raises:
        UsageError: the component has no run folder to write to.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context, "loggerplex", RECORDS)
        if context.folder is None:
            raise UsageError("loggerplex writes into the run folder: start it with --folder")
        self._folder, self._alive = context.folder.logs, context.folder.alive
        self._files: dict[str, AppendFile] = {}
        self._logs: Counter[bool] = Counter()
        self._events = AppendFile(context.folder.events, lines=True)
        self._merge = Reorder(_REORDER_SECONDS)
        # Opened first, so that the limit of log files never excludes it.
        self._file("all")

    def tick(self) -> bool:
        """Stores records; it ends after Tensorplex, which reports at its end what it has lost."""
        busy = super().tick()
        if self.done and self._tensorplex_lives():
            self._ending.on_message()
        return busy

    def _tensorplex_lives(self) -> bool:
        beat = read_beat(self._alive, "tensorplex")
        timeout: float = self._context.config.session_config.heartbeat.timeout
        return beat is not None and beat.state in ALIVE and not beat.late(timeout)

    def store(
        self, sender: Identity, record: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> None:
        """Stores one log record or event."""
        component = record["component"]
        if not self._context.wire.knows(component):
            # One file for every name that is sent would fill the disk.
            raise ValueError(f"no component of this run is called '{component}'")
        if has_joined(sender.name):
            # The clock of another machine may be wrong by hours.
            record = {**record, "time": self._context.clock.time()}
        event = _event_line(record) if "event" in record else b""
        line = _log_line(record) if "text" in record else b""
        if event:
            self._events.add(event)
        if line:
            self._file(component).add(line)
            self._merge.put(float(record["time"]), self._context.clock.now(), line)

    def component_of(self, record: Mapping[str, Any]) -> str:
        return str(record["component"])

    def on_dropped(self, sender: Identity, count: int, message: Message) -> None:
        """Adds a log line that marks missing records."""
        line = {
            "time": self._context.clock.time(),
            "level": "warning",
            "component": sender.name,
            "text": f"{count} log records dropped so far: they came faster than they could leave",
        }
        self.store(sender, line, {})

    def write(self) -> None:
        """Appends stored lines to the files."""
        self._write_merged(self._merge.pop(self._context.clock.now()))

    def close(self) -> None:
        """Writes everything, including lines held for reordering."""
        self._write_merged(self._merge.pop(math.inf))

    def status(self) -> dict[str, float]:
        """Adds lost lines and unwritten bytes."""
        files = (*self._files.values(), self._events)
        return super().status() | {
            "lost_lines": float(sum(file.lost for file in files)),
            "unwritten_bytes": float(sum(file.held_bytes for file in files)),
        }

    def _write_merged(self, lines: list[bytes]) -> None:
        merged = self._file("all")
        for line in lines:
            merged.add(line)
        self.flush((self._events, *self._files.values()))

    def _file(self, stem: str) -> AppendFile:
        if stem not in self._files:
            script = is_client(stem)
            # 1 for the merged log.
            most = _SCRIPTS if script else 1 + _LOGS + len(self._context.topology.components)
            if self._logs[script] >= most:
                raise Bound(f"there are {most} log files already")
            self._logs[script] += 1
            path = self._folder / f"{stem}.log"
            self._files[stem] = AppendFile(path, rotate_bytes=_ROTATE_BYTES, lines=True)
        return self._files[stem]


@dataclass(slots=True)
class _Held:
    time: float
    arrived: float
    line: bytes


class Reorder:
    """Sorts lines of several clocks by time, holding each line for a short window.

    Args:
        window_seconds: time for which a line waits for earlier ones in transit.
    """

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._held: list[_Held] = []

    def put(self, time: float, arrived: float, line: bytes) -> None:
        """Adds one line: ``time`` is its stamp at the source, ``arrived`` the time here [s]."""
        self._held.append(_Held(time, arrived, line))

    def pop(self, now: float) -> list[bytes]:
        """Removes and returns, sorted, all lines up to the newest that has waited long enough."""
        waited = [held.time for held in self._held if held.arrived <= now - self._window_seconds]
        if len(self._held) > _HELD_LINES:
            waited = [held.time for held in self._held]
        if not waited:
            return []
        limit = max(waited)
        ready = sorted((h for h in self._held if h.time <= limit), key=lambda held: held.time)
        self._held = [held for held in self._held if held.time > limit]
        return [held.line for held in ready]


def _log_line(record: Mapping[str, Any]) -> bytes:
    stamp = float(record["time"])
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stamp))
    text = record["text"].translate(_CONTROL).replace("\n", "\n    ")
    millis = int(stamp % 1 * 1000)
    level = record["level"].upper()
    line = f"{clock}.{millis:03d} {level:<8} {record['component']}: {text}\n"
    return line.encode("utf-8", "backslashreplace")


def _event_line(record: Mapping[str, Any]) -> bytes:
    fields = record.get("fields", {})
    line = {
        "time": record["time"],
        "component": record["component"],
        "event": record["event"],
        "detail": record.get("detail", ""),
        **{name: value for name, value in fields.items() if name not in _RESERVED},
    }
    return json.dumps(line, allow_nan=False).encode() + b"\n"
