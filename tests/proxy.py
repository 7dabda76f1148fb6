"""A TCP proxy between the processes of a test: it can cut connections, hold them up, and heal.

It is a thread of the test's own process; what passes is passed on byte by byte.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Self

from tests.polling import readable

_LOOK_SECONDS = 0.02
_CHUNK_BYTES = 1 << 16


class Proxy:
    """Listens on a port of its own and passes everything on to another one.

    Args:
        target: ``tcp://host:port`` of the server behind it.
        delay_seconds: time for which everything is kept on its way, in each direction.

    Attributes:
        address: where clients connect, ``tcp://127.0.0.1:port``.
        connections: how many were ever made through it.
        passed_bytes: how much has passed, both ways.
    """

    def __init__(self, target: str, *, delay_seconds: float = 0.0) -> None:
        host, _, port = target.removeprefix("tcp://").rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self.passed_bytes = 0
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._delay = delay_seconds
        # When it is due, to whom, what.
        self._late: deque[tuple[float, socket.socket, bytes]] = deque()
        self._lock = threading.Lock()
        self._cut = self._held = self._closed = False
        self._thread = threading.Thread(target=self._run, name="proxy")
        self._thread.start()

    def cut(self) -> None:
        """Ends all connections, in the middle of whatever passes; new ones are ended at once."""
        with self._lock:
            self._cut = True
            self._drop_all()

    def hold(self) -> None:
        """Connections stay, new ones too, and nothing passes: nobody is told."""
        with self._lock:
            self._held = True

    def heal(self) -> None:
        """Everything passes again."""
        with self._lock:
            self._cut = self._held = False

    def close(self) -> None:
        """Ends all connections and the thread."""
        self._closed = True
        self._thread.join()
        self._drop_all()
        self._listener.close()

    def _run(self) -> None:
        while not self._closed:
            with self._lock:
                held = self._held
                watched = [self._listener, *([] if held else self._pairs)]
            with suppress(OSError, ValueError):  # one that has been cut meanwhile
                found = readable(watched, _LOOK_SECONDS)
                with self._lock:
                    for each in found:
                        self._accept() if each is self._listener else self._take(each)
                    while self._late and not held and self._late[0][0] <= time.monotonic():
                        self._pass(*self._late.popleft()[1:])

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self._cut:
            client.close()
            return
        try:
            server = socket.create_connection(self._target, timeout=1.0)
        except OSError:
            client.close()
            return
        for end in (client, server):
            # A peer that takes nothing holds up everybody, but not for ever.
            end.settimeout(1.0)
        self.connections += 1
        self._pairs[client], self._pairs[server] = server, client

    def _take(self, source: socket.socket) -> None:
        sink = self._pairs.get(source)
        if sink is None or self._held:
            return
        try:
            data = source.recv(_CHUNK_BYTES)
        except OSError:
            data = b""
        if not data:
            self._drop(source, sink)
        elif self._delay:
            self._late.append((time.monotonic() + self._delay, sink, data))
        else:
            self._pass(sink, data)

    def _pass(self, sink: socket.socket, data: bytes) -> None:
        if sink not in self._pairs:
            return
        try:
            sink.sendall(data)
        except OSError:
            self._drop(sink, self._pairs[sink])
            return
        self.passed_bytes += len(data)

    def _drop(self, *ends: socket.socket) -> None:
        for end in ends:
            self._pairs.pop(end, None)
            end.close()

    def _drop_all(self) -> None:
        self._drop(*list(self._pairs))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
