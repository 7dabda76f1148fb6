"""Signs of life: one small file per component, read by whoever supervises or asks."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from session.folder import write_atomically


@dataclass(slots=True)
class Beat:
    """What one component last said of itself.

    Args:
        name: component name.
        incarnation: milliseconds of the wall clock at its start.
        state: ``starting``, ``running``, ``draining``, ``done`` or ``failed``.
        pid: its process.
        time: wall clock of the beat, seconds.
        busy_seconds: how much longer than usual the next beat may take, counted from ``time``.
        doing: what takes so long, or why it failed, in one line.
        dropped_records: metrics and log records that nobody took in time.
        ready: False while it stays although the run is over, or only leaves.
        status: its numbers, as Tensorplex gets them.
    """

    name: str
    incarnation: int
    state: str
    pid: int
    time: float
    busy_seconds: float = 0.0
    doing: str = ""
    dropped_records: int = 0
    ready: bool = True
    status: dict[str, float] = field(default_factory=dict)

    @property
    def age_seconds(self) -> float:
        """Seconds since the beat."""
        return max(0.0, time.time() - self.time)

    def late(self, timeout_seconds: float) -> bool:
        """True if a running component should have been heard by now."""
        return self.age_seconds > timeout_seconds + self.busy_seconds


def write_beat(folder: Path, beat: Beat) -> None:
    """Writes the component's file; a full disk or a missing folder must not end a component."""
    path, text = folder / beat.name, json.dumps(asdict(beat))
    try:
        write_atomically(path, text)
    except OSError:
        with suppress(OSError):
            _write_over(path, text)


def _write_over(path: Path, text: str) -> None:
    """Where a disk has no room for a new file there is that of the old one.

    Whoever reads half a beat takes it for none, and looks again.
    """
    with path.open("r+") as file:
        file.write(text)
        file.truncate()


def read_beat(folder: Path, name: str) -> Beat | None:
    """The component's last beat, None if it has not been heard."""
    try:
        return Beat(**json.loads((folder / name).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def read_beats(folder: Path) -> dict[str, Beat]:
    """Component name -> last beat, of all that were ever heard."""
    if not folder.is_dir():
        return {}
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    return {name: beat for name in names if (beat := read_beat(folder, name)) is not None}
