"""Clients of a gateway in a storm: one is killed each second, and a proxy cuts their connections.

All clients play CartPole until the run is over. Prints JSON: what they have asked and got, exit
codes of those that were not killed, connections that were cut by direction.

    python tests/addons/gateway/runs/storm.py PORT [--clients 64] [--seconds 60] [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable

import gymnasium
import numpy as np

from surreal_like.addons.gateway.clients.surreal_client import connect

CUTS_PER_SECOND = 5.0
MOST_CLIENTS = 1024


class Proxy:
    """Forwards connections to a port; cuts some, and loses what is on its way in one direction.

    Args:
        port: of the gateway.
        rng: of all choices.
    """

    def __init__(self, port: int, rng: random.Random) -> None:
        self._target, self._rng = ("127.0.0.1", port), rng
        self._server = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._server.getsockname()[1]
        self._poll = selectors.DefaultSelector()
        self._poll.register(self._server, selectors.EVENT_READ)
        # Each end -> the other end, and its direction.
        self._ends: dict[socket.socket, tuple[socket.socket, str]] = {}
        self._doomed: set[socket.socket] = set()
        self.cut = {"to_gateway": 0, "to_client": 0}

    def serve(self, seconds: float) -> None:
        """Forwards for some time; then goes on without cuts until no connection is left."""
        began = time.monotonic()
        next_cut = began
        while self._ends or time.monotonic() < began + seconds:
            for key, _ in self._poll.select(0.05):
                if key.fileobj is self._server:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._ends:
                    self._forward(key.fileobj)
            now = time.monotonic()
            if next_cut <= now < began + seconds and self._ends:
                next_cut = now + 1.0 / CUTS_PER_SECOND
                # The next bytes that this end sends are lost, and the connection with them.
                self._doomed.add(self._rng.choice(list(self._ends)))

    def _accept(self) -> None:
        client, _ = self._server.accept()
        try:
            gateway = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        for end, other, direction in (
            (client, gateway, "to_gateway"),
            (gateway, client, "to_client"),
        ):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._ends[end] = other, direction
            self._poll.register(end, selectors.EVENT_READ)

    def _forward(self, end: socket.socket) -> None:
        other, direction = self._ends[end]
        try:
            data = end.recv(1 << 16)
            if data and end not in self._doomed:
                other.sendall(data)
                return
            self.cut[direction] += bool(data)
        except OSError:
            pass
        for each in (end, other):
            self._poll.unregister(each)
            self._doomed.discard(each)
            del self._ends[each]
            each.close()


def play(port: int, asked: Callable[[], None], got: Callable[[], None]) -> None:
    """Plays CartPole until the run is over."""
    env = gymnasium.make("CartPole-v1")
    with connect(f"127.0.0.1:{port}") as session:
        for episode in session.episodes():
            observation, _ = env.reset(seed=episode.seed)
            action, over = session.reset(observation), False
            while not over:
                observation, reward, terminated, truncated, _ = env.step(action)
                over = terminated or truncated
                asked()
                if over:
                    session.end(float(reward), observation, truncated=truncated and not terminated)
                else:
                    action = session.step(float(reward), observation)
                got()


class Players:
    """Processes that play; their counts survive them.

    Args:
        port: of the proxy.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        shared = mmap.mmap(-1, MOST_CLIENTS * 16)
        self.counts = np.frombuffer(shared, np.int64).reshape(MOST_CLIENTS, 2)
        self.pids: list[int] = []
        self._begun = 0

    def begin(self) -> None:
        """Starts one more."""
        row = self.counts[self._begun]
        self._begun += 1
        pid = os.fork()
        if pid:
            self.pids.append(pid)
            return

        def count(column: int) -> None:
            row[column] += 1

        code = 1
        try:
            play(self._port, lambda: count(0), lambda: count(1))
            code = 0
        finally:
            # Without what the parent would do at its end.
            os._exit(code)

    def kill(self, rng: random.Random) -> None:
        """Kills one of them."""
        pid = self.pids.pop(rng.randrange(len(self.pids)))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def main() -> int:
    """Runs until the run is over, and prints what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    proxy = Proxy(given.port, rng)
    players = Players(proxy.port)
    forwarding = os.fork()
    if not forwarding:
        proxy.serve(given.seconds)
        print(json.dumps({"cut": proxy.cut}), flush=True)  # noqa: T201
        os._exit(0)
    for _ in range(given.clients):
        players.begin()
    began = time.monotonic()
    kills = 0
    while (kills := kills + 1) <= given.seconds:
        time.sleep(max(0.0, began + kills - time.monotonic()))
        players.kill(rng)
        players.begin()
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in players.pids]
    asked, got = players.counts.sum(axis=0).tolist()
    os.waitpid(forwarding, 0)
    found = {"killed": kills - 1, "codes": codes, "asked": asked, "got": got}
    print(json.dumps(found), flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
