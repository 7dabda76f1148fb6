"""A cluster as a test sees it: one namespace, reached by kubectl, and what can be done to its pods.

It is the control plane of this machine with the stand-in for a kubelet, or any other cluster.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from session.addons.kubernetes.table import containers_of
from tests.addons.kubernetes.control_plane import ControlPlane
from tests.addons.kubernetes.kubelet import Kubelet
from tests.polling import until

Data = dict[str, Any]
T = TypeVar("T")
# A kubeconfig of a cluster with nodes of its own, and the image that these have.
FOREIGN = os.environ.get("SURREAL_LIKE_TEST_CLUSTER", "")
IMAGE = os.environ.get("SURREAL_LIKE_TEST_IMAGE", "surreal-like:cpu")
_PART = "app.kubernetes.io/component"


class TestedCluster:
    """One namespace of a cluster; KUBECONFIG names it.

    Args:
        namespace: name of the namespace.
        kubelet: runs the pods on this machine; None where a cluster has nodes of its own.
    """

    __test__ = False

    def __init__(self, namespace: str, kubelet: Kubelet | None = None) -> None:
        self.namespace = namespace
        self._kubelet = kubelet
        self._began = time.monotonic()

    @property
    def kubelet(self) -> Kubelet:
        """The stand-in, for tests that need one."""
        assert self._kubelet is not None
        return self._kubelet

    def kubectl(self, *words: str, code: int = 0) -> str:
        """Returns what kubectl prints; with another exit code than 0, on both channels."""
        done = subprocess.run(
            ["kubectl", *words], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stdout + done.stderr

    def get(self, *words: str) -> Data:
        """Returns objects as data."""
        found: Data = json.loads(self.kubectl("get", *words, "--output=json"))
        return found

    def until(self, look: Callable[[], T | None], what: str, seconds: float = 120.0) -> T:
        """Waits for something that is true."""
        deadline = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < deadline, f"not in {seconds:g} s: {what}: {self.shown()}"
            assert not (self._kubelet and self._kubelet.failures), self.kubelet.failures[0]
            time.sleep(0.3)
        sys.stdout.write(f"{time.monotonic() - self._began:6.1f} s  {what}\n")
        return found

    def pods(self) -> dict[str, Data]:
        """Returns name -> object of each pod."""
        return {each["metadata"]["name"]: each for each in self.get("pods")["items"]}

    def shown(self) -> str:
        """Returns what is known of the pods and the newest events, for a failed test."""
        events = self.kubectl("get", "events", "--sort-by=.lastTimestamp").splitlines()
        return "\n".join([self.kubectl("get", "pods", "-o", "wide"), *events[-20:]])

    def ready(self, part: str) -> list[str]:
        """Returns the pods of one part of the run that are ready."""
        return [
            name
            for name, pod in self.pods().items()
            if pod["metadata"]["labels"].get(_PART) == part
            and "deletionTimestamp" not in pod["metadata"]
            and {"type": "Ready", "status": "True"}.items()
            <= next((c for c in _conditions(pod) if c["type"] == "Ready"), {}).items()
        ]

    def restarts(self) -> dict[tuple[str, str], int]:
        """Returns (pod, its uid) -> restarts of all its containers."""
        return {
            (name, pod["metadata"]["uid"]): sum(
                each["restartCount"] for each in pod["status"].get("containerStatuses", [])
            )
            for name, pod in self.pods().items()
        }

    def is_complete(self, job: str) -> bool:
        """Returns True once a Job has ended well."""
        return any(each["type"] == "Complete" for each in _conditions(self.get("job", job)))

    def process(self, run: str, component: str) -> int:
        """Returns the number of a component's first process on this machine, 0 without one."""
        found = containers_of({"items": list(self.pods().values())}, run).get(component)
        if found is None:
            return 0
        return self.kubelet.first_process(self.namespace, found.pod, found.name)


@contextmanager
def open_cluster(
    plane: ControlPlane | NamedCluster, kubelet: Kubelet | None
) -> Iterator[TestedCluster]:
    """Makes a namespace; removes it, and waits for the processes of its pods."""
    with plane.namespace() as name:
        yield TestedCluster(name, kubelet)
    if kubelet is not None:
        until(lambda: not kubelet.has_pods(name))


class NamedCluster:
    """A cluster with nodes of its own.

    Args:
        kubeconfig: file that names it, and a user who may make namespaces.
        folder: for the kubeconfigs of tests.
    """

    def __init__(self, kubeconfig: str, folder: Path) -> None:
        self._kubeconfig = kubeconfig
        self._folder = folder

    @contextmanager
    def namespace(self) -> Iterator[str]:
        """Makes a namespace to which KUBECONFIG leads; removes it with all that is in it."""
        name = f"surreal-like-{secrets.token_hex(4)}"
        own = self._folder / name
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KUBECONFIG", self._kubeconfig)
            own.write_text(_kubectl("config", "view", "--flatten", "--minify"))
            patch.setenv("KUBECONFIG", str(own))
            _kubectl("config", "set-context", "--current", f"--namespace={name}")
            _kubectl("create", "namespace", name)
            try:
                yield name
            finally:
                _kubectl("delete", "namespace", name)


def _kubectl(*words: str) -> str:
    return subprocess.run(
        ["kubectl", *words], stdout=subprocess.PIPE, text=True, timeout=300, check=True
    ).stdout


def _conditions(data: Data) -> list[Data]:
    found: list[Data] = data.get("status", {}).get("conditions") or []
    return found
