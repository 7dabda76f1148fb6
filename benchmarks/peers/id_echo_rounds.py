"""id-echo, a queue in the reader's process: over its own TCP, or without any socket. Rounds of
:mod:`worker`.

python id_echo_rounds.py UNROLLS
"""

from __future__ import annotations

import sys
import time
from itertools import cycle
from pathlib import Path

from echo import Server, TcpClient, TcpTransport

sys.path.append(str(Path(__file__).resolve().parent.parent))
from steps import Array, check_order, load_unrolls
from worker import Answer, repeat, serve


class Rounds:
    """One process that writes, reads, or does both.

    Args:
        path: of the unrolls that are sent in turn; see :func:`steps.load_unrolls`.
    """

    def __init__(self, path: str) -> None:
        self._made = load_unrolls(path)
        self._servers: dict[int, Server] = {}
        self._clients: dict[int, TcpClient] = {}

    def listen(self, *, unrolls: int, batches: int, threads: int) -> Answer:
        """Starts a queue that a client can reach.

        Args:
            unrolls: of a batch.
            batches: that the queue has room for.
            threads: that receive, and as many that fill batches.
        """
        server = Server(
            self._made[0],
            unrolls,
            TcpTransport(0, threads),
            num_buffers=batches,
            num_drainers=threads,
        )
        server.start()
        port: int = server.port
        self._servers[port] = server
        return {"port": port}

    def read(self, *, port: int, batches: int) -> Answer:
        """Takes batches, and checks their order afterwards."""
        server, marks = self._servers[port], []
        begin = time.perf_counter()
        for _ in range(batches):
            marks.append(_mark(server))
        passed = time.perf_counter() - begin
        check_order(marks, self._made)
        return {"seconds": passed}

    def write(self, *, port: int, in_flight: int, least: int) -> Answer:
        """Sends so many unrolls; done when the other process has confirmed them all."""
        if port not in self._clients:
            self._clients[port] = TcpClient("localhost", port, self._made[0], in_flight)
        client = self._clients[port]
        begin = time.perf_counter()
        for number in range(least):
            client.send(self._made[number % len(self._made)])
        client.wait()
        return {"seconds": time.perf_counter() - begin}

    def inside(self, *, unrolls: int, batches: int, seconds: float) -> Answer:
        """Submits the unrolls of a batch and takes them out, without any socket."""
        server = Server(self._made[0], unrolls, num_buffers=batches)
        source, marks = cycle(self._made), []
        length, streams = self._made[0]["reward"].shape
        rows: int = unrolls * (length - 1) * streams

        def work() -> int:
            for _ in range(unrolls):
                server.submit(next(source))
            marks.append(_mark(server))
            return rows

        answer = repeat(work, seconds)
        server.close()
        check_order(marks, self._made)
        return answer

    def close(self) -> None:
        """Ends clients and servers: at the end of the interpreter their threads would panic."""
        for each in (*self._clients.values(), *self._servers.values()):
            each.close()


def _mark(server: Server) -> Array:
    """The first numbers of the unrolls of the next batch, whose columns are views of the queue."""
    marks: Array = server.sample().batch["obs"][:, 0, 0, 0].copy()
    return marks


if __name__ == "__main__":
    rounds = Rounds(sys.argv[1])
    serve(
        {
            "listen": rounds.listen,
            "read": rounds.read,
            "write": rounds.write,
            "inside": rounds.inside,
        }
    )
    rounds.close()
