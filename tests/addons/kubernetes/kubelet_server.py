"""The port of a kubelet, which the API server asks for ``kubectl exec`` and ``kubectl logs``."""

from __future__ import annotations

import ssl
import subprocess
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.addons.kubernetes.remote_command import Outcome, serve_exec

Execute = Callable[[str, str, str, list[str]], Outcome]
ReadLog = Callable[[str, str, str], str]


class KubeletServer:
    """Serves a port of this machine; use it in a ``with`` statement.

    Args:
        folder: for its certificate.
        execute: runs a command in (namespace, pod, container).
        read_log: returns the output of (namespace, pod, container).
    """

    def __init__(self, folder: Path, execute: Execute, read_log: ReadLog) -> None:
        class Handler(_Handler):
            run = staticmethod(execute)
            log = staticmethod(read_log)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*_make_certificate(folder))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.port: int = self._server.server_port

    def __enter__(self) -> KubeletServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def _make_certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "kubelet.crt", folder / "kubelet.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-newkey", "rsa:2048", "-subj", "/CN=node"),
            *("-out", str(certificate), "-keyout", str(key)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    run: Execute
    log: ReadLog

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        what, *place = parts.path.strip("/").split("/")
        namespace, pod, container = place
        if what == "exec":
            command = query.get("command", [])
            serve_exec(self, lambda: self.run(namespace, pod, container, command))
            return
        lines = self.log(namespace, pod, container).splitlines(keepends=True)
        tail = int(query.get("tailLines", [str(len(lines))])[0])
        text = "".join(lines[len(lines) - min(tail, len(lines)) :]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_POST = do_GET

    def log_message(self, format: str, *words: object) -> None:
        """Writes nothing."""
