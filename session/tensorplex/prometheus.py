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
from session.wire.endpoint import LOOPBACK, expand

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_POLL_SECONDS = 0.1
# Of one client, so that none can occupy the page, or delay the end of its server.
_CLIENT_SECONDS = 0.5
_LARGEST_REQUEST_BYTES = 16_384
_PREFIX = "surreal_like_"
_MEANINGS = {
    "component_up": "1, or 0 where the component is silent or has failed.",
    "component_age_seconds": "Since its last heartbeat.",
    "component_rss_bytes": "Resident memory of its process.",
    "component_status": "What it says of its work; docs/metrics.md has the keys.",
    "scalar": "Newest value of a curve; docs/metrics.md has the tags.",
}


def exposition(rows: Iterable[Mapping[str, Any]], newest: Mapping[tuple[str, str], float]) -> str:
    """Formats the text that Prometheus scrapes.

    Args:
        rows: rows of the component table.
        newest: (client id, tag) -> last value.
    """
    rows = list(rows)
    families = {
        "component_up": [
            (_of(row), float(row["state"] not in (State.silent, State.failed))) for row in rows
        ],
        "component_age_seconds": [(_of(row), row["age_seconds"]) for row in rows],
        "component_rss_bytes": [(_of(row), row["rss_bytes"]) for row in rows],
        "component_status": [
            ({**_of(row), "key": key}, value)
            for row in rows
            for key, value in row["status"].items()
        ],
        "scalar": [({"client": id_, "tag": tag}, value) for (id_, tag), value in newest.items()],
    }
    lines = []
    for name, samples in families.items():
        lines.append(f"# HELP {_PREFIX}{name} {_MEANINGS[name]}")
        lines.append(f"# TYPE {_PREFIX}{name} gauge")
        lines += [_sample(f"{_PREFIX}{name}", labels, value) for labels, value in samples]
    return "\n".join(lines) + "\n"


def _of(row: Mapping[str, Any]) -> dict[str, str]:
    return {"component": row["name"]}


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    words = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
    return f"{name}{{{words}}} {_number(value)}"


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
        """Sends the text to any complete request that arrives in time."""
        # A client that has disconnected, or sends nothing.
        with suppress(OSError):
            if self._receive():
                body = self.server.text
                head = f"HTTP/1.0 200 OK\r\nContent-Type: {_CONTENT_TYPE}\r\n"
                head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                self.request.settimeout(_CLIENT_SECONDS)
                self.request.sendall(head.encode() + body)

    def _receive(self) -> bool:
        """Reads the head of a request; returns False if it is too long, too late or cut off."""
        received, deadline = b"", time.monotonic() + _CLIENT_SECONDS
        while b"\r\n\r\n" not in received:
            left = deadline - time.monotonic()
            if left <= 0 or len(received) > _LARGEST_REQUEST_BYTES:
                return False
            self.request.settimeout(left)
            more = self.request.recv(4096)
            if not more:
                return False
            received += more
        return True
