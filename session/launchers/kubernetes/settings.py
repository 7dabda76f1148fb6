"""What a run is on Kubernetes: its name, its places inside the pods, its addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from session.component import Component, Topology
from session.config import Config
from session.config_file import dump_yaml
from session.errors import ConfigError, UsageError
from session.launchers.kubernetes.pod_fields import check_pods
from session.version import VERSION
from session.wire import AddressBook
from session.wire.endpoint import Address

RUN_PATH = "/run/surreal"
INSTANCE = "app.kubernetes.io/instance"
FIRST_PORT = 7000
# Labels of pods end in the name of what made them and a hash, and hold 63 characters.
LONGEST_NAME = 40
LARGEST_CODE_BYTES = 512 << 10

_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_GIBIBYTE, _MEBIBYTE = 1 << 30, 1 << 20


@dataclass(frozen=True, slots=True)
class Setting:
    """All that the objects of a run are made of.

    Args:
        config: the resolved experiment, prepared for a cluster.
        topology: its components.
        name: of the run.
        code: name -> text of each of the user's own files.
        prefixed: the names of its objects begin with it; False where kustomize puts it there.
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
        """Time of a pod for its clean end, with a margin for the frame around the component."""
        seconds: float = self.session.launcher.grace_seconds
        return ceil(seconds) + 10

    @property
    def has_keys(self) -> bool:
        """False only where anybody may connect."""
        return not self.session.security.insecure

    def named(self, word: str) -> str:
        """The name of one of its objects, in the text of another one."""
        return self.host(word) if self.prefixed else word

    def host(self, component: str) -> str:
        """The name by which others find a component: that of its Service."""
        return f"{self.name}-{component}"

    def metadata(self, name: str, part: str) -> dict[str, Any]:
        """Metadata of an object: its name, its namespace, and the part of the run it belongs to."""
        space = self.session.kubernetes.namespace
        placed = {"namespace": str(space)} if space is not None else {}
        # Not on pods: another version of ours must not replace pods that need not change.
        labels = {**self.labels(part), "app.kubernetes.io/version": VERSION}
        return {"name": self.named(name), **placed, "labels": labels}

    def labels(self, part: str) -> dict[str, str]:
        """Labels of the objects of one part of the run, such as ``agent``."""
        return {
            "app.kubernetes.io/name": "surreal-like",
            "app.kubernetes.io/managed-by": "surreal-like",
            INSTANCE: self.name,
            "app.kubernetes.io/component": part,
        }

    def selector(self, part: str) -> dict[str, str]:
        """Labels that find the pods of one part of this run and of no other."""
        labels = self.labels(part)
        return {key: labels[key] for key in (INSTANCE, "app.kubernetes.io/component")}


def stem(component: Component) -> str:
    """Its name without the number: what its StatefulSet or Deployment is called."""
    return component.name.removesuffix(f"-{component.index}")


def run_name(text: str) -> str:
    """A name for the objects of a run, made from the name of its experiment."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).lstrip("-0123456789")
    return words[:LONGEST_NAME].rstrip("-") or "run"


def check_name(name: str) -> str:
    """The name, if objects can begin with it.

    Raises:
        ConfigError: they cannot.
    """
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise ConfigError(
            f"session_config.kubernetes.name is '{name}': use lower case letters, digits and "
            f"hyphens, a letter first, at most {LONGEST_NAME} characters"
        )
    return name


def prepared(config: Config, name: str) -> Config:
    """The config of a run on a cluster: what differs there from a run of one machine.

    Every pod has a run folder of its own; nothing exits that a controller would start again.

    Args:
        config: the resolved experiment.
        name: of the experiment; ``session_config.kubernetes.name`` goes before it.

    Raises:
        ConfigError: the name or ``session_config.kubernetes.pods`` is not one for objects.
    """
    check_pods(config)
    config = config.copy()
    session = config.session_config
    session.kubernetes.name = check_name(session.kubernetes.name or run_name(name))
    session.folder = RUN_PATH
    session.at_end = "idle"
    session.launcher.on_sigterm = "resume"
    session.launcher.transport = "tcp"
    session.tensorplex.start_tensorboard = True
    config["run"] = {**(config.get("run") or {}), "launcher": "kubernetes"}
    # What runs is decided by the image, not by the machine that has resolved the experiment.
    config["recorded"] = {"fingerprint": config.fingerprint()}
    return config


def make_setting(config: Config, topology: Topology, code: Mapping[str, str]) -> Setting:
    """Checks and gathers what the objects are made of.

    Args:
        config: from :func:`prepared`.
        topology: its components.
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
    """Where each endpoint is: bound to the pod's own address, found through a Service."""
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
    """Endpoint -> port, for all that a component binds."""
    return {endpoint: FIRST_PORT + number for number, endpoint in enumerate(component.binds)}


def config_text(setting: Setting) -> str:
    """The text of the run's ``config.yaml``."""
    return dump_yaml(setting.config.to_dict())


def cores(number: float) -> str:
    """Processor time as Kubernetes writes it: ``2``, ``500m``."""
    thousandths = round(number * 1000)
    return f"{thousandths}m" if thousandths % 1000 else f"{thousandths // 1000}"


def size(size_bytes: int) -> str:
    """A size as Kubernetes writes it: ``4Gi``, ``512Mi``."""
    for unit, name in ((_GIBIBYTE, "Gi"), (_MEBIBYTE, "Mi")):
        if size_bytes and size_bytes % unit == 0:
            return f"{size_bytes // unit}{name}"
    return str(size_bytes)
