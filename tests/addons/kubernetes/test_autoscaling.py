"""The real autoscaler of Kubernetes follows the number of agents that a run could use.

Our page is real, Prometheus, the API server and its aggregator, too. In the place of the
prometheus-adapter stands :class:`Adapter`, because no registry has a program of it. Autoscalers of
1.20 mix their two windows (kubernetes/kubernetes#96671, mended in 1.21), so no number returns here
before its window has passed.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from session.tensorplex.prometheus import Page, exposition
from tests.addons.kubernetes.cluster import TestedCluster
from tests.addons.kubernetes.conftest import K8S
from tests.addons.kubernetes.control_plane import ControlPlane
from tests.addons.kubernetes.old_server import edit_files
from tests.addons.kubernetes.test_kustomize import autoscaled
from tests.runs.test_prometheus import Prometheus, scraping

pytestmark = [
    *(pytest.mark.slow, pytest.mark.kubectl, pytest.mark.cluster, pytest.mark.prometheus),
    pytest.mark.timeout(300),
]

Data = dict[str, Any]
_GROUP = "/apis/external.metrics.k8s.io/v1beta1"
_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
# Longer than an autoscaler that looks once a second needs for two looks.
_WINDOW_SECONDS = 10
# What a user's kustomization changes; and pods that no node takes, because none is needed here.
_CHANGES: dict[str, dict[str, object]] = {
    "HorizontalPodAutoscaler": {
        "/spec/maxReplicas": 12,
        "/spec/behavior/scaleUp/stabilizationWindowSeconds": _WINDOW_SECONDS,
        "/spec/behavior/scaleDown/stabilizationWindowSeconds": _WINDOW_SECONDS,
    },
    "StatefulSet": {"/spec/template/spec/nodeSelector": {"no": "node"}},
}
_PATCHES = [
    {
        "target": {"kind": kind},
        "patch": json.dumps([{"op": "add", "path": at, "value": new} for at, new in each.items()]),
    }
    for kind, each in _CHANGES.items()
]


class Adapter(ThreadingHTTPServer):
    """Serves external metrics of a Prometheus, by the shipped rule, as the adapter does.

    Args:
        prometheus: answers the queries.
        certificate: file with a certificate; its key lies beside it.
    """

    def __init__(self, prometheus: Prometheus, certificate: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        self.socket = context.wrap_socket(self.socket, server_side=True)
        values = yaml.safe_load((K8S / "monitoring" / "prometheus_adapter.yaml").read_text())
        (self._rule,) = values["rules"]["external"]
        self._prometheus = prometheus
        self._answers: list[int] = []

    def answer(self, namespace: str, series: str, selector: str) -> Data | None:
        """Returns the values of a metric; None if the rule knows no such series."""
        names = {each["__name__"] for each in self._ask("series", **{"match[]": self._discovery})}
        if series not in names:
            return None
        (label,) = self._rule["resources"]["overrides"]
        matchers = [*selector.split(","), f"{label}={namespace}"]
        quoted = ",".join('{}="{}"'.format(*each.split("=")) for each in matchers)
        query = self._rule["metricsQuery"].replace("<<.Series>>", series)
        found = self._ask("query", query=query.replace("<<.LabelMatchers>>", quoted))["result"]
        items = [
            {
                "metricName": series,
                "metricLabels": each["metric"],
                "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "value": each["value"][1],
            }
            for each in found
        ]
        self._answers += [int(each["value"]) for each in items]
        return {"kind": "ExternalMetricValueList", "metadata": {}, "items": items}

    @property
    def _discovery(self) -> str:
        return str(self._rule["seriesQuery"])

    def _ask(self, what: str, **words: str) -> Any:
        return self._prometheus.ask(what, **words) or {"result": []}

    def answered(self, number: int) -> bool:
        """Returns True if the last two answers were this number."""
        return self._answers[-2:] == [number] * 2

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores errors of a client that has disconnected."""


class _Handler(BaseHTTPRequestHandler):
    server: Adapter

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        found: Data | None = None
        if url.path == _GROUP:
            found = {"kind": "APIResourceList", "groupVersion": _GROUP[6:], "resources": []}
        elif url.path.startswith(f"{_GROUP}/namespaces/"):
            *_, namespace, series = url.path.split("/")
            selector = parse_qs(url.query).get("labelSelector", [""])[0]
            found = self.server.answer(namespace, series, selector)
        body = json.dumps({"apiVersion": _GROUP[6:], **(found or {})}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Writes nothing."""


@contextmanager
def served(plane: ControlPlane, namespace: str, prometheus: Prometheus) -> Iterator[Adapter]:
    """Makes the API server ask the adapter for external metrics."""
    adapter = Adapter(prometheus, plane.certificate)
    path = f"{_SERVICES}/v1beta1.external.metrics.k8s.io"
    service = {
        "metadata": {"name": "adapter"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    plane.api.request("POST", f"/api/v1/namespaces/{namespace}/services", service)
    place: Data = {"name": "adapter", "namespace": namespace, "port": adapter.server_address[1]}
    group, version = _GROUP.removeprefix("/apis/").split("/")
    spec: Data = {"service": place, "group": group, "version": version}
    spec |= {"groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": True}
    thread = threading.Thread(target=adapter.serve_forever, args=(0.05,))
    thread.start()
    try:
        made = {"metadata": {"name": path.rpartition("/")[2]}, "spec": spec}
        plane.api.request("POST", _SERVICES, made)
        yield adapter
    finally:
        # Without it no namespace could be removed.
        plane.api.request("DELETE", path)
        adapter.shutdown()
        adapter.server_close()
        thread.join()


_AGES = ("age_seconds", "restarts", "rss_bytes")


def show(page: Page, **status: float) -> None:
    """Shows what the learner reports on the page."""
    row = {"name": "learner", "state": "running", "status": status}
    page.show(exposition([row | dict.fromkeys(_AGES, 0)], {}, {}))


def port_of(page: Page) -> int:
    return int(page.address.rpartition(":")[2].partition("/")[0])


class Agents:
    """The agents of the run `cartpole`, and their autoscaler."""

    def __init__(self, cluster: TestedCluster) -> None:
        self._cluster = cluster

    def num(self) -> int:
        return int(self._cluster.get("statefulset/cartpole-agent")["spec"]["replicas"])

    def become(self, number: int) -> None:
        """Waits until so many pods are wanted, and there."""
        self._cluster.until(lambda: self.num() == number, f"{number} agents are wanted")
        self._cluster.until(lambda: len(self._cluster.pods()) == number, "they are there")

    def lack(self) -> None:
        """Waits until the autoscaler finds no number."""
        self._cluster.until(self._lacks, "there is no number")

    def _lacks(self) -> bool:
        kind = "horizontalpodautoscalers.v2beta2.autoscaling"
        status = self._cluster.get(f"{kind}/cartpole-agent").get("status", {})
        found = {each["type"]: each["reason"] for each in status.get("conditions") or []}
        return found.get("ScalingActive") == "FailedGetExternalMetric"


def test_agents_follow_the_number_that_the_run_could_use(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    overlay = autoscaled(tmp_path, patches=_PATCHES)
    edit_files(overlay.parent.parent)
    folder = tmp_path / "prometheus"
    with (
        closing(Page(0)) as page,
        control_plane.namespace() as name,
        scraping(folder, port_of(page), run="cartpole", namespace=name) as prometheus,
        served(control_plane, name, prometheus) as adapter,
    ):
        cluster = TestedCluster(name)
        agents = Agents(cluster)
        show(page)
        part = "--selector=app.kubernetes.io/component=agent"
        cluster.kubectl("apply", "-k", str(overlay), part)

        # Before the run learns there is no advice, and nothing changes.
        agents.lack()
        assert agents.num() == 2
        # Two of the six are on machines that have joined.
        show(page, wanted=6, wanted_own=4)
        agents.become(4)
        for number, limited in ((40, 12), (5, 5), (0, 1)):
            before = agents.num()
            show(page, wanted_own=number)
            # Not at once: pods that start or end are no advice. It has acted when it asks again.
            cluster.until(partial(adapter.answered, number), f"it has seen {number}")
            assert agents.num() == before
            agents.become(limited)

        # A run that pauses or ends wants no number: its agents stay.
        show(page)
        agents.lack()
        assert agents.num() == 1
