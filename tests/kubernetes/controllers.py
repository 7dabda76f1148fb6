"""The controllers of a cluster: from StatefulSets, Deployments and Jobs to pods."""

from __future__ import annotations

import copy
import hashlib
import json
import uuid
from collections.abc import Iterator
from typing import Any

from tests.kubernetes.api_server import Key, Store

Data = dict[str, Any]
_OWNERS = {"statefulsets": "StatefulSet", "deployments": "Deployment", "jobs": "Job"}


def reconcile(store: Store, namespace: str) -> None:
    """One step towards what the objects ask for."""
    pods = store.find("pods", namespace, {})
    owners = {
        owner["metadata"]["uid"]: (resource, owner)
        for resource in _OWNERS
        for owner in store.find(resource, namespace, {})
    }
    for pod in pods:
        if pod["metadata"]["ownerReferences"][0]["uid"] not in owners:
            _delete(store, pod)
    for uid, (resource, owner) in owners.items():
        mine = [pod for pod in pods if pod["metadata"]["ownerReferences"][0]["uid"] == uid]
        {"statefulsets": _stateful_set, "deployments": _deployment, "jobs": _job}[resource](
            store, owner, mine
        )


def _stateful_set(store: Store, owner: Data, pods: list[Data]) -> None:
    there = {pod["metadata"]["name"]: pod for pod in pods}
    wanted = list(_numbered(owner))
    for number, name in enumerate(wanted):
        if name not in there:
            labels = {
                "statefulset.kubernetes.io/pod-name": name,
                "apps.kubernetes.io/pod-index": str(number),
            }
            _create(store, owner, name, labels)
    for name, pod in there.items():
        # Highest numbers go first; here all that are too many go at once, as with Parallel.
        if name not in wanted or _ended(pod):
            _delete(store, pod)
    ready = sum(_is_ready(pod) for pod in pods)
    owner["status"] = {"replicas": len(pods), "readyReplicas": ready}


def _numbered(owner: Data) -> Iterator[str]:
    for number in range(owner["spec"]["replicas"]):
        yield f"{owner['metadata']['name']}-{number}"


def _deployment(store: Store, owner: Data, pods: list[Data]) -> None:
    """Recreate: an old pod must be gone before a new one is made."""
    template = json.dumps(owner["spec"]["template"], sort_keys=True)
    digest = hashlib.sha256(template.encode()).hexdigest()[:10]
    for pod in pods:
        if pod["metadata"]["labels"].get("pod-template-hash") != digest or _ended(pod):
            _delete(store, pod)
    if not pods:
        name = f"{owner['metadata']['name']}-{digest}-{_random()}"
        _create(store, owner, name, {"pod-template-hash": digest})
    owner["status"] = {"replicas": len(pods), "readyReplicas": sum(map(_is_ready, pods))}


def _job(store: Store, owner: Data, pods: list[Data]) -> None:
    """One pod until one has succeeded; a replacement only after the end of the one before."""
    status = owner.setdefault("status", {})
    if any(pod.get("status", {}).get("phase") == "Succeeded" for pod in pods):
        status["conditions"] = [{"type": "Complete", "status": "True"}]
    elif not status.get("conditions") and not [pod for pod in pods if not _ended(pod)]:
        _create(store, owner, f"{owner['metadata']['name']}-{_random()}", {})


def _create(store: Store, owner: Data, name: str, labels: dict[str, str]) -> None:
    template = copy.deepcopy(owner["spec"]["template"])
    metadata = owner["metadata"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {**template["metadata"]["labels"], **labels},
            "ownerReferences": [
                {
                    "apiVersion": owner["apiVersion"],
                    "kind": owner["kind"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": template["spec"],
        "status": {"phase": "Pending"},
    }
    store.put(Key("pods", metadata["namespace"], name), pod)


def _delete(store: Store, pod: Data) -> None:
    store.delete(Key("pods", pod["metadata"]["namespace"], pod["metadata"]["name"]))


def _ended(pod: Data) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _is_ready(pod: Data) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses", [])
    return bool(statuses) and all(each["ready"] for each in statuses)


def _random() -> str:
    return uuid.uuid4().hex[:5]
