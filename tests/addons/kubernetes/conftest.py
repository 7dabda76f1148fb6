"""One resolved experiment for all tests of this folder, and what needs kubectl or root."""

from __future__ import annotations

import functools
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from main.cli import main as surreal_like
from session.addons.kubernetes.settings import Setting
from session.config.config import Config, apply_overrides
from surreal_like.addons.kubernetes.experiment_objects import kubernetes_setting
from surreal_like.run.request import RunRequest
from tests.addons.kubernetes.cluster import FOREIGN, NamedCluster, TestedCluster, open_cluster
from tests.addons.kubernetes.control_plane import ControlPlane
from tests.addons.kubernetes.kubelet import Kubelet

ROOT = Path(__file__).resolve().parents[3]
K8S = ROOT / "k8s"
# The first whose kustomize knows `labels:`, and whose clusters number the pods of a StatefulSet.
OLDEST_KUBECTL = (1, 28)


@functools.cache
def _config() -> Config:
    return RunRequest("configs/cartpole_dqn.yaml").resolve().config


def experiment() -> Config:
    """The CartPole experiment."""
    return _config().copy()


def setting_of(*overrides: str, name: str = "cartpole") -> Setting:
    """The CartPole experiment on a cluster, with other settings than its file's."""
    return kubernetes_setting(apply_overrides(experiment(), overrides), name)


def commands() -> list[list[str]]:
    """The command lines of `make manifests`."""
    said = subprocess.run(
        ["make", "--dry-run", "--always-make", "manifests"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    lines = said.stdout.replace("\\\n", " ").splitlines()
    return [shlex.split(line)[1:] for line in lines if "--on kubernetes" in line]


@pytest.fixture(scope="session")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder k8s/ as `make manifests` writes it, with the single files."""
    top = tmp_path_factory.mktemp("rendered")
    for line in commands():
        place = line.index("--folder") + 1
        assert surreal_like([*line[:place], str(top / line[place]), *line[place + 1 :]]) == 0
    return top / "k8s"


def missing_kubectl() -> str:
    """Why tests with kubectl cannot run here, empty if they can."""
    if shutil.which("kubectl") is None:
        return "there is no kubectl here"
    said = subprocess.run(
        ["kubectl", "version", "--client", "-o", "json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    version = json.loads(said.stdout)["clientVersion"]
    found = int(version["major"]), int(version["minor"].rstrip("+"))
    return "" if found >= OLDEST_KUBECTL else f"kubectl {found} is older than {OLDEST_KUBECTL}"


def missing_namespaces() -> str:
    """Why pods cannot be played by processes here, empty if they can."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    gone = [name for name in ("ip", "iptables", "nsenter", "unshare") if shutil.which(name) is None]
    return f"missing here: {', '.join(gone)}" if gone else ""


@pytest.fixture(scope="session")
def control_plane(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ControlPlane | NamedCluster]:
    """One control plane for all tests of this folder."""
    if FOREIGN:
        yield NamedCluster(FOREIGN, tmp_path_factory.mktemp("cluster"))
        return
    with ControlPlane(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest.fixture(scope="session")
def kubelet(
    control_plane: ControlPlane | NamedCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kubelet | None]:
    """One node for all tests of this folder that run pods, None where there are others."""
    if isinstance(control_plane, NamedCluster):
        yield None
        return
    with Kubelet(control_plane.api, tmp_path_factory.mktemp("node")) as node:
        yield node
        assert not node.failures, node.failures[0]


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[TestedCluster]:
    """A namespace of the control plane that admits no pod."""
    with control_plane.namespace(pods=0) as name:
        yield TestedCluster(name)


@pytest.fixture
def cluster(
    control_plane: ControlPlane | NamedCluster, kubelet: Kubelet | None
) -> Iterator[TestedCluster]:
    """A namespace of the cluster; its pods run on this machine, or on nodes of its own."""
    with open_cluster(control_plane, kubelet) as found:
        yield found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips, with the reason, what this machine cannot run."""
    ours = [item for item in items if "tests/addons/kubernetes" in str(item.path)]
    reasons = {"kubectl": missing_kubectl, "root": missing_namespaces}
    for marker, missing in reasons.items():
        marked = [item for item in ours if item.get_closest_marker(marker) is not None]
        if marked and (reason := missing()):
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))
