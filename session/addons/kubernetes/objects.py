"""Makes the objects of a cluster from a topology and a config; a pure function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from session.addons.kubernetes.pod_templates import ELASTIC, Data, pod_template
from session.addons.kubernetes.settings import (
    INSTANCE,
    Setting,
    config_text,
    make_addresses,
    ports,
    short_ports,
    size,
    stem,
    topology_text,
)
from session.process.component import Component
from session.wire.roles import GATEWAY

_MANY = 1000
_POD_NAME = "statefulset.kubernetes.io/pod-name"


def objects_of(setting: Setting) -> list[Data]:
    """Returns all objects of a run but its Secrets, in the order in which they are applied."""
    return [
        _config_map(setting),
        *_network_policies(setting),
        *_services(setting),
        *_clients_service(setting),
        *_claims(setting),
        *_single_pods(setting),
        *_make_stateful_sets(setting),
        _learner(setting),
        *_budgets(setting),
    ]


def _config_map(setting: Setting) -> Data:
    data = {
        "config.yaml": config_text(setting),
        "addresses.json": make_addresses(setting).dump(),
        "topology.json": topology_text(setting),
        **setting.code,
    }
    return setting.make_object("ConfigMap", "config", "config", data=data)


def _network_policies(setting: Setting) -> Iterator[Data]:
    """Allows connections from the run's own pods to its ports, and of clients to gateways."""
    if not setting.session.kubernetes.network_policy:
        return
    run = {INSTANCE: setting.name}
    bound = sorted({port for each in setting.topology for port in ports(each).values()})
    allowed = {
        "from": [{"podSelector": {"matchLabels": run}}],
        # Ports one by one: not every network plugin supports ranges.
        "ports": [{"protocol": "TCP", "port": port} for port in bound],
    }
    yield _policy(setting, "run", "network", run, allowed)
    for component in setting.topology.of_kind(GATEWAY)[:1]:
        # Clients are no pods of the run; the gateway itself checks their tokens.
        opened = [{"protocol": "TCP", "port": port} for port in component.serves.values()]
        part = stem(component)
        yield _policy(setting, "clients", part, setting.selector(part), {"ports": opened})
    # A label that the cluster itself gives to each namespace.
    names = list(setting.session.kubernetes.metrics_from)
    named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": names}
    for component in setting.topology:
        # No key protects the metrics.
        for port in setting.metrics(component).values():
            allowed = {
                "from": [{"namespaceSelector": {"matchExpressions": [named]}}],
                "ports": [{"protocol": "TCP", "port": port}],
            }
            part = stem(component)
            yield _policy(setting, "metrics", part, setting.selector(part), allowed)


def _policy(
    setting: Setting, name: str, part: str, labels: Mapping[str, str], allowed: Data
) -> Data:
    """Returns the object that allows connections to the pods with these labels."""
    spec = {
        "podSelector": {"matchLabels": labels},
        "policyTypes": ["Ingress"],
        "ingress": [allowed],
    }
    return setting.make_object("NetworkPolicy", name, part, spec=spec)


def _services(setting: Setting) -> Iterator[Data]:
    """Yields one for each component that binds, and one for the names of numbered pods."""
    all_pods = {INSTANCE: setting.name}
    yield _service(setting, "pods", "pods", {"clusterIP": "None", "selector": all_pods})
    for component in setting.topology:
        if not component.binds:
            continue
        selector = setting.selector(stem(component))
        if component.kind == "replay":
            selector = {INSTANCE: setting.name, _POD_NAME: setting.host(component.name)}
        opened = {**short_ports(component), **setting.metrics(component)}
        spec = {"selector": selector, "ports": _list_ports(opened)}
        yield _service(setting, component.name, stem(component), spec)


def _service(setting: Setting, name: str, part: str, spec: Data) -> Data:
    # Pods that start or end must be reachable too: clients need them until the components are done.
    spec = {**spec, "publishNotReadyAddresses": True}
    return setting.make_object("Service", name, part, spec=spec)


def _clients_service(setting: Setting) -> Iterator[Data]:
    """Yields the Service through which clients connect to any gateway."""
    for component in setting.topology.of_kind(GATEWAY)[:1]:
        kind: str = setting.session.kubernetes.gateway_service
        # Gateways limit and refuse clients by address, which a node that passes them on would hide.
        direct = {"externalTrafficPolicy": "Local"} if kind != "ClusterIP" else {}
        spec = {
            "type": kind,
            **direct,
            # A client that has lost its connection finds its session at the same gateway.
            "sessionAffinity": "ClientIP",
            "selector": setting.selector(stem(component)),
            "ports": _list_ports(component.serves),
        }
        yield setting.make_object("Service", stem(component), stem(component), spec=spec)


def _list_ports(named: Mapping[str, int]) -> list[Data]:
    return [{"name": name, "port": port, "targetPort": port} for name, port in named.items()]


def _claims(setting: Setting) -> Iterator[Data]:
    settings = setting.session.kubernetes
    for name, size_bytes in settings.volume_bytes.items():
        spec: Data = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size(size_bytes)}},
        }
        if settings.storage_class is not None:
            spec["storageClassName"] = settings.storage_class
        yield setting.make_object("PersistentVolumeClaim", name, name, spec=spec)


def _single_pods(setting: Setting) -> Iterator[Data]:
    """Yields the Deployments; TensorBoard shares Tensorplex's pod to read its volume."""
    claims = setting.session.kubernetes.volume_bytes
    for component in setting.topology:
        if component.kind not in ("ps", "tensorplex", "loggerplex"):
            continue
        name = component.name
        beside = setting.topology.of_kind("tensorboard") if component.kind == "tensorplex" else []
        claim = name if name in claims else None
        spec = {
            "replicas": 1,
            # Two pods at once would write the same volume or reply under the same name.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": setting.selector(name)},
            "template": pod_template(setting, [component, *beside], claim=claim),
        }
        yield setting.make_object("Deployment", name, name, spec=spec)


def _make_stateful_sets(setting: Setting) -> Iterator[Data]:
    for kind in ("replay", GATEWAY, *ELASTIC):
        for components in _group_by_stem(setting, kind):
            yield make_stateful_set(setting, components)


def _group_by_stem(setting: Setting, kind: str) -> list[list[Component]]:
    """Returns the components of a kind, those together that differ by their number only."""
    found: dict[str, list[Component]] = {}
    for component in setting.topology.of_kind(kind):
        found.setdefault(stem(component), []).append(component)
    return list(found.values())


def make_stateful_set(setting: Setting, components: list[Component]) -> Data:
    """Returns the object that keeps one pod for each of these components of a kind."""
    first = components[0]
    spec = {
        "replicas": len(components),
        "serviceName": setting.named("pods"),
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": setting.selector(stem(first))},
        "template": pod_template(setting, [first]),
    }
    return setting.make_object("StatefulSet", stem(first), stem(first), spec=spec)


def _learner(setting: Setting) -> Data:
    template = pod_template(setting, [setting.topology["learner"]], claim="learner")
    template["spec"]["restartPolicy"] = "OnFailure"
    spec = {
        # Each drained node and each crash counts; the learner goes on from its checkpoint.
        "backoffLimit": _MANY,
        # The next pod reads the checkpoint that this one saves while it ends.
        "podReplacementPolicy": "Failed",
        "template": template,
    }
    return setting.make_object("Job", "learner", "learner", spec=spec)


def _budgets(setting: Setting) -> Iterator[Data]:
    """Limits evictions to one replay shard at a time; other components lose nothing."""
    for components in _group_by_stem(setting, "replay"):
        if len(components) > 1:
            name = stem(components[0])
            spec = {"maxUnavailable": 1, "selector": {"matchLabels": setting.selector(name)}}
            yield setting.make_object("PodDisruptionBudget", name, name, spec=spec)
