"""The soaks of benchmarks, shorter: of one replay, and of a gateway."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs.command import ROOT, Record

ROWS = 10_000_000
CLIENTS = 4


@pytest.mark.slow
def test_all_rows_are_taken_and_the_memory_stays(record_property: Record) -> None:
    script = str(ROOT / "benchmarks" / "soak.py")
    command = [sys.executable, script, "--rows", str(ROWS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    soak = json.loads(done.stdout)["soak"]
    assert soak["rows"] == ROWS
    growth = soak["server_growth"]
    assert growth["max_rss"] < 1.2 * growth["first_rss"]
    tenths = soak["request_milliseconds"]
    assert all(tenth["requests"] for tenth in tenths)
    more = growth["max_rss"] / growth["first_rss"] - 1
    times = f"{tenths[0]['p50']:.1f} ms for a batch at first, {tenths[-1]['p50']:.1f} ms at last"
    record_property("seen", f"{ROWS:,} rows: {100 * more:.0f} % more memory, {times}")


@pytest.mark.slow
def test_sessions_of_a_gateway_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    soak = importlib.import_module("gateway_soak")
    with soak.training(tmp_path / "soak", []) as server:
        found = list(soak.rows(server, minutes=0.05, clients=CLIENTS))
    begun = [row["sessions"] for row in found]
    assert len(begun) == 3
    assert CLIENTS < begun[0] < begun[1] < begun[2]
    assert all(row[key] > 0 for row in found for key in soak.FLAT)
    # A client that comes again may be there twice for a moment.
    descriptors = [row["descriptors"] for row in found]
    assert max(descriptors) <= descriptors[0] + CLIENTS
    record_property("seen", f"{begun[-1]} sessions, at most {max(descriptors)} descriptors")
