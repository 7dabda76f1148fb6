"""Cost of encryption: the same work over TCP with CURVE on and off, in turn, as ratios.

Messages per second from one process to another over PUSH and PULL, and the wall time of CartPole to
a fixed number of environment steps, with or without keys on every socket of the run. Prints tables
and JSON, and writes benchmarks/results/curve.json.

    python benchmarks/curve.py [--rounds 5]
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import zmq
from compare import Found, Group, Line, Side, keep, measure
from setting import Given, arguments

from session.launchers.launcher import free_ports
from session.wire import Address, AddressBook, Identity, Message, Wire
from session.wire.security import Security, write_keys
from session.wire.socket_state import poll
from surreal_like.run.train import train

CONFIG = Path(__file__).resolve().parent.parent / "configs" / "cartpole_dqn.yaml"
ENV_STEPS = 40_000
RUNS = 3
LABELS = {"curve": "surreal_like, with keys", "plain": "without keys"}
# Settings that make a run on this machine use TCP, with and without keys.
TRANSPORTS: dict[str, dict[str, Any]] = {
    "curve": {"session_config.launcher.host": "127.0.0.1"},
    "plain": {"session_config.launcher.transport": "tcp"},
}
ENDPOINT = "bench.experience"
# Name -> (shapes of the arrays of one message, messages per round).
PAYLOADS: dict[str, tuple[dict[str, tuple[int, ...]], int]] = {
    "1 row of CartPole": ({"obs": (1, 1, 4), "reward": (1, 1), "action": (1, 1)}, 40000),
    "chunk of 100 x 8 rows of CartPole": (
        {"obs": (100, 8, 4), "reward": (100, 8), "action": (100, 8)},
        20000,
    ),
    "64 KiB": ({"obs": (16384,)}, 20000),
    "1 MiB": ({"obs": (262144,)}, 2000),
}


def make_wire(address: str, keys: str) -> tuple[zmq.Context[Any], Wire]:
    """Returns a context and a wire whose only endpoint has that address; no folder: no keys."""
    context: zmq.Context[Any] = zmq.Context()
    book = AddressBook({ENDPOINT: Address.same(address)})
    security = Security.load(Path(keys)) if keys else None
    return context, Wire(context, book, Identity("bench", 1), security=security)


def receive(address: str, payload: str, keys: str) -> float:
    """Receives the messages of a round; returns the seconds between the first and the last."""
    context, wire = make_wire(address, keys)
    socket = wire.pull(ENDPOINT, high_water_mark=64)
    begin, got = 0.0, 0
    while got < PAYLOADS[payload][1]:
        if socket.receive() is None:
            poll([socket], 0.01)
            continue
        got += 1
        begin = begin or time.perf_counter()
    seconds = time.perf_counter() - begin
    wire.close(0)
    context.destroy(0)
    return seconds


def send(address: str, payload: str, keys: str) -> Callable[[], None]:
    """Sends the messages of a round at the highest rate.

    Returns:
        A function that closes the socket. Call it after the receiver is done: a slower receiver
        loses the messages in the kernel's buffers when its peer closes.
    """
    context, wire = make_wire(address, keys)
    shapes, number = PAYLOADS[payload]
    arrays = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    socket = wire.push(ENDPOINT, high_water_mark=64)
    for sequence in range(number):
        message = Message("chunk", {"seq": sequence, "rows": sequence}, arrays)
        while not socket.send(message):
            socket.raw.poll(10, zmq.POLLOUT)
    return lambda: context.destroy(0)


def one_round(payload: str, keys: str) -> float:
    """Returns the messages per second of one round, timed by the receiving process.

    Args:
        payload: of each message.
        keys: folder with keys; empty: none are used.
    """
    address = f"tcp://127.0.0.1:{free_ports(['x'])['x']}"
    command = [sys.executable, __file__, "--receive", address, payload, keys]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        close = send(address, payload, keys)
        out, _ = receiver.communicate()
    close()
    return PAYLOADS[payload][1] / float(out)


def messages(given: Given) -> Found:
    """Measures messages of all sizes."""
    folder = given.folder / "keys"
    write_keys(folder)
    sides = [
        Side(
            f"{kind} {payload}",
            label,
            "Wire.push and Wire.pull over TCP",
            partial(one_round, payload, str(folder) if kind == "curve" else ""),
        )
        for payload in PAYLOADS
        for kind, label in LABELS.items()
    ]
    lines = [Line(payload, f"curve {payload}", (f"plain {payload}",)) for payload in PAYLOADS]
    about = "From one process to another over PUSH and PULL."
    group = Group("Messages with keys", "messages/s", "more", about, sides, lines)
    return measure(group, given.rounds)


def wall_seconds(given: Given, kind: str, seeds: Iterator[int]) -> float:
    """Returns the wall time of one run in seconds."""
    stop = {"eval_return": None, "env_steps": ENV_STEPS, "seconds": None}
    settings = {"session_config.stop": stop, **TRANSPORTS[kind]}
    seed = next(seeds)
    path = given.folder / f"{kind}-{seed}"
    ended = train(CONFIG, overrides=settings, folder=path, seed=seed)
    if not ended.ok:
        raise SystemExit(f"{path} failed: {ended.result.get('reason')}")
    return float(ended.result["wall_seconds"])


def runs(given: Given) -> Found:
    """Measures whole runs."""
    did = f"configs/{CONFIG.name}, all components on this machine over TCP"
    sides = [
        Side(kind, label, did, partial(wall_seconds, given, kind, count()))
        for kind, label in LABELS.items()
    ]
    lines = [Line(f"{ENV_STEPS:,} environment steps", "curve", ("plain",))]
    about = f"configs/{CONFIG.name} to so many environment steps; {RUNS} rounds."
    group = Group("A run with keys", "s", "less", about, sides, lines)
    return measure(group, min(RUNS, given.rounds))


def main() -> None:
    """Measures, prints the tables and writes the results."""
    with arguments(__doc__, rounds=5) as given:
        keep("curve", [messages(given), runs(given)], {}, {})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--receive"]:
        print(receive(*sys.argv[2:]))
    else:
        main()
