"""A real control plane on this machine: etcd, API server, controllers and scheduler.

The programs are built by :mod:`tests.addons.kubernetes.build_control_plane`. Everything that runs
here listens on the loopback interface only, keeps its state in one temporary folder, and ends
with the test.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.addons.kubernetes.api import Api, ApiError
from tests.addons.kubernetes.build_control_plane import programs_folder
from tests.addons.kubernetes.old_server import write_kubectl
from tests.polling import until

_SERVICES = "10.77.128.0/17"
# Alpha in 1.20: without the gate the field `ttlSecondsAfterFinished` is dropped.
_GATES = "--feature-gates=TTLAfterFinished=true"
_CLAIMS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {
        "name": "folders",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": "kubernetes.io/host-path",
}


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class ControlPlane:
    """Runs the control plane; use it in a ``with`` statement.

    Args:
        folder: state, keys and logs of its processes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port, self._etcd = _free_port(), f"http://127.0.0.1:{_free_port()}"
        self._token = secrets.token_hex(16)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> ControlPlane:
        try:
            self._start_server()
            self.api.request("POST", "/apis/storage.k8s.io/v1/storageclasses", _CLAIMS)
            self._start_controllers()
            (self._folder / "tools").mkdir()
            write_kubectl(self._folder / "tools" / "kubectl", str(shutil.which("kubectl")))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError, ApiError, AttributeError):
            self._remove_volumes()
        for process in reversed(self._processes.values()):
            process.kill()
            process.wait()

    def _remove_volumes(self) -> None:
        """Removes what the provisioner of 1.20 makes, in a folder that cannot be chosen."""
        for volume in self.api.request("GET", "/api/v1/persistentvolumes")["items"]:
            path = Path(volume["spec"]["hostPath"]["path"])
            shutil.rmtree(path, ignore_errors=True)
            with suppress(OSError):
                path.parent.rmdir()

    @contextmanager
    def namespace(self, pods: int = 1000) -> Iterator[str]:
        """Makes a namespace to which KUBECONFIG leads; removes it with all that is in it.

        Args:
            pods: number of pods that it admits.
        """
        name = f"test-{secrets.token_hex(4)}"
        path = f"/api/v1/namespaces/{name}"
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.api.request("POST", "/api/v1/namespaces", made)
        quota = {"metadata": {"name": "pods"}, "spec": {"hard": {"pods": str(pods)}}}
        self.api.request("POST", f"{path}/resourcequotas", quota)
        # No pod is admitted before that.
        until(lambda: self.api.find(f"{path}/serviceaccounts/default"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KUBECONFIG", str(self.write_kubeconfig(self._folder / name, name)))
            patch.setenv("KUBECACHEDIR", str(self._folder / "cache"))
            patch.setenv("PATH", f"{self._folder / 'tools'}:{os.environ['PATH']}")
            yield name
        self.api.request("DELETE", path)
        # From now on the controllers make no more of them; nobody waits for their ends.
        until(lambda: self.api.request("GET", path)["status"]["phase"] == "Terminating")
        self.api.request("DELETE", f"{path}/pods", {"gracePeriodSeconds": 0})
        until(lambda: not (self.api.find(f"{path}/pods") or {"items": []})["items"])

    @property
    def certificate(self) -> Path:
        """The file with the certificate of the server; its key lies beside it."""
        return self._folder / "certificates" / "apiserver.crt"

    def _start_server(self) -> None:
        folder, key = self._folder, self._folder / "accounts.key"
        (folder / "tokens").write_text(f"{self._token},admin,1,system:masters\n")
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        self._start(
            "etcd",
            f"--data-dir={folder / 'etcd'}",
            *(f"--{name}-client-urls={self._etcd}" for name in ("listen", "advertise")),
            f"--listen-peer-urls=http://127.0.0.1:{_free_port()}",
        )
        self._start(
            "kube-apiserver",
            f"--etcd-servers={self._etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={folder / 'certificates'}",
            f"--service-cluster-ip-range={_SERVICES}",
            "--authorization-mode=RBAC",
            f"--token-auth-file={folder / 'tokens'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={key}",
            f"--service-account-key-file={key}",
            "--kubelet-preferred-address-types=InternalIP",
            _GATES,
        )
        until(self._is_ready, what=self._words)
        self.write_kubeconfig(folder / "kubeconfig", "default")

    def _start_controllers(self) -> None:
        plain = (
            *(f"--kubeconfig={self._folder / 'kubeconfig'}", "--leader-elect=false"),
            *("--port=0", "--secure-port=0", "--kube-api-qps=100", "--kube-api-burst=200"),
        )
        self._start(
            "kube-controller-manager",
            *plain,
            f"--service-account-private-key-file={self._folder / 'accounts.key'}",
            "--enable-hostpath-provisioner",
            "--node-monitor-period=1s",
            "--horizontal-pod-autoscaler-sync-period=1s",
            _GATES,
        )
        self._start("kube-scheduler", *plain)

    def _start(self, program: str, *arguments: str) -> None:
        with (self._folder / f"{program}.log").open("wb") as log:
            self._processes[program] = subprocess.Popen(
                # They end with the process that started them, however it ends.
                ["setpriv", "--pdeathsig=KILL", str(programs_folder() / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _is_ready(self) -> bool:
        dead = [name for name, each in self._processes.items() if each.poll() is not None]
        assert not dead, f"{dead} ended: {self._words()}"
        try:
            self.api = Api(self._port, self._token, self.certificate)
            return bool(self.api.request("GET", "/readyz") == "ok")
        except (OSError, ApiError):
            return False

    def _words(self) -> str:
        """Returns the last words of each process, for a failed test."""
        logs = sorted(self._folder.glob("*.log"))
        return "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in logs)

    def write_kubeconfig(self, path: Path, namespace: str) -> Path:
        """Writes a file for the variable KUBECONFIG; it names the namespace of a test."""
        server = {"server": f"https://127.0.0.1:{self._port}"}
        server |= {"certificate-authority": str(self.certificate)}
        context = {"cluster": "own", "user": "admin", "namespace": namespace}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "own", "cluster": server}],
            "users": [{"name": "admin", "user": {"token": self._token}}],
            "contexts": [{"name": "own", "context": context}],
            "current-context": "own",
        }
        path.write_text(json.dumps(config))
        return path
