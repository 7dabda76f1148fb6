"""Memory of the machine or container: its use, its largest users, and kills for the lack of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import psutil

from session.process.periodic import Every

_MEMBERSHIP = "/proc/self/cgroup"
_MOUNT = "/sys/fs/cgroup"
_COUNTER = "oom_kill"
_LOOK_SECONDS = 2.0
# Share of the memory above which there is a warning.
_WARN_SHARE = 0.9
# Largest processes that a message names; of so many times as many the size is measured exactly.
_NAMED, _MEASURED = 5, 4

Read = Callable[[str], str]


class _Files(NamedTuple):
    """Names of the files of one version of cgroups."""

    events: str
    limit: str
    used: str
    cache: str


_V2 = _Files("memory.events", "memory.max", "memory.current", "inactive_file")
_V1 = _Files(
    "memory.oom_control", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
)


class OutOfMemory:
    """Counts the kills of the out-of-memory killer in the cgroup of this process.

    Child processes are in the same cgroup.

    Args:
        read: function that returns the text of a file, empty if it cannot be read.
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

    Args:
        read: function that returns the text of a file, empty if it cannot be read.
    """
    for place, names in _cgroups(read):
        found = _entry(read(f"{place}/{names.events}"), _COUNTER)
        if found is not None:
            return found
    return None


def _cgroups(read: Read) -> Iterator[tuple[str, _Files]]:
    """Yields folders of the memory cgroup of this process, v2 or v1.

    In a container the path of the cgroup may lie outside of what is mounted there; its own files
    are then at the mount.
    """
    for line in read(_MEMBERSHIP).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            root, names = _MOUNT, _V2
        elif "memory" in controllers.split(","):
            root, names = f"{_MOUNT}/memory", _V1
        else:
            continue
        for place in dict.fromkeys((f"{root}{path.rstrip('/')}", root)):
            yield place, names


def _entry(text: str, name: str) -> int | None:
    """Returns the number behind a name in lines of names and numbers, None without it."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return None


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


class Reading(NamedTuple):
    """Memory at one moment.

    Attributes:
        used_bytes: memory that cannot be had back without ending something.
        total_bytes: that of the machine, or the limit of the container.
        limited: True if it is the limit of a container, which is shared with its processes only.
    """

    used_bytes: int
    total_bytes: int
    limited: bool = False

    @property
    def share(self) -> float:
        """Used part, 0 to 1."""
        return self.used_bytes / self.total_bytes


def read_memory(read: Read | None = None) -> Reading:
    """Returns the memory of the machine, or of the cgroup with the least memory left.

    Args:
        read: function that returns the text of a file, empty if it cannot be read.
    """
    read, machine = read or _text, psutil.virtual_memory()
    found = [Reading(machine.total - machine.available, machine.total)]
    for place, names in _cgroups(read):
        limit, used = (read(f"{place}/{name}").strip() for name in (names.limit, names.used))
        # "max" and numbers above the machine's memory mean that there is no limit.
        if limit.isdigit() and used.isdigit() and 0 < int(limit) < machine.total:
            cache = _entry(read(f"{place}/memory.stat"), names.cache) or 0
            found.append(Reading(max(0, int(used) - cache), int(limit), limited=True))
    return min(found, key=lambda each: each.total_bytes - each.used_bytes)


class Finding(NamedTuple):
    """Too much memory is used.

    Attributes:
        over: True if something must end.
        text: use of the memory and its largest users.
    """

    over: bool
    text: str


class MemoryGuard:
    """Looks at the memory every 2 s.

    Args:
        folder: folder of the run or tuning, by which its processes are known.
        limit: share of the memory above which something must end.
        read: reads the memory.

    Attributes:
        over: True if the newest look has found more than the limit.
    """

    def __init__(
        self, folder: Path, limit: float, read: Callable[[], Reading] | None = None
    ) -> None:
        self._folder, self._limit = folder.absolute(), limit
        self._read = read
        self._due = Every(seconds=_LOOK_SECONDS, clock=time.monotonic)
        self._warned = self.over = False

    def look(self) -> Finding | None:
        """Returns what is wrong: a warning once, too much use at every look; else None."""
        if not self._due():
            return None
        reading = self._read() if self._read is not None else read_memory()
        self.over = reading.share > self._limit
        if not self.over and (self._warned or reading.share <= _WARN_SHARE):
            return None
        self._warned = True
        return Finding(self.over, describe(reading, self._folder))


def describe(reading: Reading, folder: Path) -> str:
    """Describes the use of the memory with its five largest users, others' processes included.

    Pages that processes share count once: each has its part of them, where the system reports it.

    Args:
        reading: the use.
        folder: absolute folder of the run or tuning.
    """
    known = {each.pid: each for each in psutil.process_iter(["memory_info", "cmdline", "ppid"])}
    group = _text(_MEMBERSHIP)
    beside = [
        each
        for each in known.values()
        if not reading.limited or _text(f"/proc/{each.pid}/cgroup") == group
    ]
    large = sorted(beside, key=_resident, reverse=True)[: _NAMED * _MEASURED]
    sizes = {each.pid: _size(each) for each in large}
    most = sorted(sizes, key=lambda pid: sizes[pid], reverse=True)[:_NAMED]
    names = ", ".join(_describe(pid, sizes[pid], known, folder) for pid in most)
    total = reading.total_bytes / 1e9
    return f"{100 * reading.share:.0f} % of {total:.1f} GB used; the most: {names}"


def _resident(process: psutil.Process) -> int:
    # None for a process whose memory may not be read.
    memory = process.info["memory_info"]
    return memory.rss if memory is not None else 0


def _size(process: psutil.Process) -> int:
    try:
        memory = process.memory_full_info()
    except psutil.Error:
        return _resident(process)
    return int(getattr(memory, "pss", memory.uss))


def _describe(pid: int, size_bytes: int, known: Mapping[int, psutil.Process], folder: Path) -> str:
    size, at = f"{size_bytes / 1e9:.1f} GB", pid
    while at in known:
        if name := _component(_words(known[at]), folder):
            return f"{name} {size} (pid {pid})"
        if at == os.getpid():
            return f"supervisor {size} (pid {pid})"
        at = known[at].info["ppid"] or 0
    program = _program(_words(known[pid]) or ["a process"])
    return f"{program} {size} (pid {pid}, not of this run)"


def _words(process: psutil.Process) -> list[str]:
    """Returns the words of a command line, or of the title that a process has given itself."""
    # A title is one text, followed by empty ones in the place of the old command line.
    command = [word for word in process.info["cmdline"] or () if word]
    return command[0].split() if len(command) == 1 else command


def _program(command: Sequence[str]) -> str:
    """Returns the name of a program, and its words up to the first that is no option."""
    words = [Path(command[0]).name]
    for word in command[1:4]:
        words.append(word)
        if not word.startswith("-"):
            break
    return " ".join(words)[:60]


def _component(words: Sequence[str], folder: Path) -> str:
    """Returns the component of the run with that command line; empty for another process."""
    options = dict(pairwise(words))
    place, name = options.get("--folder"), options.get("--name")
    if place is None or name is None:
        return ""
    own = Path(place).absolute()
    if own == folder:
        return name
    return f"{name} of {own.name}" if folder in own.parents else ""
