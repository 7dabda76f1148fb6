"""Pod templates of a run: containers, environment, volumes, probes, and where pods are placed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Any

from session.addons.kubernetes.pod_fields import EVERY_ROLE, text, texts
from session.addons.kubernetes.secret import CLIENTS_SECRET, secret_files, secret_of
from session.addons.kubernetes.settings import RUN_PATH, Setting, cores, short_ports, size, stem
from session.process.component import Component
from session.process.heartbeat import starting_seconds
from session.wire.roles import GATEWAY

Data = dict[str, Any]

ELASTIC = ("agent", "evaluator")
_NOT_IN_SPEC = ("annotations", "env", "labels")
_GPU = "nvidia.com/gpu"
_SPREAD: Data = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "ScheduleAnyway",
}


def pod_additions(setting: Setting, component: Component) -> Data:
    """Returns the fields of a pod's spec that control its placement and its rights.

    Args:
        setting: the run.
        component: the first one of the pod, whose kind is the pod's role.
    """
    asked = _merge_fields(setting, component.kind)
    fields = {name: value for name, value in asked.items() if name not in _NOT_IN_SPEC}
    fields["tolerations"] = [
        *_own_tolerations(setting, component),
        *fields.get("tolerations", []),
    ]
    settings = setting.session.kubernetes
    if component.kind in ELASTIC:
        fields["nodeSelector"] = {**settings.node_selector, **fields.get("nodeSelector", {})}
        if settings.prefer_spot:
            fields["affinity"] = {**_prefer(settings.spot_labels), **fields.get("affinity", {})}
    if "nodeSelector" in fields:
        fields["nodeSelector"] = texts(fields["nodeSelector"])
    every = fields.get("topologySpreadConstraints")
    shards = [each for each in setting.topology.of_kind("replay") if stem(each) == stem(component)]
    if every is None and len(shards) > 1:
        # One lost node then takes few rows with it.
        every = [_SPREAD]
    if every is not None:
        own = {"labelSelector": {"matchLabels": setting.selector(stem(component))}}
        fields["topologySpreadConstraints"] = [{**own, **each} for each in every]
    return {name: value for name, value in sorted(fields.items()) if value}


def pod_metadata(setting: Setting, component: Component) -> Data:
    """Returns labels and annotations of a pod: those of all objects, then those of its role.

    Prometheus finds a port by annotations, where nothing in the cluster looks for Services.
    """
    asked, added = _merge_fields(setting, component.kind), setting.added()
    scraped = {
        f"prometheus.io/{name}": value
        for port in setting.metrics(component).values()
        for name, value in (("scrape", "true"), ("port", str(port)), ("path", "/metrics"))
    }
    labels = {**added["labels"], **texts(asked.get("labels", {}))}
    annotations = {**added["annotations"], **scraped, **texts(asked.get("annotations", {}))}
    return {
        "labels": {**labels, **setting.labels(stem(component))},
        **({"annotations": annotations} if annotations else {}),
    }


def extra_environment(setting: Setting, component: Component) -> dict[str, Data]:
    """Returns name -> variable of a container, for variables that a user adds.

    A mapping such as ``{valueFrom: ...}`` is used unchanged, anything else is a value.
    """
    found = _merge_fields(setting, component.kind).get("env", {})
    return {
        name: {"name": name, **(value if isinstance(value, dict) else {"value": text(value)})}
        for name, value in found.items()
    }


def _merge_fields(setting: Setting, role: str) -> Data:
    """Returns the fields for all roles and for this one: mappings merged, lists joined."""
    pods = setting.session.kubernetes.pods.to_dict()
    asked = dict(pods.get(EVERY_ROLE, {}))
    for name, value in pods.get(role, {}).items():
        if name in asked and isinstance(value, dict):
            asked[name] = {**asked[name], **value}
        elif name in asked and isinstance(value, list):
            asked[name] = [*asked[name], *value]
        else:
            asked[name] = value
    return asked


def _own_tolerations(setting: Setting, component: Component) -> list[Data]:
    """Tolerates spot nodes for agents and evaluators, and GPU nodes for components with a GPU."""
    taints = list(setting.session.kubernetes.spot_taints) if component.kind in ELASTIC else []
    taints += [_GPU] if component.resources.gpu else []
    return [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in taints]


def _prefer(labels: Iterable[str]) -> Data:
    rule = "preferredDuringSchedulingIgnoredDuringExecution"
    return {"nodeAffinity": {rule: [_preference(label) for label in labels]}}


def _preference(label: str) -> Data:
    key, _, value = label.partition("=")
    expression = {"key": key, "operator": "In", "values": [value]}
    return {"weight": 100, "preference": {"matchExpressions": [expression]}}


NUMBERED = (*ELASTIC, GATEWAY, "replay")
# Numeric, so that a node can check that it is not root without looking into the image.
_USER = 10001
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_POD_INDEX = "metadata.labels['apps.kubernetes.io/pod-index']"
_STARTUP_SECONDS, _PROBE_SECONDS, _PROBE_TIMEOUT_SECONDS = 5, 20, 15
_SAVING_SECONDS = 60


def pod_template(
    setting: Setting, components: Sequence[Component], *, claim: str | None = None
) -> Data:
    """Returns the template of a pod with one container for each component.

    Args:
        setting: the run.
        components: the first one names the pod.
        claim: volume claim that holds the run folder; None: the folder is removed with the pod.
    """
    first = components[0]
    grace_seconds = setting.grace_seconds + (_SAVING_SECONDS if first.kind == "learner" else 0)
    spec: Data = {
        "terminationGracePeriodSeconds": grace_seconds,
        # No component uses the API of the cluster, and service variables must not hide ours.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **pod_additions(setting, first),
        "containers": [
            _container(setting, component, first, alone=len(components) == 1)
            for component in components
        ],
        "volumes": _volumes(setting, first, claim),
    }
    return {"metadata": pod_metadata(setting, first), "spec": spec}


def _container(setting: Setting, component: Component, first: Component, *, alone: bool) -> Data:
    settings = setting.session.kubernetes
    container: Data = {
        "name": stem(component),
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": ["python", "-P", "-m", component.module],
        "args": _arguments(component),
        "env": _environment(setting, component, first),
        "resources": _resources(setting, component),
        **_probes(setting, "" if alone else component.name),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": _mounts(setting, first),
    }
    opened = {**short_ports(component), **component.serves, **setting.metrics(component)}
    if opened:
        container["ports"] = [
            {"name": name, "containerPort": port} for name, port in opened.items()
        ]
    return container


def _arguments(component: Component) -> list[str]:
    """Returns the same arguments as other launchers; the number in a name is the pod's index."""
    arguments = component.arguments(RUN_PATH)
    if component.kind not in NUMBERED:
        return arguments
    numbered = f"{stem(component)}-$(POD_INDEX)"
    return [numbered if each == component.name else each for each in arguments]


def _environment(setting: Setting, component: Component, first: Component) -> list[Data]:
    """Returns the variables of a container; those of the user replace ours of the same name."""
    added = extra_environment(setting, first)
    fields = {"POD_IP": "status.podIP"}
    if component.kind in NUMBERED:
        fields["POD_INDEX"] = _POD_INDEX
    ours: list[Data] = [
        *(
            {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
            for name, path in fields.items()
        ),
        {"name": "HOME", "value": "/tmp"},
        *({"name": name, "value": "1"} for name in _ONE_THREAD),
    ]
    return [*(each for each in ours if each["name"] not in added), *added.values()]


def _resources(setting: Setting, component: Component) -> Data:
    """Limits memory but not processor time: a limit would only slow pods down on an idle node."""
    scratch_bytes: int = setting.session.kubernetes.scratch_bytes
    asked = component.resources
    requests, limits = {}, {}
    if asked.cpu:
        requests["cpu"] = cores(asked.cpu)
    if asked.memory_bytes:
        requests["memory"] = limits["memory"] = size(asked.memory_bytes)
    if asked.gpu:
        requests["nvidia.com/gpu"] = limits["nvidia.com/gpu"] = str(asked.gpu)
    if scratch_bytes:
        requests["ephemeral-storage"] = size(scratch_bytes)
    found = {"requests": requests, "limits": limits}
    return {name: values for name, values in found.items() if values}


def _probes(setting: Setting, name: str) -> Data:
    """Returns the probes. Alive: its heartbeat is recent. Ready: its service runs.

    Args:
        setting: the run.
        name: name of the component, if several components share the pod.
    """
    command = ["surreal-like", "probe", RUN_PATH, *filter(None, [name])]

    def probe(*options: str, period_seconds: int = _PROBE_SECONDS, failures: int) -> Data:
        return {
            "exec": {"command": [*command, *options]},
            "periodSeconds": period_seconds,
            # Each probe starts a process, on a node that may be busy.
            "timeoutSeconds": _PROBE_TIMEOUT_SECONDS,
            "failureThreshold": failures,
        }

    first_beat = ceil(starting_seconds(setting.session.heartbeat.timeout) / _STARTUP_SECONDS)
    return {
        "startupProbe": probe(period_seconds=_STARTUP_SECONDS, failures=max(3, first_beat)),
        "livenessProbe": probe(failures=3),
        "readinessProbe": probe("--ready", failures=1),
    }


def _mounts(setting: Setting, first: Component) -> list[Data]:
    """Mounts the run folder, with the run's files at their usual paths."""
    files = {name: name for name in ("config.yaml", "addresses.json", "topology.json")}
    files |= {name: f"code/{name}" for name in setting.code}
    keys = [{"name": "keys", "mountPath": f"{RUN_PATH}/keys"}] if setting.has_keys else []
    if _has_tokens(setting, first):
        # File by file: no other volume can be mounted inside a Secret, which is read-only.
        tls = setting.session.gateway.tls.cert is not None
        keys = [
            {"name": "keys", "mountPath": f"{RUN_PATH}/keys/{name}", "subPath": name}
            for name in secret_files(tls=tls)[secret_of(first.kind)]
        ]
        keys += [{"name": "clients", "mountPath": f"{RUN_PATH}/keys/clients"}]
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
        *({**mount, "readOnly": True} for mount in keys),
        {"name": "tmp", "mountPath": "/tmp"},
    ]


def _volumes(setting: Setting, first: Component, claim: str | None) -> list[Data]:
    scratch_bytes: int = setting.session.kubernetes.scratch_bytes
    # A snapshot of a replay shard is at most as large as its memory.
    saved_bytes = first.resources.memory_bytes if first.kind == "replay" else 0
    run: Data = {"name": "run", "emptyDir": _bound_of(scratch_bytes, saved_bytes)}
    if claim is not None:
        run = {"name": "run", "persistentVolumeClaim": {"claimName": setting.named(claim)}}
    # The files belong to root and our group, so the group must be able to read them.
    secret = {"secretName": setting.named(secret_of(first.kind)), "defaultMode": 0o440}
    keys: list[Data] = [{"name": "keys", "secret": secret}] if setting.has_keys else []
    if _has_tokens(setting, first):
        # Tokens may be made after the start, and the cluster then updates the files.
        tokens = {"secretName": setting.host(CLIENTS_SECRET), "optional": True}
        keys += [{"name": "clients", "secret": {**tokens, "defaultMode": 0o440}}]
    return [
        run,
        {"name": "config", "configMap": {"name": setting.named("config")}},
        *keys,
        {"name": "tmp", "emptyDir": _bound_of(scratch_bytes)},
    ]


def _has_tokens(setting: Setting, first: Component) -> bool:
    return first.kind == GATEWAY and bool(setting.session.gateway.tokens)


def _bound_of(scratch_bytes: int, saved_bytes: int = 0) -> Data:
    """Folder on the node's disk with a size limit; a pod that exceeds it is evicted."""
    return {"sizeLimit": size(scratch_bytes + saved_bytes)} if scratch_bytes else {}
