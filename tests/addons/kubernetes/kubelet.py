"""A stand-in for the kubelet of one node: the containers of its pods run as processes here.

It registers a node with the API server, watches the pods that the scheduler binds to it, and
reports their status. Each pod has a network namespace, each container a root directory, a number
space of processes and a memory limit of its own. Restarts, probes and ends follow the rules of
Kubernetes, with shorter waits. Needs root.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.addons.kubernetes.api import STRATEGIC, Api, ApiError, WatchedList
from tests.addons.kubernetes.kubelet_server import KubeletServer
from tests.addons.kubernetes.played_container import PlayedContainer, now_text
from tests.addons.kubernetes.played_pod import PlayedPod
from tests.addons.kubernetes.pod_network import PodNetwork
from tests.addons.kubernetes.pod_root import build_image
from tests.addons.kubernetes.remote_command import Outcome

Data = dict[str, Any]
NODE = "node-0"
_STEP_SECONDS = 0.1
_HEARTBEAT_SECONDS = 5.0
_SIZE = {"cpu": "500", "memory": "1000Gi", "ephemeral-storage": "1000Gi", "pods": "500"}


class Kubelet:
    """Runs the pods of one node; use it in a ``with`` statement.

    Args:
        api: client of the API server.
        folder: for everything that pods write, volumes excepted.
    """

    def __init__(self, api: Api, folder: Path) -> None:
        self.api = api
        self._folder = folder
        self._image = build_image(folder / "image")
        self._network = PodNetwork(f"sl{os.getpid() % 100000}")
        self._server = KubeletServer(folder, self.execute, self.read_log)
        self._lists = {
            "pods": WatchedList(api, "/api/v1/pods", f"spec.nodeName={NODE}"),
            "services": WatchedList(api, "/api/v1/services"),
            "endpoints": WatchedList(api, "/api/v1/endpoints"),
        }
        self._pods: dict[str, PlayedPod] = {}
        self._lock = threading.RLock()
        self._next_heartbeat = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="kubelet")
        self._stack = ExitStack()
        self.failures: list[str] = []

    def __enter__(self) -> Kubelet:
        self._stack.enter_context(self._server)
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        self.api.request("POST", "/api/v1/nodes", node)
        for each in self._lists.values():
            self._stack.enter_context(each)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join(60)
        self._stack.close()
        for pod in self._pods.values():
            self._end_at_once(pod)
        self._network.close()

    def _work(self) -> None:
        while not self._over.wait(_STEP_SECONDS):
            try:
                with self._lock:
                    self._step(time.monotonic())
            except Exception:  # noqa: BLE001 - a test shows it, and the others go on
                self.failures.append(traceback.format_exc())

    def _step(self, now: float) -> None:
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + _HEARTBEAT_SECONDS
            self._report_node()
        known = self._lists["pods"].objects()
        for uid in self._pods.keys() - known.keys():
            # Removed by force: nobody waits for its end.
            self._end_at_once(self._pods.pop(uid))
        for uid, data in known.items():
            if uid not in self._pods:
                folder = self._folder / "pods" / uid
                self._pods[uid] = PlayedPod(data, folder, self._network, self._image)
            self._step_pod(uid, data, now)
        self._connect()

    def _step_pod(self, uid: str, data: Data, now: float) -> None:
        pod, metadata = self._pods[uid], data["metadata"]
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            if "deletionTimestamp" in metadata:
                if pod.end(now, metadata["deletionGracePeriodSeconds"]):
                    options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
                    self.api.request("DELETE", path, options)
                    return
            else:
                if not self._is_replaced_too_early(pod):
                    pod.start(self.api, now)
                for container in pod.containers:
                    container.step(now)
            status = pod.status()
            if status != pod.reported:
                # The uid: its name may belong to the next pod already.
                changed = {"metadata": {"uid": uid}, "status": status}
                self.api.request("PATCH", f"{path}/status", changed, STRATEGIC)
                pod.reported = status
        except ApiError as error:
            # It is gone, or replaced by one of the same name: the next step sees that.
            if error.code not in (404, 409):
                raise

    def _is_replaced_too_early(self, pod: PlayedPod) -> bool:
        """Returns True while the pod before it ends: `podReplacementPolicy`, unknown to 1.20."""
        ending = (each.job for each in self._pods.values() if each.ending_since is not None)
        return pod.job != "" and pod.job in ending

    def _report_node(self) -> None:
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": now_text()}
        status = {
            "capacity": _SIZE,
            "allocatable": _SIZE,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._server.port}},
            "conditions": [condition],
        }
        self.api.request("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": status}, STRATEGIC)

    def _connect(self) -> None:
        """Leads the addresses of Services to pods; every pod knows the names of its namespace."""
        ready = {
            (each["metadata"]["namespace"], each["metadata"]["name"]): [
                address["ip"]
                for subset in each.get("subsets") or []
                for address in subset.get("addresses") or []
            ]
            for each in self._lists["endpoints"].objects().values()
        }
        targets: dict[str, str] = {}
        lines: dict[str, list[str]] = {}
        for service in self._lists["services"].objects().values():
            place = service["metadata"]["namespace"], service["metadata"]["name"]
            # A Service of the type ExternalName has none.
            address = service["spec"].get("clusterIP", "None")
            if address != "None":
                targets[address] = (ready.get(place) or [""])[-1]
                lines.setdefault(place[0], []).append(f"{address} {place[1]}")
        for pod in self._pods.values():
            lines.setdefault(pod.namespace, []).append(f"{pod.address} {pod.name}")
        self._network.route(targets)
        for pod in self._pods.values():
            text = "\n".join(["127.0.0.1 localhost", *sorted(lines[pod.namespace]), ""])
            if pod.hosts.read_text() != text:
                pod.hosts.write_text(text)

    def _end_at_once(self, pod: PlayedPod) -> None:
        for container in pod.containers:
            container.restarts_wanted = False
            container.signal(signal.SIGKILL)
        for container in pod.containers:
            container.join(10)
        pod.close()

    # -- what the API server asks of a node --------------------------------------------------------

    def _container(self, namespace: str, pod: str, name: str) -> PlayedContainer | None:
        with self._lock:
            for each in self._pods.values():
                if (each.namespace, each.name) == (namespace, pod):
                    return next((own for own in each.containers if own.name == name), None)
        return None

    def execute(self, namespace: str, pod: str, name: str, command: list[str]) -> Outcome:
        """Runs a command in a container."""
        container = self._container(namespace, pod, name)
        if container is None or not container.alive:
            return Outcome(1, b"", b"container not running\n")
        done = subprocess.run(container.enter(command), capture_output=True, check=False)
        # A command that a signal has ended has the exit code that a shell gives it.
        code = done.returncode if done.returncode >= 0 else 128 - done.returncode
        return Outcome(code, done.stdout, done.stderr)

    def read_log(self, namespace: str, pod: str, name: str) -> str:
        """Returns what a container has written."""
        container = self._container(namespace, pod, name)
        return container.log.read_text(errors="replace") if container is not None else ""

    def has_pods(self, namespace: str) -> bool:
        """Returns False once no process of a namespace is left."""
        with self._lock:
            return any(each.namespace == namespace for each in self._pods.values())

    # -- what a test does to a node ----------------------------------------------------------------

    def kill(self, namespace: str, pod: str) -> None:
        """Kills the processes of a pod, as the kernel of its node would."""
        with self._lock:
            for each in self._pods.values():
                for container in (
                    each.containers if (each.namespace, each.name) == (namespace, pod) else []
                ):
                    container.signal(signal.SIGKILL)

    def unplug(self, namespace: str, pod: str) -> None:
        """Cuts a pod off, as if its node had lost its cable: no connection of it is closed."""
        with self._lock:
            for each in self._pods.values():
                if (each.namespace, each.name) == (namespace, pod):
                    self._network.unplug(each.address)

    @contextmanager
    def machine(self) -> Iterator[tuple[str, str]]:
        """Makes a machine that the pods reach; returns its network namespace and its address."""
        with self._lock:
            address = self._network.add_pod()
        try:
            yield self._network.namespace(address), address
        finally:
            with self._lock:
                self._network.remove_pod(address)

    def first_process(self, namespace: str, pod: str, container: str) -> int:
        """Returns the number that a container's first process has here, 0 if there is none."""
        found = self._container(namespace, pod, container)
        return (found.first() or 0) if found is not None else 0
