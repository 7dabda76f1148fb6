"""Launches a run on a cluster: objects, keys and ``kubectl apply``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from session.addons.kubernetes.kustomize import dump_objects
from session.addons.kubernetes.objects import objects_of
from session.addons.kubernetes.run import KINDS, KubernetesRun
from session.addons.kubernetes.secret import cluster_keys
from session.addons.kubernetes.settings import (
    INSTANCE,
    TLS_FILES,
    Setting,
    make_setting,
    prepare,
)
from session.atomic_file import write_atomically
from session.config import Config
from session.errors import UsageError
from session.folder import RunFolder
from session.launchers.handle import Cluster, RunHandle
from session.process.component import Component, Topology, resources_of
from session.process.periodic import wait_until
from session.wire.security import write_keys

MANIFEST = "kubernetes.yaml"
_PODS_SECONDS = 10.0
_LOOK_SECONDS = 0.5


class KubernetesCluster(KubernetesRun, Cluster):
    """Launches a run on a cluster, detached from this process; then controls it.

    Args:
        config: the resolved experiment.
        topology: components of the run and their wiring.
        folder: the run folder on this machine; its ``code/`` is copied to the pods.

    Raises:
        ConfigError: ``session_config.kubernetes.name`` is not valid as a name of objects.
        UsageError: there is no kubectl, or the user's own file is too large.
    """

    def __init__(self, config: Config, topology: Topology, folder: RunFolder) -> None:
        # Of this machine: it resumes, or serves, with its own files.
        self._gateway = config.session_config.get("gateway")
        config = prepare(config, folder.path.name)
        RunHandle.__init__(self, folder)
        self._setting = _setting(config, topology, folder)
        self._open(config)

    def dry_run(self) -> str:
        """Returns all objects except the Secrets, as YAML."""
        return dump_objects(objects_of(self._setting))

    def launch(self) -> None:
        """Applies the objects, and returns once the first pods exist, after at most 10 seconds.

        Raises:
            UsageError: no cluster answers, the namespace is missing, or the name is in use.
        """
        self._refuse_taken()
        manifest = self.dry_run()
        if self._setting.has_keys:
            write_keys(self._folder.keys, cluster_keys())
            if self._gateway and self._gateway.num:
                self._add_gateway_files()
            self.apply_secrets()
        self.kubectl.run("apply", "--filename=-", given=manifest)
        self._tie_to_learner()
        write_atomically(self._folder.path / MANIFEST, manifest)
        own = self.config.copy()
        if self._gateway:
            own.session_config.gateway = self._gateway
        own.dump_file(self._folder.config)
        wait_until(self._containers, _PODS_SECONDS, look_seconds=_LOOK_SECONDS)

    def _add_gateway_files(self) -> None:
        """Adds the certificate of gateways to the keys, and the folder of the clients' tokens."""
        gateway, keys = self._gateway, self._folder.keys
        if gateway.tokens:
            self._folder.client_tokens.mkdir(mode=0o700, exist_ok=True)
        if gateway.tls.cert is not None:
            for name, path in zip(TLS_FILES, (gateway.tls.cert, gateway.tls.key), strict=True):
                write_atomically(keys / name, Path(path).read_text(), private=True)

    def _tie_to_learner(self) -> None:
        """Makes the cluster remove the learner's Job some time after its end, and all else with it.

        The Job becomes owner of the other objects except the volumes. Owners are identified by
        uid, which the cluster assigns, so this is done after ``kubectl apply``.
        """
        ttl_seconds: int | None = self.config.session_config.kubernetes.ttl_seconds
        if ttl_seconds is None:
            return
        job = self.kubectl.get("job", f"{self._name}-learner")
        kinds = ",".join(kind for kind in KINDS if kind != "job")
        chosen = f"--selector={INSTANCE}={self._name}"
        names = self.kubectl.run("get", kinds, chosen, "--output=name").split()
        owner = {name: job[name] for name in ("apiVersion", "kind")}
        owner |= {name: job["metadata"][name] for name in ("name", "uid")}
        owned = json.dumps({"metadata": {"ownerReferences": [owner]}})
        self.kubectl.run("patch", *names, "--type=merge", f"--patch={owned}")
        ends = json.dumps({"spec": {"ttlSecondsAfterFinished": ttl_seconds}})
        self.kubectl.run("patch", f"job/{self._name}-learner", "--type=merge", f"--patch={ends}")

    def _refuse_taken(self) -> None:
        kubectl = self.kubectl
        if kubectl.exists("job", f"{self._name}-learner"):
            raise UsageError(
                f"the cluster has a run '{self._name}' already: stop it, or choose another name "
                "with session_config.kubernetes.name=NAME"
            )
        resumed = int(self.config["run"].get("part", 1)) > 1
        if not resumed and kubectl.exists("pvc", f"{self._name}-learner"):
            raise UsageError(
                f"an earlier run '{self._name}' has left its volumes: go on with it by --resume, "
                f"remove them with kubectl delete pvc -l {INSTANCE}={self._name}, or choose "
                "another name with session_config.kubernetes.name=NAME"
            )


def _setting(config: Config, topology: Topology, folder: RunFolder) -> Setting:
    code = {path.name: path.read_text(encoding="utf-8") for path in folder.code.glob("*.py")}
    return make_setting(config, _with_tensorboard(config, topology), code)


def _with_tensorboard(config: Config, topology: Topology) -> Topology:
    """Adds TensorBoard, which shows Tensorplex's volume, if it is missing."""
    if topology.of_kind("tensorboard") or "tensorplex" not in topology:
        return topology
    board = Component(
        "tensorboard",
        "tensorboard",
        "main.tensorboard",
        connects=("ps.requests", "tensorplex.records", "loggerplex.records"),
        resources=resources_of(config.session_config, "tensorboard"),
    )
    return Topology([*topology, replace(board, restart=topology["tensorplex"].restart)])
