"""A stand-in for the API server of a cluster: so much of it that the real kubectl works with it.

It keeps objects, finds them by label, merges patches as a cluster does, and refuses what the
schemas of Kubernetes refuse. What makes pods of them is in :mod:`tests.kubernetes.pod_runner`.
"""

from __future__ import annotations

import copy
import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.kubernetes.remote_command import Outcome, serve_exec
from tests.kubernetes.schemas import InvalidError, validate

Data = dict[str, Any]
_KINDS = {
    "v1": {
        "configmaps": ("ConfigMap", "cm"),
        "namespaces": ("Namespace", "ns"),
        "persistentvolumeclaims": ("PersistentVolumeClaim", "pvc"),
        "pods": ("Pod", "po"),
        "secrets": ("Secret", ""),
        "services": ("Service", "svc"),
    },
    "apps/v1": {"deployments": ("Deployment", "deploy"), "statefulsets": ("StatefulSet", "sts")},
    "batch/v1": {"jobs": ("Job", "")},
    "networking.k8s.io/v1": {"networkpolicies": ("NetworkPolicy", "netpol")},
    "policy/v1": {"poddisruptionbudgets": ("PodDisruptionBudget", "pdb")},
}
_MERGED_BY = {
    "containers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
}
_SCHEMA_VERSION = "1.37"


class Failure(Exception):
    """A request that is refused."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "reason": reason,
            "message": message,
            "code": code,
        }
        self.code = code


class Key(NamedTuple):
    """Where an object is kept."""

    resource: str
    namespace: str
    name: str


class Store:
    """All objects of the cluster; take `lock` around more than one step."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.objects: dict[Key, Data] = {}
        self.namespaces = {"default"}
        self._version = 0

    def get(self, key: Key) -> Data:
        if key not in self.objects:
            raise Failure(404, "NotFound", f'{key.resource} "{key.name}" not found')
        return self.objects[key]

    def find(self, resource: str, namespace: str, labels: Mapping[str, str]) -> list[Data]:
        with self.lock:
            return [
                each
                for key, each in self.objects.items()
                if (key.resource, key.namespace) == (resource, namespace)
                and labels.items() <= each["metadata"].get("labels", {}).items()
            ]

    def put(self, key: Key, data: Data, *, dry: bool = False) -> Data:
        if key.namespace not in self.namespaces:
            raise Failure(404, "NotFound", f'namespaces "{key.namespace}" not found')
        if key.resource != "pods":
            _admit(data)
        before = self.objects.get(key, {})
        if data == before:
            return before
        metadata = data["metadata"]
        metadata["namespace"] = key.namespace
        metadata.setdefault("uid", str(uuid.uuid4()))
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        metadata.setdefault("creationTimestamp", now)
        self._version += 1
        metadata["resourceVersion"] = str(self._version)
        if before.get("spec") != data.get("spec") and "spec" in data:
            metadata["generation"] = metadata.get("generation", 0) + 1
        if not dry:
            self.objects[key] = data
        return data

    def delete(self, key: Key) -> Data:
        """Pods end before they go; the others are gone at once."""
        data = self.get(key)
        if key.resource == "pods":
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            data["metadata"].setdefault("deletionTimestamp", now)
        else:
            del self.objects[key]
        return data


def _admit(data: Data) -> None:
    try:
        validate(data, _SCHEMA_VERSION)
    except InvalidError as error:
        raise Failure(422, "Invalid", f"{data['kind']} is invalid: {error}") from None


def merge(before: Any, patch: Any, key: str = "", *, strategic: bool = True) -> Any:
    """What a patch makes of an object."""
    if isinstance(patch, dict) and isinstance(before, dict | None):
        merged = dict(before or {})
        for name, value in patch.items():
            if name.startswith("$"):
                continue
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = merge(merged.get(name), value, name, strategic=strategic)
        return merged
    by = _MERGED_BY.get(key)
    if strategic and by and isinstance(before, list) and all(by in each for each in patch):
        elements = {each[by]: each for each in before}
        for each in patch:
            if each.get("$patch") == "delete":
                elements.pop(each[by], None)
            else:
                elements[each[by]] = merge(elements.get(each[by]), each)
        return list(elements.values())
    return copy.deepcopy(patch)


class ApiServer:
    """Serves a store on a port of this machine; use it in a ``with`` statement.

    Args:
        execute: runs a command in (pod, container), with its standard input.
        read_log: gives the output of (pod, container).
    """

    def __init__(
        self,
        execute: Callable[[str, str, list[str]], Outcome] | None = None,
        read_log: Callable[[str, str], str] | None = None,
    ) -> None:
        self.store = Store()
        self.execute = execute
        self.read_log = read_log
        self.requests: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(_Handler):
            server_side = api

        return Handler

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def write_kubeconfig(self, path: Path) -> Path:
        """A file for the variable KUBECONFIG."""
        context = {"cluster": "stand-in", "user": "nobody", "namespace": "default"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "stand-in", "cluster": {"server": self.address}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "stand-in", "context": context}],
            "current-context": "stand-in",
        }
        path.write_text(json.dumps(config))
        return path

    def __enter__(self) -> ApiServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any, kind: str) -> Any:
        """What the API server answers."""
        words = path.strip("/").split("/")
        if words[0] == "openapi":
            return _openapi(words)
        if words[0] == "version":
            return {"major": "1", "minor": "32", "gitVersion": "v1.32.0"}
        prefix = 2 if words[0] == "api" else 3
        if len(words) < prefix or (words[0] == "apis" and len(words) < 3):
            return _groups(words)
        version = "/".join(words[1:prefix])
        if len(words) == prefix:
            return _resources(version)
        with self.store.lock:
            return self._objects(method, version, words[prefix:], query, body, kind)

    def _objects(
        self,
        method: str,
        version: str,
        words: list[str],
        query: Mapping[str, str],
        body: Any,
        kind: str,
    ) -> Any:
        store = self.store
        if words[0] == "namespaces" and len(words) == 2:
            if words[1] not in store.namespaces:
                raise Failure(404, "NotFound", f'namespaces "{words[1]}" not found')
            return {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": words[1]}}
        _, namespace, resource, *rest = words
        if not rest:
            if method == "POST":
                body.setdefault("apiVersion", version)
                key = Key(resource, namespace, body["metadata"]["name"])
                return store.put(key, body, dry="dryRun" in query)
            items = store.find(resource, namespace, _selector(query))
            name = _field(query, "metadata.name")
            items = [each for each in items if name in (None, each["metadata"]["name"])]
            plain = {"apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": items}
            return {"kind": f"{_KINDS[version][resource][0]}List", **plain}
        key = Key(resource, namespace, rest[0])
        if rest[1:] == ["scale"]:
            return self._scale(method, key, body)
        if method == "DELETE":
            return store.delete(key)
        if method == "PATCH":
            strategic = "strategic" in kind
            patched = merge(store.get(key), body, strategic=strategic)
            return store.put(key, patched, dry="dryRun" in query)
        return store.get(key)

    def _scale(self, method: str, key: Key, body: Any) -> Data:
        data = self.store.get(key)
        if method != "GET":
            data["spec"]["replicas"] = body["spec"]["replicas"]
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "spec": {"replicas": data["spec"]["replicas"]},
            "status": {"replicas": data["spec"]["replicas"]},
        }


def _selector(query: Mapping[str, str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in query.get("labelSelector", "").split(",") if each]
    return {key: value.lstrip("=") for key, _, value in pairs}


def _field(query: Mapping[str, str], name: str) -> str | None:
    for each in query.get("fieldSelector", "").split(","):
        key, _, value = each.partition("=")
        if key == name:
            return value.lstrip("=")
    return None


def _groups(words: list[str]) -> Data:
    if words[0] == "api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    groups = []
    for each in _KINDS:
        group, slash, version = each.partition("/")
        if slash:
            known = {"groupVersion": each, "version": version}
            groups.append({"name": group, "versions": [known], "preferredVersion": known})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def _resources(version: str) -> Data:
    if version not in _KINDS:
        raise Failure(404, "NotFound", f"no group {version} here")
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    resources: list[Data] = []
    for name, (kind, short) in _KINDS[version].items():
        known = {"name": name, "singularName": kind.lower(), "kind": kind, "verbs": verbs}
        resources.append({**known, "namespaced": name != "namespaces", "shortNames": [short]})
        if name in ("deployments", "statefulsets"):
            scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
            resources.append(
                {**known, **scale, "name": f"{name}/scale", "singularName": "", "namespaced": True}
            )
    kinds: Data = {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
    return kinds


def _openapi(words: list[str]) -> Data:
    """So much that kubectl leaves validation, and dry runs, to the server."""
    paths = {("api/" if "/" not in each else "apis/") + each: each for each in _KINDS}
    if len(words) == 2:
        return {"paths": {p: {"serverRelativeURL": f"/openapi/v3/{p}?hash=1"} for p in paths}}
    path = "/".join(words[2:])
    version = paths[path]
    group, slash, number = version.rpartition("/")
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in ("dryRun", "fieldValidation")
    ]
    found = {
        f"/{path}/namespaces/{{namespace}}/{resource}/{{name}}": {
            "patch": {
                "parameters": parameters,
                "responses": {},
                "x-kubernetes-group-version-kind": {
                    "group": group if slash else "",
                    "version": number,
                    "kind": kind,
                },
            }
        }
        for resource, (kind, _) in _KINDS[version].items()
    }
    return {"openapi": "3.0.0", "info": {"title": "stand-in", "version": "1"}, "paths": found}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_side: ApiServer

    def _serve(self) -> None:
        api, parts = self.server_side, urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        api.requests.append(f"{self.command} {parts.path}")
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        words = parts.path.strip("/").split("/")
        try:
            if words[-1] == "exec" and api.execute is not None:
                command = parse_qs(parts.query).get("command", [])
                pod, container = words[-2], query.get("container", "")
                execute = api.execute
                serve_exec(self, lambda: execute(pod, container, command))
                return
            if words[-1] == "log" and api.read_log is not None:
                text = api.read_log(words[-2], query.get("container", ""))
                tail = int(query.get("tailLines", 1 << 30))
                self._send(200, "".join(text.splitlines(True)[-tail:]).encode(), "text/plain")
                return
            kind = self.headers.get("Content-Type") or ""
            data = json.loads(body) if body else None
            answer = api.answer(self.command, parts.path, query, data, kind)
            self._send(201 if self.command == "POST" else 200, json.dumps(answer).encode())
        except Failure as error:
            self._send(error.code, json.dumps(error.status).encode())

    def _send(self, code: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def log_message(self, format: str, *words: object) -> None:
        """Says nothing."""
