"""The soaks of benchmarks, shorter: of one replay, and of a gateway."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs.command import ROOT

ROWS = 10_000_000


@pytest.mark.slow
def test_all_rows_are_taken_and_the_memory_stays() -> None:
    script = str(ROOT / "benchmarks" / "soak.py")
    command = [sys.executable, script, "--rows", str(ROWS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    soak = json.loads(done.stdout)["soak"]
    assert soak["rows"] == ROWS
    growth = soak["server_growth"]
    assert growth["max_rss"] < 1.2 * growth["first_rss"]
    assert all(tenth["requests"] for tenth in soak["request_milliseconds"])


@pytest.mark.slow
def test_sessions_of_a_gateway_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    soak = importlib.import_module("gateway_soak")
    with soak.training(tmp_path / "soak", []) as server:
        found = list(soak.rows(server, minutes=0.05, clients=4))
    begun = [row["sessions"] for row in found]
    assert len(begun) == 3
    assert 4 < begun[0] < begun[1] < begun[2]
    assert all(row[key] > 0 for row in found for key in soak.FLAT)
