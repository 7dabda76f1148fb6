"""Starts and stops the Ray cluster of the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.leftovers import ROOT
from tests.polling import until

# Of this process, too, which connects as a driver.
ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_raylet_start_wait_time_s": "120",
}


@dataclass
class RayCluster:
    """A cluster of three nodes.

    Attributes:
        address: address of its head, for drivers.
        url: address for jobs.
    """

    address: str
    url: str
    process: subprocess.Popen[str]

    def kill_node_of(self, pid: int) -> None:
        """Kills the node on which a process runs; another takes its place."""
        (raylet,) = (each for each in psutil.Process(pid).parents() if each.name() == "raylet")
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"kill {raylet.pid}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "killed\n"


@contextmanager
def ray_cluster(*, jobs: bool = False) -> Iterator[RayCluster]:
    """A cluster that ends with the block; its folder is short, as it holds sockets."""
    with (
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder,
        (Path(folder) / "errors.txt").open("w+") as errors,
    ):
        (Path(folder) / "ray").mkdir()
        command = [sys.executable, "-m", "tests.addons.ray.ray_cluster", folder]
        process = subprocess.Popen(
            [*command, "--jobs"] if jobs else command,
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT, "TMPDIR": folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, Path(errors.name).read_text()
            yield RayCluster(**json.loads(line), process=process)
        finally:
            nodes = psutil.Process(process.pid).children(recursive=True)
            process.stdin.close()
            process.wait(60)
            process.stdout.close()
            until(lambda: not any(each.is_running() for each in nodes), what=lambda: nodes)
