"""Header of every benchmark result, with machine, date, versions, command; and its file."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def write_result(name: str, found: Mapping[str, Any]) -> str:
    """Writes ``results/<name>.json``; returns its text."""
    text = json.dumps(found, indent=2)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    return text


def machine() -> dict[str, Any]:
    """Returns processor, cores, memory, system, date, versions of the packages that matter,
    command.
    """
    names = ("surreal-like", "torch", "numpy", "gymnasium", "pyzmq", "msgpack")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(terse=True),
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in names},
        "command": shlex.join(
            ["python", *(os.path.relpath(a) if os.path.exists(a) else a for a in sys.argv)]
        ),
    }


def code_version() -> str:
    """Returns a SHA-256 of the source files that a run may import, in 16 hexadecimal digits."""
    top, digest = RESULTS.parents[1], hashlib.sha256()
    files = (
        path for each in ("session", "surreal_like", "main") for path in top.glob(f"{each}/**/*.py")
    )
    for path in sorted(files):
        digest.update(f"{path.relative_to(top)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def cpu_of(pid: int) -> float:
    """Returns the processor time of a process so far in seconds; /proc has it in hundredths."""
    # Linux's clock of a process.
    return time.clock_gettime((~pid << 3) | 2)


def spread(values: list[float]) -> dict[str, float]:
    """Returns minimum, median and maximum."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else sum(ordered[middle - 1 : middle + 1]) / 2
    return {"min": ordered[0], "median": median, "max": ordered[-1]}
