"""The command that starts and ends processes with large frames under way, a tenth of it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.runs.command import ROOT

# A loaded machine needs two seconds for each.
LIMIT_SECONDS = 900


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_SECONDS + 30)
def test_ends_with_large_frames_under_way() -> None:
    command = [sys.executable, str(ROOT / "tests" / "runs" / "ends.py"), "--ends", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["frames"] == 120
