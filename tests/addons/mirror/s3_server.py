"""An S3 server in a process of its own, and a proxy in front of it that answers with errors."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from tests.polling import until

BUCKET = "bucket"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
}
_HOP = ("connection", "transfer-encoding", "host")


class S3Server:
    """moto's server, over HTTP; it keeps objects in memory, so a kill loses them.

    Args:
        log: file for its output.
    """

    def __init__(self, log: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Starts it, and makes the bucket."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "moto.server", "-p", str(self.port)],
                env={**os.environ, **CREDENTIALS},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(self._make_bucket, what=self._log.read_text)

    def kill(self) -> None:
        """Kills it, with all that it has."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def _make_bucket(self) -> bool:
        with suppress(OSError):
            address = ("127.0.0.1", self.port)
            with closing(http.client.HTTPConnection(*address, timeout=5)) as connection:
                connection.request("PUT", f"/{BUCKET}")
                return connection.getresponse().status == 200
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


class FaultyProxy:
    """Passes HTTP requests on, answers them with an error, or cuts them in the middle.

    Args:
        port: port of the server behind it.

    Attributes:
        answer: status of every answer; 0: requests are passed on; -1: connections are cut after a
            part of the answer.
        faults: number of requests that were answered so.
    """

    def __init__(self, port: int) -> None:
        self.answer = 0
        self.faults = 0
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *words: object) -> None:
                """Says nothing."""

            def _handle(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                answer = proxy.answer
                proxy.faults += answer != 0
                if answer > 0:
                    self._reply(answer, {}, b"")
                    return
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                try:
                    headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
                    connection.request(self.command, self.path, body, headers)
                    found = connection.getresponse()
                    content = found.read()
                except OSError:
                    self.close_connection = True
                    return
                finally:
                    connection.close()
                self._reply(found.status, dict(found.getheaders()), content, cut=answer < 0)

            def _reply(
                self, status: int, headers: dict[str, str], content: bytes, *, cut: bool = False
            ) -> None:
                if cut:
                    self.close_connection = True
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Le")
                    return
                self.send_response(status)
                length = headers.pop("Content-Length", str(len(content)))
                kept = {name: v for name, v in headers.items() if name.lower() not in _HOP}
                for name, value in {**kept, "Content-Length": length}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _handle

        class Server(ThreadingHTTPServer):
            def handle_error(self, *words: object) -> None:
                """Says nothing of clients that have gone."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
