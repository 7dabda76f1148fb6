"""The script that sends garbage to a gateway, for a short time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.runs.command import ROOT


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_gateway_survives_garbage_for_a_short_time() -> None:
    script = str(ROOT / "tests" / "addons" / "gateway" / "runs" / "fuzz_gateway.py")
    command = [sys.executable, script, "--minutes", "0.2"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=160, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["connections"] > 100
