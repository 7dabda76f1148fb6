"""Makes the objects of a cluster from a topology and a config; a pure function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from session.addons.kubernetes.pods import ELASTIC, Data, pod_template
from session.addons.kubernetes.settings import (
    INSTANCE,
    Setting,
    config_text,
    make_addresses,
    make_setting,
    ports,
    short_ports,
    size,
    stem,
    topology_text,
)
from session.config import Config
from session.process.component import Component, Topology
from session.wire.roles import GATEWAY

_MANY = 1000
_POD_NAME = "statefulset.kubernetes.io/pod-name"


def make_objects(
    config: Config, topology: Topology, code: Mapping[str, str] | None = None
) -> list[Data]:
    """Returns all objects of a run except its Secrets, in the order in which they are applied.

    Args:
        config: result of :func:`~session.addons.kubernetes.prepare`.
        topology: components of the run and their wiring.
        code: name -> text of each of the user's own files.

    Raises:
        UsageError: the user's files are too large.
    """
    return objects_of(make_setting(config, topology, code or {}))


def objects_of(setting: Setting) -> list[Data]:
    """Returns the objects of :func:`make_objects` for a checked setting."""
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
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": setting.metadata("config", "config"),
        "data": {
            "config.yaml": config_text(setting),
            "addresses.json": make_addresses(setting).dump(),
            "topology.json": topology_text(setting),
            **setting.code,
        },
    }


def _network_policies(setting: Setting) -> Iterator[Data]:
    """Allows connections from the run's own pods to its ports, and of clients to gateways."""
    if not setting.session.kubernetes.network_policy:
        return
    run = {"matchLabels": {INSTANCE: setting.name}}
    bound = sorted({port for each in setting.topology for port in ports(each).values()})
    allowed = {
        "from": [{"podSelector": run}],
        # Ports one by one: not every network plugin supports ranges.
        "ports": [{"protocol": "TCP", "port": port} for port in bound],
    }
    yield {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": setting.metadata("run", "network"),
        "spec": {"podSelector": run, "policyTypes": ["Ingress"], "ingress": [allowed]},
    }
    for component in setting.topology.of_kind(GATEWAY)[:1]:
        # Clients are no pods of the run; the gateway itself checks their tokens.
        opened = [{"protocol": "TCP", "port": port} for port in component.serves.values()]
        gateways = {"matchLabels": setting.selector(stem(component))}
        yield {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": setting.metadata("clients", stem(component)),
            "spec": {
                "podSelector": gateways,
                "policyTypes": ["Ingress"],
                "ingress": [{"ports": opened}],
            },
        }
    yield from _metrics_policies(setting)


def _metrics_policies(setting: Setting) -> Iterator[Data]:
    """Allows the pods of some namespaces to read the metrics, which no key protects."""
    names = list(setting.session.kubernetes.metrics_from)
    # A label that the cluster itself gives to each namespace.
    named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": names}
    for component in setting.topology:
        for port in setting.metrics(component).values():
            allowed = {
                "from": [{"namespaceSelector": {"matchExpressions": [named]}}],
                "ports": [{"protocol": "TCP", "port": port}],
            }
            yield {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "metadata": setting.metadata("metrics", stem(component)),
                "spec": {
                    "podSelector": {"matchLabels": setting.selector(stem(component))},
                    "policyTypes": ["Ingress"],
                    "ingress": [allowed],
                },
            }


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


def _clients_service(setting: Setting) -> Iterator[Data]:
    """Yields the Service through which clients connect to any gateway."""
    for component in setting.topology.of_kind(GATEWAY)[:1]:
        kind: str = setting.session.kubernetes.gateway_service
        # Gateways limit and refuse clients by address, which a node that passes them on would hide.
        direct = {"externalTrafficPolicy": "Local"} if kind != "ClusterIP" else {}
        yield {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": setting.metadata(stem(component), stem(component)),
            "spec": {
                "type": kind,
                **direct,
                # A client that has lost its connection finds its session at the same gateway.
                "sessionAffinity": "ClientIP",
                "selector": setting.selector(stem(component)),
                "ports": _list_ports(component.serves),
            },
        }


def _list_ports(named: Mapping[str, int]) -> list[Data]:
    return [{"name": name, "port": port, "targetPort": port} for name, port in named.items()]


def _service(setting: Setting, name: str, part: str, spec: Data) -> Data:
    # Pods that start or end must be reachable too: clients need them until the components are done.
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": setting.metadata(name, part),
        "spec": {**spec, "publishNotReadyAddresses": True},
    }


def _claims(setting: Setting) -> Iterator[Data]:
    settings = setting.session.kubernetes
    for name, size_bytes in settings.volume_bytes.items():
        spec: Data = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size(size_bytes)}},
        }
        if settings.storage_class is not None:
            spec["storageClassName"] = settings.storage_class
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": setting.metadata(name, name),
            "spec": spec,
        }


def _single_pods(setting: Setting) -> Iterator[Data]:
    """Yields the Deployments; TensorBoard shares Tensorplex's pod to read its volume."""
    claims = setting.session.kubernetes.volume_bytes
    for component in setting.topology:
        if component.kind not in ("ps", "tensorplex", "loggerplex"):
            continue
        beside = setting.topology.of_kind("tensorboard") if component.kind == "tensorplex" else []
        claim = component.name if component.name in claims else None
        yield {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": setting.metadata(component.name, component.name),
            "spec": {
                "replicas": 1,
                # Two pods at once would write the same volume or reply under the same name.
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": setting.selector(component.name)},
                "template": pod_template(setting, [component, *beside], claim=claim),
            },
        }


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
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": setting.metadata(stem(first), stem(first)),
        "spec": {
            "replicas": len(components),
            "serviceName": setting.named("pods"),
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": setting.selector(stem(first))},
            "template": pod_template(setting, [first]),
        },
    }


def _learner(setting: Setting) -> Data:
    template = pod_template(setting, [setting.topology["learner"]], claim="learner")
    template["spec"]["restartPolicy"] = "OnFailure"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": setting.metadata("learner", "learner"),
        "spec": {
            # Each drained node and each crash counts; the learner goes on from its checkpoint.
            "backoffLimit": _MANY,
            # The next pod reads the checkpoint that this one saves while it ends.
            "podReplacementPolicy": "Failed",
            "template": template,
        },
    }


def _budgets(setting: Setting) -> Iterator[Data]:
    """Limits evictions to one replay shard at a time; other components lose nothing."""
    for components in _group_by_stem(setting, "replay"):
        if len(components) > 1:
            name = stem(components[0])
            yield {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": setting.metadata(name, name),
                "spec": {
                    "maxUnavailable": 1,
                    "selector": {"matchLabels": setting.selector(name)},
                },
            }
