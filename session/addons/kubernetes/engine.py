"""Machines that are pods of a StatefulSet on a Kubernetes cluster."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from session.addons.engines.machines import COMMAND, Machines, MachineSpec, machine_name
from session.addons.kubernetes.defaults import KUBERNETES
from session.addons.kubernetes.kubectl import Kubectl
from session.addons.kubernetes.kustomize import dump_objects
from session.addons.kubernetes.objects import make_stateful_set
from session.addons.kubernetes.pod_fields import check_metadata, check_pods
from session.addons.kubernetes.pod_templates import Data
from session.addons.kubernetes.settings import Setting, check_name, run_name
from session.addons.kubernetes.table import Container, containers_of, describe_end, row_of
from session.config.config import Config, apply_overrides
from session.config.sections import complete_session
from session.errors import UsageError
from session.launchers.instruction import Event
from session.process.component import TOKEN, Component, Topology

# Setting of the engine -> key of `session_config.kubernetes`.
_KEYS = {
    **{name: name for name in ("name", "namespace", "context", "image", "image_pull_policy")},
    "spot": "prefer_spot",
    **{name: name for name in ("node_selector", "pods", "labels", "annotations", "scratch_bytes")},
}
_PART, _TOKEN = "machine", "token"
_LOOK_SECONDS = 2.0
_END_SECONDS = 60
# A pod that waits for these only needs more time, or its end was reported already.
_PASSING = ("for a node", "ContainerCreating", "ErrImagePull", "CrashLoopBackOff")


class KubernetesMachines(Machines):
    """Runs each machine as a pod; the cluster replaces one that is lost.

    Args:
        spec: what they run, in an image with surreal-like; their files are in the pods' ``/tmp``.

    Raises:
        ConfigError: a setting is not valid.
        UsageError: there is no kubectl, no cluster answers, or it refuses the objects.
    """

    share_files = False
    options = {name: KUBERNETES.default[key].text for name, key in _KEYS.items()}  # noqa: RUF012

    def __init__(self, spec: MachineSpec) -> None:
        super().__init__(spec)
        self._setting = setting = make_setting(spec)
        self.name = setting.name
        self._kubectl = Kubectl(setting.config)
        chosen = (f"{key}={value}" for key, value in setting.selector(_PART).items())
        self._selector = f"--selector={','.join(chosen)}"
        self._removal = f"remove them with: kubectl delete statefulset,secret {self._selector}"
        self._wanted = 0
        # Number in the objects of the cluster; None: there are none; -1: some may be missing.
        self._applied: int | None = None
        self._look_at = 0.0
        self._found: dict[str, Container] = {}
        if self._kubectl.exists("statefulset", setting.host(_PART)):
            raise UsageError(
                f"the cluster has machines '{setting.name}' already: choose another name with "
                f"--option name=NAME, or {self._removal}"
            )
        self._apply(1, "--dry-run=server")

    def _apply(self, number: int, *options: str) -> None:
        objects = make_objects(self._setting, self._spec, number)
        self._kubectl.run("apply", "--filename=-", *options, given=dump_objects(objects))

    def want(self, number: int) -> None:
        self._wanted = number

    @property
    def num(self) -> int:
        return sum(each.running for each in self._found.values())

    def _poll(self) -> list[Event]:
        now, before = time.monotonic(), self._found
        if now < self._look_at:
            return []
        self._look_at = now + _LOOK_SECONDS
        if self._applied != self._wanted:
            self._applied = -1
            self._apply(self._wanted)
            self._applied = self._wanted
        pods = self._kubectl.get("pods", self._selector)
        self._found = containers_of(pods, self.name)
        wanted = {machine_name(number) for number in range(self._wanted)}
        return [
            event
            for name in sorted(before.keys() | self._found.keys())
            for event in _compare(name, before.get(name), self._found.get(name), name in wanted)
        ]

    def close(self) -> None:
        if self._applied is None:
            return
        seconds = self._setting.grace_seconds + _END_SECONDS
        # In the foreground: it returns when the pods are gone, too.
        how = ("--cascade=foreground", f"--timeout={seconds}s", "--request-timeout=0")
        what = ("statefulset,secret", self._selector)
        try:
            self._kubectl.run("delete", *what, *how, timeout_seconds=seconds + _LOOK_SECONDS)
        except UsageError as error:
            raise UsageError(f"machines '{self.name}' are left: {error}; {self._removal}") from None
        self._applied = None


def _compare(
    name: str, before: Container | None, now: Container | None, wanted: bool
) -> Iterator[Event]:
    """Yields what has happened to a machine between two looks."""
    was, life, trouble = _life(before), _life(now), _trouble(now)
    if was and was != life:
        if now is None or now.ending or now.made != was[0]:
            trouble = trouble or "its pod was deleted"
        else:
            trouble = trouble or describe_end(now.end)
        lost = wanted and bool(trouble)
        yield Event(name, *(("lost", trouble) if lost else ("ended",)))
    elif wanted and trouble and not _trouble(before).startswith(trouble.partition(":")[0]):
        yield Event(name, "lost", trouble)
    if life and was != life:
        yield Event(name, "started")


def _life(container: Container | None) -> tuple[str, int] | None:
    """Returns the identity of a process that runs: its pod, and the restarts there."""
    if container is None or not container.running:
        return None
    return container.made, int(container.status["restartCount"])


def _trouble(container: Container | None) -> str:
    """Returns the reason why a machine is not at work, empty if it only needs more time."""
    if container is None or container.running:
        return ""
    doing = row_of(container, {}).doing
    waits = "" if doing.partition(":")[0] in _PASSING else doing
    return container.reason or describe_end(container.end) or waits


def make_setting(spec: MachineSpec) -> Setting:
    """Returns the setting of a run whose only component is a machine.

    Raises:
        ConfigError: a setting is not valid.
    """
    section = "session_config.kubernetes"
    given = [f"{section}.{_KEYS[name]}={value}" for name, value in spec.options.items()]
    config = apply_overrides(Config({"session_config": {}}), given)
    config = Config({"session_config": complete_session(config.session_config)})
    settings = config.session_config.kubernetes
    check_pods(config)
    check_metadata(section, settings)
    name = check_name(settings.name or run_name(spec.folder.parent.name))
    machine = Component(f"{_PART}-0", "agent", "main.cli", resources=spec.resources)
    return Setting(config, Topology([machine]), name)


def make_objects(setting: Setting, spec: MachineSpec, number: int) -> tuple[Data, Data]:
    """Returns the Secret of the token, and the StatefulSet of so many machines.

    A pod is that of an agent, without what belongs to a run: its files, keys and probes.
    """
    data = {_TOKEN: base64.b64encode(spec.token.encode()).decode()}
    secret = setting.make_object("Secret", _TOKEN, _PART, type="Opaque", data=data)
    machines = make_stateful_set(setting, list(setting.topology))
    machines["spec"]["replicas"] = number
    pod = machines["spec"]["template"]["spec"]
    (agent,) = pod["containers"]
    words = replace(spec, folder=Path("/tmp")).words(f"{_PART}-$(POD_INDEX)")
    if tuple(words[: len(COMMAND)]) == COMMAND:
        # The image has another interpreter.
        words = ["surreal-like", *words[len(COMMAND) :]]
    token = {"secretKeyRef": {"name": setting.host(_TOKEN), "key": _TOKEN}}
    container = {name: value for name, value in agent.items() if not name.endswith("Probe")}
    container |= {
        "command": words[:1],
        "args": words[1:],
        "env": [*agent["env"], {"name": TOKEN, "valueFrom": token}],
        "volumeMounts": [each for each in agent["volumeMounts"] if each["name"] == "tmp"],
    }
    tmp = [each for each in pod["volumes"] if each["name"] == "tmp"]
    pod |= {"containers": [container], "volumes": tmp}
    return secret, machines
