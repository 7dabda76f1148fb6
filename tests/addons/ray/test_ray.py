"""Runs on a real Ray cluster of three nodes: a node is lost, commands from outside, refusals."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from session.folder import RunFolder
from tests.add_ons import needs
from tests.addons.ray.ray import ENVIRONMENT, RayCluster, ray_cluster
from tests.leftovers import ROOT
from tests.polling import until
from tests.runs.command import balanced

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(400), needs("join")]
EXPERIMENT = "configs/cartpole_dqn.yaml"


@pytest.fixture(scope="module")
def rig() -> Iterator[RayCluster]:
    """A cluster for all tests of this file."""
    with ray_cluster(jobs=True) as found:
        yield found


def command(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs ``surreal-like`` where jobs go to an address."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "main.cli", *words],
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT, "RAY_ADDRESS": url},
        capture_output=True,
        text=True,
        check=False,
    )


def launch(rig: RayCluster, path: Path, *words: str) -> RunFolder:
    """Launches CartPole."""
    done = command(rig.url, "launch", EXPERIMENT, "--on", "ray", "--folder", str(path), *words)
    assert done.returncode == 0, done.stderr
    return RunFolder(path)


def processes(folder: RunFolder) -> list[psutil.Process]:
    """The processes whose command names the run."""
    every = psutil.process_iter(["cmdline"])
    return [each for each in every if str(folder) in " ".join(each.info["cmdline"] or ())]


def agents(folder: RunFolder) -> str:
    """What the process says that keeps agents joined."""
    path = folder.path / "ray" / "agents.txt"
    return path.read_text() if path.is_file() else ""


def until_steps(folder: RunFolder, steps: int) -> None:
    """Waits until the run has so many steps."""
    until(
        lambda: folder.last_progress().get("env_steps", 0) >= steps,
        seconds=300,
        what=lambda: agents(folder),
    )


def test_a_run_that_loses_a_node_solves_its_task(rig: RayCluster, tmp_path: Path) -> None:
    folder = launch(rig, tmp_path / "run", "--agents", "2", "session_config.stop.seconds=600")
    until_steps(folder, 300)
    machine = next(each for each in processes(folder) if each.cmdline()[-1].endswith("/machine-0"))
    rig.kill_node_of(machine.pid)
    until(lambda: folder.over, seconds=300, what=lambda: agents(folder))
    until(lambda: not processes(folder), what=lambda: processes(folder))
    result = folder.read_result() or {}
    assert (result["status"], result["goal_met"]) == ("stopped", True)
    assert balanced(result), result["experience"]
    said = re.findall(r"(?m)^machine-0: (\w+)", agents(folder))
    assert said[:3] == ["started", "lost", "started"], agents(folder)


def test_commands_from_a_machine_that_only_shares_the_folder(
    rig: RayCluster, tmp_path: Path
) -> None:
    folder = launch(rig, tmp_path / "run", "--agents", "1", "session_config.stop={seconds: 600}")

    def rows() -> dict[str, Any]:
        shown = command(rig.url, "status", str(folder), "--json").stdout
        return dict(json.loads(shown)["components"])

    until_steps(folder, 100)
    # An agent of a machine has a row from its first report to Tensorplex on.
    until(lambda: {"learner", "replay-0", "agent-1000"} <= rows().keys())
    again = command(rig.url, "launch", "--resume", "--on", "ray", "--folder", str(folder))
    assert again.returncode == 2
    assert "surreal-like stop" in again.stderr
    assert command(rig.url, "stop", str(folder)).returncode == 0
    until(lambda: not processes(folder), what=lambda: processes(folder))
    assert (folder.read_result() or {})["reason"] == "surreal-like stop"


def test_a_core_that_no_node_can_hold_waits_and_is_cancelled(
    rig: RayCluster, tmp_path: Path
) -> None:
    large = "session_config.resources={learner: {gpu: 1}}"
    folder = launch(rig, tmp_path / "run", large)
    said = command(rig.url, "status", str(folder)).stdout
    assert re.search(r"core +waiting .* is PENDING: .*waiting for resources", said), said
    assert command(rig.url, "stop", str(folder)).returncode == 0
    assert (folder.read_result() or {})["status"] == "interrupted"


def test_without_a_cluster_nothing_is_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "run"
    done = command("http://127.0.0.1:9", "launch", EXPERIMENT, "--on", "ray", "--folder", str(path))
    assert done.returncode == 2
    assert re.fullmatch(r"surreal-like: error: Ray refuses: .*127.0.0.1:9.*\n", done.stderr), done
    assert not path.exists()
