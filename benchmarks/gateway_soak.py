"""Soak of ``gateway.py``: many minutes in which sessions come and go, and what must stay flat."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from gateway_load import FILL, Crowd
from gateway_servers import Server, training
from machine import machine, spread, write_result
from tables import OF_RATES, amount, grid, load_before, provenance

# Sessions per second that end, each replaced by a new one.
RENEWALS = 8.0
# What must stay flat: key of a row -> words of the table.
FLAT = {
    "memory_mib": "memory of the gateway [MiB]",
    "descriptors": "its descriptors",
    "p50_ms": "time to an answer [ms]",
    "p99_ms": "the same, 99th percentile [ms]",
    "cpu_us": "its processor time per step [us]",
    "steps_per_second": "steps/s",
}


def soak(folder: Path, minutes: float, clients: int) -> None:
    """Soaks the gateway of a run that trains; prints a line each minute, and keeps the result."""
    found: dict[str, Any] = {
        "machine": machine(),
        "load": os.getloadavg()[0],
        "clients": clients,
        "renewals_per_second": RENEWALS,
        "gateway_soak": [],
    }
    print(" ".join(("minutes", "sessions", *FLAT)), file=sys.stderr)
    with training(folder / "soak", []) as server:
        for row in rows(server, minutes, clients):
            found["gateway_soak"].append(row)
            print(" ".join(f"{value:g}" for value in row.values()), file=sys.stderr)
    print(soak_table(found), file=sys.stderr)
    print(write_result("gateway_soak", found))


def rows(server: Server, minutes: float, clients: int) -> Iterator[dict[str, float]]:
    """Yields what was seen in each minute; in at least three parts, if there are fewer minutes."""
    parts = max(3, round(minutes))
    seconds = 60 * minutes / parts
    process = psutil.Process(server.pid)
    with Crowd(server.port, server.pid, clients, renewals=RENEWALS) as crowd:
        # Fills batches, and is not counted.
        crowd.drive(FILL * seconds)
        for part in range(1, parts + 1):
            sample = crowd.drive(seconds)
            yield {
                "minutes": round(part * seconds / 60, 2),
                "sessions": crowd.begun,
                "memory_mib": round(process.memory_info().rss / 2**20, 2),
                "descriptors": process.num_fds(),
                "p50_ms": round(1e3 * sample.p50_seconds, 2),
                "p99_ms": round(1e3 * sample.p99_seconds, 2),
                "cpu_us": round(1e6 * sample.cpu_seconds, 2),
                "steps_per_second": round(sample.steps_per_second, 1),
            }


def soak_table(found: Mapping[str, Any]) -> str:
    """Formats a line for each quantity: medians and spans of the first and the last third."""
    seen: Sequence[Mapping[str, float]] = found["gateway_soak"]
    third, lines = len(seen) // 3, []
    for key, what in FLAT.items():
        first, last = (spread([row[key] for row in part]) for part in (seen[:third], seen[-third:]))
        ratio = last["median"] / first["median"]
        lines.append((what, amount(first), amount(last), f"{ratio:.3f}"))
    table = grid(("what", "first third", "last third", "ratio of medians"), lines)
    text = f"{found['clients']} clients, {seen[-1]['sessions']:,} sessions in "
    text += f"{seen[-1]['minutes']:g} minutes. {provenance(found['machine'], OF_RATES)}"
    return f"{table}\n\n{text} {load_before(found)}"
