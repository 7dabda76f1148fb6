"""Counts kills by the kernel's out-of-memory killer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

_MEMBERSHIP = "/proc/self/cgroup"
_MOUNT = "/sys/fs/cgroup"
_COUNTER = "oom_kill"

Read = Callable[[str], str]


class OutOfMemory:
    """Counts the kills of the out-of-memory killer in the cgroup of this process.

    Child processes are in the same cgroup.

    Args:
        read: returns the text of a file, empty if it cannot be read.
    """

    def __init__(self, read: Read | None = None) -> None:
        self._read = read or _text
        self._seen = oom_kills(self._read)

    def took_one(self) -> bool:
        """Returns True once for each process killed since this object was made."""
        if self._seen is None or (oom_kills(self._read) or 0) <= self._seen:
            return False
        self._seen += 1
        return True


def oom_kills(read: Read) -> int | None:
    """Number of processes of this cgroup that the out-of-memory killer has ended; None if unknown.

    Reads ``memory.events`` (cgroup v2) or ``memory.oom_control`` (v1). In a container the path of
    the cgroup may lie outside of what is mounted there; its own files are then at the mount.

    Args:
        read: returns the text of a file, empty if it cannot be read.
    """
    for line in read(_MEMBERSHIP).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            root, name = _MOUNT, "memory.events"
        elif "memory" in controllers.split(","):
            root, name = f"{_MOUNT}/memory", "memory.oom_control"
        else:
            continue
        for place in (f"{root}{path.rstrip('/')}", root):
            for entry in read(f"{place}/{name}").splitlines():
                key, _, value = entry.partition(" ")
                if key == _COUNTER and value.isdigit():
                    return int(value)
    return None


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
