"""Plays the nodes of a cluster: the containers of each pod run as processes of this machine.

Each pod has a network namespace, each container a root directory, a number space of processes and a
memory limit of its own. Controllers, restarts, probes and ends follow the rules of Kubernetes, with
shorter waits. Needs root.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from session.launchers.kubernetes.table import containers_of
from tests.kubernetes.api_server import Key, Store
from tests.kubernetes.controllers import reconcile
from tests.kubernetes.played_container import PlayedContainer
from tests.kubernetes.pod_network import PodNetwork
from tests.kubernetes.pod_root import build_image, volumes_of
from tests.kubernetes.remote_command import Outcome

Data = dict[str, Any]
_NAMESPACE = "default"
_STEP_SECONDS = 0.1


class PlayedPod:
    """One pod: its address, its volumes, its containers.

    Args:
        data: the object.
        folder: of this pod on this machine.
        network: where it gets its address.
        node: folder of what outlives pods: volumes, and the image.
    """

    def __init__(self, data: Data, folder: Path, network: PodNetwork, node: Path) -> None:
        self.name: str = data["metadata"]["name"]
        self.uid: str = data["metadata"]["uid"]
        self.address = network.add_pod()
        self.ending_since: float | None = None
        self._data = data
        self._folder = folder
        self._network = network
        self._claims = node / "claims"
        self._image = node / "image"
        self.hosts = folder / "hosts"
        self.containers: list[PlayedContainer] = []
        folder.mkdir(parents=True)
        self.hosts.write_text("")

    def start(self, store: Store) -> str:
        """Starts the containers once all volumes are there; what is missing, else empty."""
        if self.containers:
            return ""
        spec = self._data["spec"]
        sources: dict[str, Path] = {}
        for volume in spec["volumes"]:
            path, missing = self._volume(volume, store, int(spec["securityContext"]["fsGroup"]))
            if missing:
                return missing
            sources[volume["name"]] = path
        self.containers = [
            PlayedContainer(
                each,
                self._data,
                self._folder / each["name"],
                volumes=volumes_of(each, sources),
                hosts=self.hosts,
                address=self.address,
                namespace=self._network.namespace(self.address),
                image=self._image,
            )
            for each in spec["containers"]
        ]
        return ""

    def _volume(self, volume: Data, store: Store, group: int) -> tuple[Path, str]:
        path = self._folder / "volumes" / volume["name"]
        if "persistentVolumeClaim" in volume:
            path = self._claims / volume["persistentVolumeClaim"]["claimName"]
        for kind, named in (("configMap", "name"), ("secret", "secretName")):
            if kind in volume:
                name = volume[kind][named]
                data = store.objects.get(Key(f"{kind.lower()}s", _NAMESPACE, name))
                if data is None:
                    return path, f'MountVolume.SetUp failed: {kind.lower()} "{name}" not found'
                _write(path, data, volume[kind].get("defaultMode", 0o644), group)
                return path, ""
        path.mkdir(parents=True, exist_ok=True)
        os.chown(path, 0, group)
        path.chmod(0o2775)
        return path, ""

    def end(self, now: float) -> bool:
        """Ends the pod as it is told; True once nothing of it is left."""
        grace_seconds: int = self._data["spec"]["terminationGracePeriodSeconds"]
        if self.ending_since is None:
            self.ending_since = now
            for container in self.containers:
                container.restarts_wanted = False
                container.signal(signal.SIGTERM)
        elif now - self.ending_since > grace_seconds:
            for container in self.containers:
                container.signal(signal.SIGKILL)
        return not any(container.alive for container in self.containers)

    def close(self) -> None:
        """Gives back namespace, folders and memory group."""
        for container in self.containers:
            container.close()
        self._network.remove_pod(self.address)
        shutil.rmtree(self._folder, ignore_errors=True)

    def status(self, missing: str) -> Data:
        """The status of the object."""
        known = [container.status() for container in self.containers]
        if not known:
            waiting = {"waiting": {"reason": "ContainerCreating", "message": missing}}
            known = [
                {"name": each["name"], "ready": False, "started": False, "restartCount": 0}
                | {"state": waiting}
                for each in self._data["spec"]["containers"]
            ]
        return {
            "phase": self.phase(),
            "podIP": self.address,
            "containerStatuses": known,
        }

    def phase(self) -> str:
        if not self.containers:
            return "Pending"
        ended = [container.ended_for_good for container in self.containers]
        if not all(ended):
            return "Running"
        good = all(container.exit_code == 0 for container in self.containers)
        return "Succeeded" if good else "Failed"


def _write(path: Path, data: Data, mode: int, group: int) -> None:
    import base64

    path.mkdir(parents=True, exist_ok=True)
    for name, value in data["data"].items():
        content = base64.b64decode(value) if data["kind"] == "Secret" else value.encode()
        (path / name).write_bytes(content)
        os.chown(path / name, 0, group)
        (path / name).chmod(mode)


class PodRunner:
    """Makes the pods that the objects of a store ask for; use it in a ``with`` statement.

    Args:
        store: of the API server.
        folder: for everything that pods write.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        build_image(folder / "image")
        self._network = PodNetwork(f"sl{os.getpid() % 100000}")
        self._pods: dict[str, PlayedPod] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="pods")
        self.failures: list[str] = []

    def __enter__(self) -> PodRunner:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join(60)
        for pod in self._pods.values():
            for container in pod.containers:
                container.restarts_wanted = False
                container.signal(signal.SIGKILL)
        for pod in self._pods.values():
            for container in pod.containers:
                container.join(10)
            pod.close()
        self._network.close()

    def _work(self) -> None:
        while not self._over.wait(_STEP_SECONDS):
            try:
                with self._store.lock:
                    reconcile(self._store, _NAMESPACE)
                    self._step()
            except Exception:  # noqa: BLE001 - a test shows it, and the others go on
                self.failures.append(traceback.format_exc())

    def _step(self) -> None:
        store, now = self._store, time.monotonic()
        for data in store.find("pods", _NAMESPACE, {}):
            name, uid = data["metadata"]["name"], data["metadata"]["uid"]
            if uid not in self._pods:
                folder = self._folder / "pods" / uid
                self._pods[uid] = PlayedPod(data, folder, self._network, self._folder)
            pod = self._pods[uid]
            if "deletionTimestamp" in data["metadata"]:
                if pod.end(now):
                    pod.close()
                    del self._pods[uid]
                    del store.objects[Key("pods", _NAMESPACE, name)]
                    continue
                missing = ""
            else:
                missing = pod.start(store)
            for container in pod.containers:
                container.step(now)
            data["status"] = pod.status(missing)
        self._connect()

    def _connect(self) -> None:
        """Services lead to living pods, and every pod knows the names of all."""
        targets, lines = {}, ["127.0.0.1 localhost"]
        pods = {data["metadata"]["uid"]: data for data in self._store.find("pods", _NAMESPACE, {})}
        living = [
            (pod, pods[uid])
            for uid, pod in self._pods.items()
            if uid in pods and pod.phase() == "Running"
        ]
        lines += [f"{pod.address} {pod.name}" for pod, _ in living]
        for service in self._store.find("services", _NAMESPACE, {}):
            spec, name = service["spec"], service["metadata"]["name"]
            if spec.get("clusterIP") == "None":
                continue
            behind = [
                pod.address
                for pod, data in living
                if spec["selector"].items() <= data["metadata"]["labels"].items()
            ]
            targets[name] = behind[-1] if behind else ""
            lines.append(f"{self._network.service_address(name)} {name}")
        self._network.route(targets)
        text = "\n".join([*lines, ""])
        for pod in self._pods.values():
            if pod.hosts.read_text() != text:
                pod.hosts.write_text(text)

    # -- what kubectl asks of a node --------------------------------------------------------------

    def _container(self, pod: str, name: str) -> PlayedContainer | None:
        for each in self._pods.values():
            for container in each.containers if each.name == pod else []:
                if name in ("", container.name):
                    return container
        return None

    def execute(self, pod: str, name: str, command: list[str]) -> Outcome:
        """Runs a command in a container."""
        container = self._container(pod, name)
        if container is None or not container.alive:
            return Outcome(1, b"", b"container not running\n")
        done = subprocess.run(container.enter(command), capture_output=True, check=False)
        # A command that a signal has ended has the exit code that a shell gives it.
        code = done.returncode if done.returncode >= 0 else 128 - done.returncode
        return Outcome(code, done.stdout, done.stderr)

    def read_log(self, pod: str, name: str) -> str:
        """What a container has written."""
        container = self._container(pod, name)
        return container.log.read_text(errors="replace") if container is not None else ""

    def kill(self, pod: str) -> None:
        """Kills the processes of a pod, as the kernel of its node would."""
        with self._store.lock:
            for each in self._pods.values():
                for container in each.containers if each.name == pod else []:
                    container.signal(signal.SIGKILL)

    def lose(self, pod: str) -> None:
        """A node vanishes with this pod: nobody hears of its end, and the pod is made elsewhere."""
        with self._store.lock:
            for each in self._pods.values():
                if each.name == pod:
                    self._network.unplug(each.address)
            self._store.delete(Key("pods", _NAMESPACE, pod))
        self.kill(pod)

    def process(self, run: str, component: str) -> int | None:
        """The number that the first process of a component has on this machine."""
        with self._store.lock:
            found = self._store.find("pods", _NAMESPACE, {})
            containers = containers_of({"items": found}, run)
            if component not in containers:
                return None
            container = self._container(containers[component].pod, containers[component].name)
            return container.first() if container is not None else None

    def claim(self, name: str) -> Path:
        """The folder of a volume."""
        return self._folder / "claims" / name

    def pods(self) -> Mapping[str, Data]:
        """Name -> object of each pod."""
        with self._store.lock:
            found = self._store.find("pods", _NAMESPACE, {})
            return {data["metadata"]["name"]: data for data in found}
