"""One pod of the stand-in for the kubelet: its address, its volumes, its containers."""

from __future__ import annotations

import base64
import os
import shutil
import signal
from pathlib import Path
from typing import Any

from tests.addons.kubernetes.api import Api
from tests.addons.kubernetes.played_container import PlayedContainer, now_text
from tests.addons.kubernetes.pod_network import PodNetwork
from tests.addons.kubernetes.pod_root import volumes_of

Data = dict[str, Any]
_LOOK_SECONDS = 1.0


class PlayedPod:
    """One pod: its address, its volumes, its containers.

    Args:
        data: the object.
        folder: of this pod on this machine.
        network: where it gets its address.
        image: the packages of the image.
    """

    def __init__(self, data: Data, folder: Path, network: PodNetwork, image: Path) -> None:
        self.name: str = data["metadata"]["name"]
        self.namespace: str = data["metadata"]["namespace"]
        owners = data["metadata"].get("ownerReferences", ())
        self.job: str = next((each["uid"] for each in owners if each["kind"] == "Job"), "")
        self.address = network.add_pod()
        self.ending_since: float | None = None
        self.reported: Data = {}
        self.missing = ""
        self._data = data
        self._folder = folder
        self._network = network
        self._image = image
        self._next_look = 0.0
        self._started = now_text()
        self.hosts = folder / "hosts"
        self.containers: list[PlayedContainer] = []
        folder.mkdir(parents=True)
        self.hosts.write_text("")

    def start(self, api: Api, now: float) -> None:
        """Starts the containers once all volumes are there; notes what is missing."""
        if self.containers or now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        spec = self._data["spec"]
        sources: dict[str, Path] = {}
        for volume in spec["volumes"]:
            group = int(spec["securityContext"]["fsGroup"])
            sources[volume["name"]], self.missing = self._volume(volume, api, group)
            if self.missing:
                return
        self.containers = [
            PlayedContainer(
                each | {"env": [self._variable(one, api) for one in each["env"]]},
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

    def _variable(self, variable: Data, api: Api) -> Data:
        """Returns a variable, with the value that a Secret has for it."""
        key = variable.get("valueFrom", {}).get("secretKeyRef")
        if key is None:
            return variable
        secret = api.request("GET", f"/api/v1/namespaces/{self.namespace}/secrets/{key['name']}")
        value = base64.b64decode(secret["data"][key["key"]]).decode()
        return {"name": variable["name"], "value": value}

    def _volume(self, volume: Data, api: Api, group: int) -> tuple[Path, str]:
        path = self._folder / "volumes" / volume["name"]
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            path = _claimed_folder(api, self.namespace, claim)
        for kind, named in (("configMap", "name"), ("secret", "secretName")):
            if kind in volume:
                name = volume[kind][named]
                data = api.find(f"/api/v1/namespaces/{self.namespace}/{kind.lower()}s/{name}")
                if data is None:
                    return path, f'MountVolume.SetUp failed: {kind.lower()} "{name}" not found'
                _write(path, data, volume[kind].get("defaultMode", 0o644), group)
                return path, ""
        path.mkdir(parents=True, exist_ok=True)
        os.chown(path, 0, group)
        path.chmod(0o2775)
        return path, ""

    def end(self, now: float, grace_seconds: float) -> bool:
        """Ends the pod as it is told; True once nothing of it is left."""
        if self.ending_since is None:
            self.ending_since = now
            for container in self.containers:
                container.restarts_wanted = False
                container.signal(signal.SIGTERM)
        if now - self.ending_since >= grace_seconds:
            for container in self.containers:
                container.signal(signal.SIGKILL)
        for container in self.containers:
            container.step(now)
        return not any(container.alive for container in self.containers)

    def close(self) -> None:
        """Gives back namespace, folders and memory group."""
        for container in self.containers:
            container.close()
        self._network.remove_pod(self.address)
        shutil.rmtree(self._folder, ignore_errors=True)

    def status(self) -> Data:
        """Returns the status of the object."""
        known = [container.status() for container in self.containers]
        if not known:
            waiting = {"waiting": {"reason": "ContainerCreating", "message": self.missing}}
            known = [
                {"name": each["name"], "ready": False, "started": False, "restartCount": 0}
                | {"state": waiting, "image": each["image"], "imageID": ""}
                for each in self._data["spec"]["containers"]
            ]
        ready = "True" if all(each["ready"] for each in known) else "False"
        conditions = {"Initialized": "True", "ContainersReady": ready, "Ready": ready}
        return {
            "phase": self.phase(),
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "startTime": self._started,
            "conditions": [{"type": key, "status": value} for key, value in conditions.items()],
            "containerStatuses": known,
        }

    def phase(self) -> str:
        if not self.containers:
            return "Pending"
        if not all(container.ended_for_good for container in self.containers):
            return "Running"
        good = all(container.exit_code == 0 for container in self.containers)
        return "Succeeded" if good else "Failed"


def _claimed_folder(api: Api, namespace: str, claim: str) -> Path:
    """Returns the folder of the volume that is bound to a claim."""
    data = api.request("GET", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")
    volume = api.request("GET", f"/api/v1/persistentvolumes/{data['spec']['volumeName']}")
    return Path(volume["spec"]["hostPath"]["path"])


def _write(path: Path, data: Data, mode: int, group: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name, value in data["data"].items():
        content = base64.b64decode(value) if data["kind"] == "Secret" else value.encode()
        (path / name).write_bytes(content)
        os.chown(path / name, 0, group)
        (path / name).chmod(mode)
