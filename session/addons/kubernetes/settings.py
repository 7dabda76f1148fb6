"""Settings of a run on Kubernetes: name, paths inside the pods, addresses; warnings about them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from session.addons import acting_kinds
from session.addons.hooks import PODS
from session.addons.kubernetes.pod_fields import check_metadata, check_pods, texts
from session.config import Config
from session.config.file import dump_yaml
from session.errors import ConfigError, UsageError
from session.launchers.launcher import end_advice
from session.process.component import RESOURCES, Component, Topology, resources_of, split_name
from session.version import VERSION
from session.wire import AddressBook
from session.wire.endpoint import Address

# To fetch an image of some gigabytes and to start pods takes minutes.
SHORT_SECONDS = 900


def warnings(config: Config) -> list[str]:
    """Returns likely mistakes of a config on a cluster, each in one line with its remedy."""
    session = config.session_config
    image: str = session.kubernetes.image
    seconds: float | None = session.stop.seconds
    lines = []
    if "/" not in image:
        lines.append(
            f"image {image} names no registry: load it into each node (kind load docker-image "
            f"{image}, minikube image load {image}), or push it and set "
            "session_config.kubernetes.image=REGISTRY/NAME:TAG"
        )
    port: int = session.tensorplex.prometheus_port
    if port and not session.kubernetes.metrics_from:
        lines.append(
            f"session_config.tensorplex.prometheus_port is {port}, on the loopback interface of "
            "its pod, where only kubectl port-forward reaches it; let Prometheus read it with "
            "session_config.kubernetes.metrics_from=[NAMESPACE]"
        )
    if seconds is not None and seconds < SHORT_SECONDS:
        lines.append(
            f"session_config.stop.seconds is {seconds:g}, and nodes that fetch the image and start "
            "pods use minutes of it: raise it, for example session_config.stop.seconds=3600"
        )
    return lines + end_advice(config)


def launch_advice(config: Config, components: Iterable[str]) -> list[str]:
    """Returns advice for the launch, in lines.

    Args:
        config: config of the run.
        components: names of the components.
    """
    idle = [name for name in components if name != "learner"]
    return [*warnings(config), end_note(config, idle)]


def end_note(config: Config, components: Iterable[str]) -> str:
    """Describes the end of the pods after the run, as advice at the launch.

    Args:
        config: config of the run.
        components: names of those that idle after the end.
    """
    ttl_seconds: int | None = config.session_config.kubernetes.ttl_seconds
    if ttl_seconds is not None:
        return (
            f"all objects but the volumes are removed {ttl_seconds} s after the end of the run "
            "(session_config.kubernetes.ttl_seconds; null: they stay); status copies result.json "
            "to this machine until then"
        )
    return (
        f"after the end of the run its pods idle and keep {_cores(config, components)} reserved "
        "until surreal-like stop; session_config.kubernetes.ttl_seconds=3600 removes them an hour "
        "after the end"
    )


def idle_note(config: Config, components: Iterable[str]) -> str:
    """Describes what a run that is over still reserves, with the remedy; empty if nothing.

    Args:
        config: config of the run.
        components: names of those that still have pods.
    """
    names = list(components)
    if not names:
        return ""
    ttl_seconds: int | None = config.session_config.kubernetes.ttl_seconds
    until = f", at most {ttl_seconds} s after the end" if ttl_seconds is not None else ""
    return (
        f"the run is over; {len(names)} components idle and keep {_cores(config, names)} "
        f"reserved{until}; remove them: surreal-like stop"
    )


def _cores(config: Config, components: Iterable[str]) -> str:
    kinds = (_kind(name) for name in components)
    session = config.session_config
    number = sum(
        resources_of(session, kind).cpu for kind in kinds if kind in (*RESOURCES, *acting_kinds())
    )
    return f"{number:g} cores"


def _kind(component: str) -> str:
    """Returns the kind of a component's name."""
    stem, number = split_name(component)
    # A shard of a policy has its name, too.
    kind = stem if number is None else stem.partition("-")[0]
    return "evaluator" if kind == "eval" else kind


RUN_PATH = "/run/surreal"
INSTANCE = "app.kubernetes.io/instance"
FIRST_PORT = 7000
# Ports from there on that no other purpose may have.
_PORTS = 10
# Certificate of gateways and its private key, in their Secret.
TLS_FILES = ("tls.crt", "tls.key")
# Labels of pods hold 63 characters and also contain the name of their controller and a hash.
LONGEST_NAME = 40
LARGEST_CODE_BYTES = 512 << 10

# Kind of objects -> version of the interface that has it.
_VERSIONS = {
    **dict.fromkeys(("ConfigMap", "PersistentVolumeClaim", "Secret", "Service"), "v1"),
    **dict.fromkeys(("Deployment", "StatefulSet"), "apps/v1"),
    "Job": "batch/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
}
_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_GIBIBYTE, _MEBIBYTE = 1 << 30, 1 << 20


@dataclass(frozen=True, slots=True)
class Setting:
    """Input from which the objects of a run are made.

    Args:
        config: the resolved experiment, prepared for a cluster.
        topology: components of the run and their wiring.
        name: name of the run.
        code: name -> text of each of the user's own files.
        prefixed: True if object names begin with it; False if kustomize adds it.
    """

    config: Config
    topology: Topology
    name: str
    code: Mapping[str, str] = field(default_factory=dict)
    prefixed: bool = True

    @property
    def session(self) -> Config:
        """``session_config``."""
        session: Config = self.config.session_config
        return session

    @property
    def grace_seconds(self) -> int:
        """Time of a pod for its clean end, with a margin of 10 s for the frame of the component."""
        seconds: float = self.session.launcher.grace_seconds
        return ceil(seconds) + 10

    @property
    def has_keys(self) -> bool:
        """False only if the run is insecure: any client may connect."""
        return not self.session.security.insecure

    def named(self, word: str) -> str:
        """Returns the name of one of its objects, as written in another object."""
        return self.host(word) if self.prefixed else word

    def host(self, component: str) -> str:
        """Returns the host name of a component, which is the name of its Service."""
        return f"{self.name}-{component}"

    def make_object(self, kind: str, name: str, part: str, **content: Any) -> dict[str, Any]:
        """Returns an object of one part of the run: its kind, its metadata, then its content."""
        metadata = self._metadata(name, part)
        return {"apiVersion": _VERSIONS[kind], "kind": kind, "metadata": metadata, **content}

    def _metadata(self, name: str, part: str) -> dict[str, Any]:
        space = self.session.kubernetes.namespace
        placed = {"namespace": str(space)} if space is not None else {}
        # Not on pods: a new version of surreal-like alone must not replace pods.
        added = self.added()
        labels = {**added["labels"], **self.labels(part), "app.kubernetes.io/version": VERSION}
        annotations = {"annotations": added["annotations"]} if added["annotations"] else {}
        return {"name": self.named(name), **placed, "labels": labels, **annotations}

    def added(self) -> dict[str, dict[str, str]]:
        """Returns the ``labels`` and ``annotations`` that the user adds to all objects."""
        return added_metadata(self.config)

    def metrics(self, component: Component) -> dict[str, int]:
        """Returns the name and the port of a component's metrics that others in the cluster read.

        Empty unless ``session_config.kubernetes.metrics_from`` names them.
        """
        port: int = self.session.tensorplex.prometheus_port
        opened = component.kind == "tensorplex" and port and self.session.kubernetes.metrics_from
        return {"metrics": port} if opened else {}

    def labels(self, part: str) -> dict[str, str]:
        """Returns the labels of the objects of one part of the run, such as ``agent``."""
        return {
            "app.kubernetes.io/name": "surreal-like",
            "app.kubernetes.io/managed-by": "surreal-like",
            INSTANCE: self.name,
            "app.kubernetes.io/component": part,
        }

    def selector(self, part: str) -> dict[str, str]:
        """Returns labels that select the pods of one part of this run and no others."""
        labels = self.labels(part)
        return {key: labels[key] for key in (INSTANCE, "app.kubernetes.io/component")}


def added_metadata(config: Config) -> dict[str, dict[str, str]]:
    """Returns the ``labels`` and ``annotations`` of all objects of a run, as texts."""
    settings = config.session_config.kubernetes
    return {key: texts(settings.get(key) or {}) for key in ("labels", "annotations")}


def stem(component: Component) -> str:
    """Returns its name without the number: the name of its StatefulSet or Deployment."""
    return component.name.removesuffix(f"-{component.index}")


def run_name(text: str) -> str:
    """Makes a name for the objects of a run from the name of its experiment."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).lstrip("-0123456789")
    return words[:LONGEST_NAME].rstrip("-") or "run"


def check_name(name: str) -> str:
    """Returns the name if it is a valid prefix of object names.

    Raises:
        ConfigError: it is not.
    """
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise ConfigError(
            f"session_config.kubernetes.name is '{name}': use lower case letters, digits and "
            f"hyphens, a letter first, at most {LONGEST_NAME} characters"
        )
    return name


def prepare(config: Config, name: str) -> Config:
    """Returns the config for a cluster, changed where it differs from a run on one machine.

    Every pod has its own run folder; components do not exit where a controller would restart them.

    Args:
        config: the resolved experiment.
        name: name of the experiment, used without ``session_config.kubernetes.name``.

    Raises:
        ConfigError: the name, a label or ``session_config.kubernetes.pods`` is not valid for
            objects, or strangers could use the port of gateways or of the metrics.
    """
    check_pods(config)
    check_metadata("session_config.kubernetes", config.session_config.kubernetes)
    _check_metrics(config.session_config)
    config = config.copy()
    session = config.session_config
    session.kubernetes.name = check_name(session.kubernetes.name or run_name(name))
    session.folder = RUN_PATH
    certificate = f"{RUN_PATH}/keys/{TLS_FILES[0]}", f"{RUN_PATH}/keys/{TLS_FILES[1]}"
    for prepare in PODS:
        prepare(session, certificate)
    session.at_end = "idle"
    session.launcher.transport = "tcp"
    session.tensorplex.start_tensorboard = True
    config["run"] = {**(config.get("run") or {}), "launcher": "kubernetes"}
    # The image determines the code that runs, not the machine that resolves the experiment.
    config["recorded"] = {"fingerprint": config.fingerprint()}
    return config


def _check_metrics(session: Config) -> None:
    """Rejects metrics that any pod of the cluster could read."""
    settings, port = session.kubernetes, session.tensorplex.prometheus_port
    where = f"session_config.kubernetes.metrics_from is {settings.metrics_from}"
    if not settings.metrics_from:
        return
    if not all(
        isinstance(each, str) and _NAMESPACE.fullmatch(each) for each in settings.metrics_from
    ):
        raise ConfigError(f"{where}, expected names of namespaces, as in [monitoring]")
    if not port or FIRST_PORT <= port < FIRST_PORT + _PORTS:
        raise ConfigError(
            f"{where}, but session_config.tensorplex.prometheus_port is {port}: set a port outside "
            f"of {FIRST_PORT} to {FIRST_PORT + _PORTS - 1}, for example 9100"
        )
    if not settings.network_policy:
        raise ConfigError(
            f"{where}, but session_config.kubernetes.network_policy is false, so every pod of the "
            "cluster could read the metrics, which no key protects: set it to true"
        )


def make_setting(config: Config, topology: Topology, code: Mapping[str, str]) -> Setting:
    """Checks and collects the input from which the objects are made.

    Args:
        config: result of :func:`prepare`.
        topology: components of the run and their wiring.
        code: name -> text of each of the user's own files.

    Raises:
        UsageError: the user's files are too large for a ConfigMap.
    """
    size_bytes = sum(len(text.encode()) for text in code.values())
    if size_bytes > LARGEST_CODE_BYTES:
        raise UsageError(
            f"{', '.join(code)}: {size_bytes:,} bytes do not fit into the ConfigMap of a run, "
            f"which takes {LARGEST_CODE_BYTES:,}; build it into the image: make image"
        )
    return Setting(config, topology, config.session_config.kubernetes.name, dict(code))


def make_addresses(setting: Setting) -> AddressBook:
    """Returns the address of each endpoint: bound at the pod's IP, reached through a Service."""
    return AddressBook(
        {
            endpoint: Address(
                f"tcp://$(POD_IP):{port}", f"tcp://{setting.host(component.name)}:{port}"
            )
            for component in setting.topology
            for endpoint, port in ports(component).items()
        }
    )


def ports(component: Component) -> dict[str, int]:
    """Returns endpoint -> port, for all endpoints that a component binds."""
    return {endpoint: FIRST_PORT + number for number, endpoint in enumerate(component.binds)}


def short_ports(component: Component) -> dict[str, int]:
    """Returns :func:`ports` by the last word of each endpoint, the name of its port."""
    return {endpoint.rpartition(".")[2]: port for endpoint, port in ports(component).items()}


def topology_text(setting: Setting) -> str:
    """Returns the text of ``topology.json``, one component per line.

    The first agent, gateway and evaluator describe all others, so all gateways have one port: the
    file must fit into a ConfigMap, whatever their number.
    """
    first = [each for each in setting.topology if each.binds or each.index == 0]
    lines = (json.dumps(each) for each in Topology(first).to_dict()["components"])
    return '{"components": [\n' + ",\n".join(lines) + "\n]}\n"


def config_text(setting: Setting) -> str:
    """Returns the text of the run's ``config.yaml``."""
    return dump_yaml(setting.config.to_dict())


def cores(number: float) -> str:
    """Formats a number of cores as Kubernetes does: ``2``, ``500m``."""
    thousandths = round(number * 1000)
    return f"{thousandths}m" if thousandths % 1000 else f"{thousandths // 1000}"


def size(size_bytes: int) -> str:
    """Formats a size in bytes as Kubernetes does: ``4Gi``, ``512Mi``."""
    for unit, name in ((_GIBIBYTE, "Gi"), (_MEBIBYTE, "Mi")):
        if size_bytes and size_bytes % unit == 0:
            return f"{size_bytes // unit}{name}"
    return str(size_bytes)
