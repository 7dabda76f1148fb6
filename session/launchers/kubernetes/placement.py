"""Placement of the pods of a role, and other fields of Kubernetes that a user adds to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from session.launchers.kubernetes.pod_fields import EVERY_ROLE, text, texts
from session.launchers.kubernetes.settings import Setting, stem
from session.process.component import Component

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
    asked = _asked(setting, component.kind)
    fields = {name: value for name, value in asked.items() if name not in _NOT_IN_SPEC}
    fields["tolerations"] = [
        *_own_tolerations(setting, component),
        *fields.get("tolerations", []),
    ]
    settings = setting.session.kubernetes
    if component.kind in ELASTIC:
        fields["nodeSelector"] = {**settings.node_selector, **fields.get("nodeSelector", {})}
        if settings.prefer_spot:
            fields["affinity"] = {**_preferred(settings.spot_labels), **fields.get("affinity", {})}
    if "nodeSelector" in fields:
        fields["nodeSelector"] = texts(fields["nodeSelector"])
    every = fields.get("topologySpreadConstraints")
    if every is None and component.kind == "replay" and len(setting.topology.of_kind("replay")) > 1:
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
    asked, added = _asked(setting, component.kind), setting.added()
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
    found = _asked(setting, component.kind).get("env", {})
    return {
        name: {"name": name, **(value if isinstance(value, dict) else {"value": text(value)})}
        for name, value in found.items()
    }


def _asked(setting: Setting, role: str) -> Data:
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


def _preferred(labels: Iterable[str]) -> Data:
    rule = "preferredDuringSchedulingIgnoredDuringExecution"
    return {"nodeAffinity": {rule: [_preference(label) for label in labels]}}


def _preference(label: str) -> Data:
    key, _, value = label.partition("=")
    expression = {"key": key, "operator": "In", "values": [value]}
    return {"weight": 100, "preference": {"matchExpressions": [expression]}}
