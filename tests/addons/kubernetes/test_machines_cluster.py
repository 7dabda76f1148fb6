"""Machines that join a run elsewhere, with the real API server, scheduler and controllers.

The contract of engines looks at files that machines write to a folder of this machine, also after
their end. A pod writes to its own ``/tmp``, which ends with it: so the machines here are real ones,
of a real run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from session.addons.engines.machines import Machines, make_machines
from session.folder import RunFolder
from tests.addons.kubernetes.cluster import TestedCluster
from tests.addons.kubernetes.test_cluster import own_nodes
from tests.addons.kubernetes.test_machines import order_of

pytestmark = [
    *(pytest.mark.slow, pytest.mark.root, pytest.mark.kubectl, pytest.mark.cluster),
    pytest.mark.timeout(300),
]
_SILENT_SECONDS = 60.0
_OURS = ("statefulset,pod,secret", "--selector=app.kubernetes.io/name")


@pytest.fixture
def large(cluster: TestedCluster) -> Iterator[Machines]:
    """Machines that fit onto no node."""
    machines = make_machines("kubernetes", order_of(cpu=100_000.0, name="large"))
    try:
        yield machines
    finally:
        machines.close()
        assert cluster.get(*_OURS)["items"] == []


def test_a_machine_without_a_node_says_why(cluster: TestedCluster, large: Machines) -> None:
    large.want(1)
    (event,) = cluster.until(large.poll, "it is reported")
    assert re.match(r"machine-0: lost: Unschedulable: 0/\d+ nodes are available", str(event))


class Host:
    """A machine beside the pods, with a run that they reach.

    Its commands reach only the pods; kubectl goes back to the network of the control plane.
    """

    def __init__(self, namespace: str, address: str, folder: Path) -> None:
        self.run = folder / "run"
        self.said = folder / "said"
        self.token = folder / "token"
        self._address = address
        self._prefix = ("ip", "netns", "exec", namespace, sys.executable, "-P", "-m", "main.cli")
        self._tool = folder / "bin" / "kubectl"
        self._tool.parent.mkdir()
        self._write_kubectl()
        self._variables = {**os.environ, "PATH": f"{self._tool.parent}:{os.environ['PATH']}"}

    def _write_kubectl(self, *options: str) -> None:
        place, program = f"/proc/{os.getpid()}/ns/net", shutil.which("kubectl")
        new = self._tool.with_name("new")
        words = " ".join(options)
        new.write_text(f'#!/bin/sh\nexec nsenter --net={place} {program} "$@" {words}\n')
        new.chmod(0o755)
        new.replace(self._tool)

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Leads its kubectl to a server that takes connections and never answers."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            self._write_kubectl(f"--server=https://127.0.0.1:{server.getsockname()[1]}")
            try:
                yield
            finally:
                self._write_kubectl()

    def command(self, *words: str) -> str:
        done = subprocess.run(
            [*self._prefix, *words],
            env=self._variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def launch(self) -> str:
        """Launches a run; returns the address at which machines join it."""
        settings = ["session_config.stop={seconds: 300}", "session_config.evaluator.num=0"]
        settings += ["session_config.agent.num=1"]
        # The learner waits for rows, so that more machines are advised.
        settings += ["learner_config.replay.samples_per_insert=0.1"]
        place = ("--on", "local", "--host", self._address, "--folder", str(self.run))
        self.command("launch", "configs/cartpole_dqn.yaml", *place, *settings)
        line = self.command("join", "--print", str(self.run), "--uses", "8").split()
        self.token.touch(0o600)
        self.token.write_text(line[line.index("--token") + 1])
        return line[2]

    def join(self, *words: str) -> subprocess.Popen[bytes]:
        files = ("--token-file", str(self.token), "--folder", str(self.run.with_name("joined")))
        with self.said.open("wb") as said:
            return subprocess.Popen(
                [*self._prefix, "join", *words, *files],
                env=self._variables,
                stdout=said,
                stderr=said,
            )

    def lines(self, end: str) -> list[str]:
        """What `join` has said so far, of one kind."""
        return [line for line in self.said.read_text().splitlines() if line.endswith(end)]

    def guests(self) -> set[str]:
        """Agents of other machines that are at work."""
        rows = json.loads(self.command("status", str(self.run), "--json"))["components"]
        return {
            name
            for name, row in rows.items()
            if name.startswith("agent-1") and row["state"] == "running"
        }


@pytest.fixture
def host(cluster: TestedCluster, tmp_path: Path) -> Iterator[Host]:
    with cluster.kubelet.machine() as (namespace, address):
        host = Host(namespace, address, tmp_path)
        try:
            yield host
        finally:
            if host.run.exists() and not RunFolder(host.run).over:
                host.command("stop", str(host.run))


@own_nodes
def test_machines_join_are_replaced_outlive_silence_and_end_with_the_run(
    cluster: TestedCluster, host: Host
) -> None:
    engine = ("--on", "kubernetes", "--option", "name=mine")
    joined = host.join(host.launch(), *engine, "--machines", "2..3")
    try:
        cluster.until(lambda: len(host.guests()) == 2, "two have joined")
        two = host.guests()
        cluster.kubectl("delete", "pod", "mine-machine-0", "--wait=false")
        cluster.until(lambda: host.guests() - two, "another has joined in the place of one")
        cluster.until(lambda: host.lines("machine-2: started"), "a third one, as advised")
        cluster.until(lambda: len(host.guests()) == 3, "it has joined")
        said, three = host.lines(""), host.guests()
        with host.silence():
            time.sleep(_SILENT_SECONDS)
            assert host.guests() == three
        assert [line for line in host.lines("")[len(said) :] if line.startswith("machine-")] == []
        cluster.kubectl("delete", "pod", "mine-machine-1", "--wait=false")
        cluster.until(lambda: host.guests() - three, "the engine is served again")
        host.command("stop", str(host.run))
        assert joined.wait(60) == 0
    finally:
        joined.kill()
        joined.wait()
    begin = ["machine-0: started", "machine-1: started"]
    begin += ["machine-0: lost: its pod was deleted", "machine-0: started"]
    lines = host.said.read_text().splitlines()
    assert [line for line in lines if line.startswith("machine-")][:4] == begin
    assert [line for line in lines if line.startswith("3 machines from now on: learner waits")]
    assert lines[-1] == "the run is over; its machines have left"
    assert cluster.get(*_OURS)["items"] == []
