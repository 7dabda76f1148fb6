"""Serves the newest values as Prometheus text, on the loopback interface or in a pod."""

from __future__ import annotations

import math
import socketserver
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from session.config import Config
from session.errors import UsageError
from session.launchers.registry import launcher_of
from session.process.heartbeat import State
from session.wire.endpoint import LOOPBACK, expand, is_own_host

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_POLL_SECONDS = 0.1
# Of one client, so that none can occupy the page, or delay the end of its server.
_CLIENT_SECONDS = 0.5
_LARGEST_REQUEST_BYTES = 16_384
_FOREIGN = b"the Host of the request is no name of this machine\n"
_PREFIX = "surreal_like_"
# Name of a series -> its meaning; those whose names end with _total are counters.
_MEANINGS = {
    "component_up": "1, or 0 where the component is silent, has failed or is not there.",
    "component_age_seconds": "Since its last heartbeat.",
    "component_state": "1, with its state as a label.",
    "component_restarts_total": "Starts after the first, since the start of Tensorplex.",
    "component_rss_bytes": "Resident memory of its process.",
    "component_status": "What it says of its work; docs/metrics.md has the keys.",
    "run_over": "1 once the run has ended, 0 before.",
    "env_steps_total": "Environment steps of the run.",
    "updates_total": "Updates of the learner.",
    "rows_dropped_total": "Rows that replay has refused.",
    "learner_waiting_ratio": "Share of its time in which the learner had no batch.",
    "senders_waiting_ratio": "Share of the time in which replay took no rows.",
    "lag_versions": "Mean age of the parameters that acted, for rows when they are learned from.",
    "replay_fill_ratio": "Rows in replay, as a share of its capacity.",
    "joined": "Number of agents of machines that have joined, by their state.",
    "wanted": "Number of agents or gateways that the run could use; own_agents have not joined.",
    "disk_size_bytes": "Size of the disk of the run folder.",
    "disk_free_bytes": "Free space of that disk.",
    "scalar": "Newest value of a curve; docs/metrics.md has the tags.",
}
# Key of the learner's status -> value of the label `what` in the series `wanted`.
_WANTED = {"wanted": "agents", "wanted_own": "own_agents"}
Samples = list[tuple[Mapping[str, str], float]]


def exposition(
    rows: Iterable[Mapping[str, Any]],
    newest: Mapping[tuple[str, str], float],
    more: Mapping[str, Samples],
) -> str:
    """Formats the text that Prometheus scrapes.

    Args:
        rows: rows of the component table.
        newest: (client id, tag) -> last value.
        more: further samples, by the names of their series.
    """
    families: dict[str, Samples] = {name: [] for name in _MEANINGS}
    for row in rows:
        _add_component(families, row)
    for name, samples in more.items():
        families[name] += samples
    families["scalar"] = [
        ({"client": id_, "tag": tag}, value) for (id_, tag), value in newest.items()
    ]
    lines = []
    for name, samples in families.items():
        lines.append(f"# HELP {_PREFIX}{name} {_MEANINGS[name]}")
        lines.append(f"# TYPE {_PREFIX}{name} {'counter' if name.endswith('_total') else 'gauge'}")
        lines += [_sample(f"{_PREFIX}{name}", labels, value) for labels, value in samples]
    return "\n".join(lines) + "\n"


def _add_component(families: Mapping[str, Samples], row: Mapping[str, Any]) -> None:
    """Adds the series of a component; numbers of the run are series of their own."""
    own = {"component": row["name"]}
    up = row["state"] not in (State.silent, State.failed, State.gone)
    families["component_up"].append((own, float(up)))
    families["component_age_seconds"].append((own, row["age_seconds"]))
    families["component_state"].append(({**own, "state": str(row["state"])}, 1.0))
    families["component_restarts_total"].append((own, row["restarts"]))
    families["component_rss_bytes"].append((own, row["rss_bytes"]))
    for key, value in row["status"].items():
        name, labels = ("wanted", {"what": _WANTED[key]}) if key in _WANTED else (key, {})
        if name in _MEANINGS and row["name"] == "learner":
            families[name].append((labels, value))
        else:
            families["component_status"].append(({**own, "key": key}, value))


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    words = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
    return f"{name}{{{words}}} {_number(value)}" if words else f"{name} {_number(value)}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")


def metrics_host(config: Config) -> str:
    """Returns the address to listen at: the loopback interface, unless a NetworkPolicy protects it.

    The text is not encrypted and needs no key. In a pod, ``session_config.kubernetes.metrics_from``
    names those that may read it, and the launcher has written a policy that admits only these.
    """
    in_pod = launcher_of((config.get("run") or {}).get("launcher", "")).remote
    admitted = in_pod and config.session_config.kubernetes.get("metrics_from")
    return expand("$(POD_IP)") if admitted else LOOPBACK


class Page:
    """Serves one text under every path from its own thread: a slow client must not stop the server.

    Args:
        port: port of the interface; 0: any free port.
        host: address of the interface.

    Raises:
        UsageError: the port is not available.
    """

    def __init__(self, port: int, host: str = LOOPBACK) -> None:
        try:
            self._server = _Server((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"cannot serve Prometheus text on {host}:{port}: {error}; choose another "
                "session_config.tensorplex.prometheus_port, or 0 for none"
            ) from None
        self.address = f"http://{host}:{self._server.server_address[1]}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), daemon=True
        )
        self._thread.start()

    def show(self, text: str) -> None:
        """Replaces the text."""
        self._server.text = text.encode("utf-8", "backslashreplace")

    def close(self) -> None:
        """Stops the thread and releases the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(socketserver.TCPServer):
    allow_reuse_address = True
    text = b""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores errors of a client that has disconnected."""


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        """Sends the text to a complete request that arrives in time, for a name of this machine."""
        # A client that has disconnected, or sends nothing.
        with suppress(OSError):
            if request := self._receive():
                own = is_own_host(_host_of(request))
                body = self.server.text if own else _FOREIGN
                status = "200 OK" if own else "403 Forbidden"
                head = f"HTTP/1.0 {status}\r\nContent-Type: {_CONTENT_TYPE}\r\n"
                head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                self.request.settimeout(_CLIENT_SECONDS)
                self.request.sendall(head.encode() + body)

    def _receive(self) -> bytes:
        """Returns the head of a request; nothing if it is too long, too late or cut off."""
        received, deadline = b"", time.monotonic() + _CLIENT_SECONDS
        while b"\r\n\r\n" not in received:
            left = deadline - time.monotonic()
            if left <= 0 or len(received) > _LARGEST_REQUEST_BYTES:
                return b""
            self.request.settimeout(left)
            more = self.request.recv(4096)
            if not more:
                return b""
            received += more
        return received


def _host_of(request: bytes) -> str:
    """Returns the Host of a request; "" if it has none, or several."""
    lines = request.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
    headers = (line.partition(":") for line in lines)
    found = [value.strip() for name, _, value in headers if name.strip().lower() == "host"]
    return found[0] if len(found) == 1 else ""
