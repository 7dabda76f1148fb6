"""Serves the newest values as Prometheus text on a port of the loopback interface."""

from __future__ import annotations

import math
import socketserver
import threading
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from session.errors import UsageError
from session.process.state import State

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_HOST = "127.0.0.1"
_POLL_SECONDS = 0.1
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
    words = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{words}}} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")


class Page:
    """Serves one text under every path from its own thread: a slow client must not stop the server.

    Args:
        port: port of the loopback interface; 0: any free port.

    Raises:
        UsageError: the port is not available.
    """

    def __init__(self, port: int) -> None:
        try:
            self._server = _Server((_HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"cannot serve Prometheus text on {_HOST}:{port}: {error}; choose another "
                "session_config.tensorplex.prometheus_port, or 0 for none"
            ) from None
        self.address = f"http://{_HOST}:{self._server.server_address[1]}/metrics"
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


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 0.5

    def do_GET(self) -> None:
        """Sends the text."""
        body = self.server.text
        self.send_response(200)
        self.send_header("Content-Type", _CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Disables the log of requests."""
