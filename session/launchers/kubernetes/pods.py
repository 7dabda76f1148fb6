"""The pods of a run: what runs in each, what it sees, and when it counts as alive."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

from session.component import Component
from session.launchers.kubernetes.secret import secret_of
from session.launchers.kubernetes.settings import RUN_PATH, Setting, cores, ports, size, stem

Data = dict[str, Any]

NUMBERED = ("agent", "evaluator", "replay")
ELASTIC = ("agent", "evaluator")
# Numeric, for a node can check that it is not root without asking the image.
_USER = 10001
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_POD_INDEX = "metadata.labels['apps.kubernetes.io/pod-index']"
_STARTUP_SECONDS, _PROBE_SECONDS, _PROBE_TIMEOUT_SECONDS = 5, 20, 15
_SAVING_SECONDS = 60


def pod_template(
    setting: Setting, components: Sequence[Component], *, claim: str | None = None
) -> Data:
    """The template of a pod with one container for each component.

    Args:
        setting: the run.
        components: the first one names the pod.
        claim: whose volume holds the run folder; None: it goes with the pod.
    """
    first = components[0]
    grace_seconds = setting.grace_seconds + (_SAVING_SECONDS if first.kind == "learner" else 0)
    spec: Data = {
        "terminationGracePeriodSeconds": grace_seconds,
        # Nothing here asks the cluster for anything, and no variable may hide one of ours.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **(_placement(setting) if first.kind in ELASTIC else {}),
        "containers": [
            _container(setting, component, alone=len(components) == 1) for component in components
        ],
        "volumes": _volumes(setting, claim, secret_of(first.kind)),
    }
    return {"metadata": {"labels": setting.labels(stem(first))}, "spec": spec}


def _container(setting: Setting, component: Component, *, alone: bool) -> Data:
    settings = setting.session.kubernetes
    container: Data = {
        "name": stem(component),
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": ["python", "-P", "-m", component.module],
        "args": _arguments(component),
        "env": _environment(component),
        "resources": _resources(component),
        **_probes(setting, "" if alone else component.name),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": _mounts(setting),
    }
    if component.binds:
        container["ports"] = [
            {"name": endpoint.rpartition(".")[2], "containerPort": port}
            for endpoint, port in ports(component).items()
        ]
    return container


def _arguments(component: Component) -> list[str]:
    """The arguments of every launcher; the number in a name is that of the pod."""
    arguments = component.arguments(RUN_PATH)
    if component.kind not in NUMBERED:
        return arguments
    numbered = f"{stem(component)}-$(POD_INDEX)"
    return [numbered if each == component.name else each for each in arguments]


def _environment(component: Component) -> list[Data]:
    fields = {"POD_IP": "status.podIP"}
    if component.kind in NUMBERED:
        fields["POD_INDEX"] = _POD_INDEX
    return [
        *(
            {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
            for name, path in fields.items()
        ),
        {"name": "HOME", "value": "/tmp"},
        *({"name": name, "value": "1"} for name in _ONE_THREAD),
    ]


def _resources(component: Component) -> Data:
    """Memory is bounded, processor time is not: a limit would only slow down an idle node."""
    asked = component.resources
    requests, limits = {}, {}
    if asked.cpu:
        requests["cpu"] = cores(asked.cpu)
    if asked.memory_bytes:
        requests["memory"] = limits["memory"] = size(asked.memory_bytes)
    if asked.gpu:
        requests["nvidia.com/gpu"] = limits["nvidia.com/gpu"] = str(asked.gpu)
    found = {"requests": requests, "limits": limits}
    return {name: values for name, values in found.items() if values}


def _probes(setting: Setting, name: str) -> Data:
    """Alive is who beats; ready is who works.

    Args:
        setting: the run.
        name: of the component where several beat in one pod.
    """
    heartbeat = setting.session.heartbeat
    command = ["surreal-like", "probe", RUN_PATH, *filter(None, [name])]

    def probe(*options: str, period_seconds: int = _PROBE_SECONDS, failures: int) -> Data:
        return {
            "exec": {"command": [*command, *options]},
            "periodSeconds": period_seconds,
            # Each is a process that must first start, on a node that may be busy.
            "timeoutSeconds": _PROBE_TIMEOUT_SECONDS,
            "failureThreshold": failures,
        }

    first_beat = ceil(heartbeat.starting_seconds / _STARTUP_SECONDS)
    return {
        "startupProbe": probe(period_seconds=_STARTUP_SECONDS, failures=max(3, first_beat)),
        "livenessProbe": probe(failures=3),
        "readinessProbe": probe("--ready", failures=1),
    }


def _mounts(setting: Setting) -> list[Data]:
    """The run folder, with the run's files in the places that they have everywhere."""
    files = {"config.yaml": "config.yaml", "addresses.json": "addresses.json"}
    files |= {name: f"code/{name}" for name in setting.code}
    keys = [{"name": "keys"}] if setting.has_keys else []
    return [
        {"name": "run", "mountPath": RUN_PATH},
        *(
            {
                "name": "config",
                "mountPath": f"{RUN_PATH}/{place}",
                "subPath": key,
                "readOnly": True,
            }
            for key, place in files.items()
        ),
        *({**mount, "mountPath": f"{RUN_PATH}/keys", "readOnly": True} for mount in keys),
        {"name": "tmp", "mountPath": "/tmp"},
    ]


def _volumes(setting: Setting, claim: str | None, keys_secret: str) -> list[Data]:
    run: Data = {"name": "run", "emptyDir": {}}
    if claim is not None:
        run = {"name": "run", "persistentVolumeClaim": {"claimName": setting.named(claim)}}
    # Its owner is root and its group ours, so the group must be able to read.
    secret = {"secretName": setting.named(keys_secret), "defaultMode": 0o440}
    keys = [{"name": "keys", "secret": secret}] if setting.has_keys else []
    return [
        run,
        {"name": "config", "configMap": {"name": setting.named("config")}},
        *keys,
        {"name": "tmp", "emptyDir": {}},
    ]


def _placement(setting: Setting) -> Data:
    """Where agents and evaluators may run: also on nodes that may vanish at any time."""
    settings = setting.session.kubernetes
    placement: Data = {
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoSchedule"}
            for key in settings.spot_taints
        ]
    }
    if settings.node_selector:
        placement["nodeSelector"] = {key: str(v) for key, v in settings.node_selector.items()}
    if settings.prefer_spot:
        terms = [_preference(label) for label in settings.spot_labels]
        rule = "preferredDuringSchedulingIgnoredDuringExecution"
        placement["affinity"] = {"nodeAffinity": {rule: terms}}
    return placement


def _preference(label: str) -> Data:
    key, _, value = label.partition("=")
    expression = {"key": key, "operator": "In", "values": [value]}
    return {"weight": 100, "preference": {"matchExpressions": [expression]}}
