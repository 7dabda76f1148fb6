"""Machines of a real Ray cluster: the contract of engines, a shortage, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from session.addons.engines.machines import Machines, MachineSpec, make_machines
from session.errors import UsageError
from tests.addons.ray.ray import ENVIRONMENT, RayCluster, ray_cluster
from tests.contracts.machines import MachinesContract
from tests.polling import until

pytestmark = [
    *(pytest.mark.slow, pytest.mark.ray),
    pytest.mark.timeout(300),
    # Ray's own, at the end of a driver.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """A cluster for all tests of this file."""
    with ray_cluster() as found, pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield found


class TestRay(MachinesContract):
    """Each machine has a node of its own."""

    seconds = 90.0
    # Nodes of Ray end themselves when their head has not answered for a minute.
    silent_seconds = 45.0

    @pytest.fixture(autouse=True)
    def at(self, cluster: RayCluster) -> None:
        self.cluster = cluster

    def make(self, order: MachineSpec) -> Machines:
        return make_machines(
            "ray", replace(order, cpu=3.0, options={"address": self.cluster.address})
        )

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Stops the server of the head."""
        servers = [
            each
            for each in psutil.Process(self.cluster.process.pid).children(recursive=True)
            if each.name() == "gcs_server"
        ]
        assert servers
        for each in servers:
            each.suspend()
        try:
            yield
        finally:
            for each in servers:
                each.resume()

    def kill(self, folder: Path) -> None:
        self.cluster.kill_node_of(self.pid(folder))


def order_of(folder: Path, address: str, *command: str, cpu: float = 1.0) -> MachineSpec:
    return MachineSpec(command, "secret", folder, cpu=cpu, options={"address": address})


def test_machines_that_wait_are_reported_once_with_what_is_free(
    cluster: RayCluster, tmp_path: Path
) -> None:
    machines = make_machines("ray", order_of(tmp_path, cluster.address, "true", cpu=64))
    try:
        machines.want(2)
        (event,) = until(machines.poll)
        assert str(event) == "ray: waits: a machine needs 64 CPU, 8 are free"
        assert machines.num == 0
    finally:
        machines.close()


def test_a_command_that_fails_says_why(cluster: RayCluster, tmp_path: Path) -> None:
    wrong = "import sys; sys.exit('no such run')"
    machines = make_machines(
        "ray", order_of(tmp_path, cluster.address, sys.executable, "-c", wrong)
    )
    try:
        machines.want(1)
        events = until(lambda: [each for each in machines.poll() if each.kind == "lost"])
        assert str(events[0]) == "machine-0: lost: ended with exit code 1: no such run"
    finally:
        machines.close()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:9", "no Ray cluster answers at 127.0.0.1:9: .*Connection refused"),
        ("head", "no Ray cluster answers at head: .*"),
    ],
)
def test_a_wrong_address_is_refused(tmp_path: Path, address: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_machines("ray", order_of(tmp_path / "machines", address, "true"))
    assert not (tmp_path / "machines").exists()


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"--on ray needs a package .*\[ray\]"):
        make_machines("ray", order_of(tmp_path / "machines", "auto", "true"))
