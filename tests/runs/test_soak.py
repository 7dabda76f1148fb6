"""The benchmark that sends very many rows through one replay, with fewer."""

import json
import subprocess
import sys

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
