"""A whole cluster on this machine: the API server's stand-in, and pods that are played."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.pod_runner import PodRunner

Data = dict[str, Any]
T = TypeVar("T")
_SHOWN_CHARACTERS = 2000


class Playground:
    """What a test sees of the cluster.

    Args:
        api: the server.
        pods: plays them.
    """

    def __init__(self, api: ApiServer, pods: PodRunner) -> None:
        self.api = api
        self.pods = pods
        self._began = time.monotonic()

    def kubectl(self, *words: str) -> str:
        """What kubectl prints."""
        done = subprocess.run(
            ["kubectl", *words], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def until(self, look: Callable[[], T | None], what: str, seconds: float = 120.0) -> T:
        """Waits for something that is true."""
        deadline = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < deadline, f"not in {seconds:g} s: {what}: {self.shown()}"
            assert not self.pods.failures, self.pods.failures[0]
            time.sleep(0.2)
        sys.stdout.write(f"{time.monotonic() - self._began:6.1f} s  {what}\n")
        return found

    def shown(self) -> dict[str, Any]:
        """Name of each pod -> what is known of its containers, for a failed test."""
        return {
            name: [
                (each["ready"], each["restartCount"], each["state"])
                for each in pod.get("status", {}).get("containerStatuses", [])
            ]
            for name, pod in self.pods.pods().items()
        }

    def tell(self) -> None:
        """Shows the end of what each container has written, for a failed test."""
        for name, pod in self.pods.pods().items():
            for container in pod["spec"]["containers"]:
                text = self.pods.read_log(name, container["name"])
                shown = text[-_SHOWN_CHARACTERS:]
                sys.stdout.write(f"-- {name} {container['name']}\n{shown}\n")

    def ready(self, part: str) -> list[str]:
        """The pods of one part of the run that are ready."""
        return [
            name
            for name, pod in self.pods.pods().items()
            if pod["metadata"]["labels"]["app.kubernetes.io/component"] == part
            and "deletionTimestamp" not in pod["metadata"]
            and all(each["ready"] for each in pod["status"].get("containerStatuses", []))
            and pod["status"].get("containerStatuses")
        ]

    def restarts(self) -> dict[tuple[str, str], int]:
        """(pod, its identity) -> restarts of all its containers."""
        return {
            (name, pod["metadata"]["uid"]): sum(
                each["restartCount"] for each in pod["status"].get("containerStatuses", [])
            )
            for name, pod in self.pods.pods().items()
        }

    def complete(self, job: str) -> bool:
        """True once a Job has ended well."""
        found = self.api.store.find("jobs", "default", {})
        (data,) = (each for each in found if each["metadata"]["name"] == job)
        return bool(data.get("status", {}).get("conditions"))


@contextmanager
def playground(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Playground]:
    """A cluster that KUBECONFIG leads to."""
    with ApiServer() as api, PodRunner(api.store, folder / "node") as pods:
        api.execute, api.read_log = pods.execute, pods.read_log
        monkeypatch.setenv("KUBECONFIG", str(api.write_kubeconfig(folder / "kubeconfig")))
        monkeypatch.setenv("KUBECACHEDIR", str(folder / "cache"))
        cluster = Playground(api, pods)
        try:
            yield cluster
        except BaseException:
            cluster.tell()
            raise
        assert not pods.failures, pods.failures[0]
