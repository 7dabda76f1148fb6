"""Messages and bytes per second through our wire, as a ratio to plain pyzmq with the same work.

Both send the same arrays from one process to another over PUSH and PULL; plain pyzmq sends their
buffers after a header of the same size, unread. Rounds alternate, so that both see the same state
of the machine. Prints JSON.

    python benchmarks/wire.py [--transport ipc|tcp] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zmq
from machine import machine, spread

from session.launchers.launcher import free_ports
from session.wire import Address, AddressBook, Identity, Message, Wire
from session.wire.security import Security
from session.wire.sockets import poll

ENDPOINT = "bench.experience"
HEADER_BYTES = 200

# Name -> (arrays of one message, messages per round).
PAYLOADS: dict[str, tuple[dict[str, tuple[int, ...]], int]] = {
    "1 row of CartPole": ({"obs": (1, 1, 4), "reward": (1, 1), "action": (1, 1)}, 40000),
    "chunk of 100 x 8 rows of CartPole": (
        {"obs": (100, 8, 4), "reward": (100, 8), "action": (100, 8)},
        20000,
    ),
    "64 KiB": ({"obs": (16384,)}, 20000),
    "1 MiB": ({"obs": (262144,)}, 2000),
}


def arrays_of(payload: str) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the arrays of one message, float32."""
    return {name: np.zeros(shape, np.float32) for name, shape in PAYLOADS[payload][0].items()}


def make_wire(address: str, keys: str) -> tuple[zmq.Context[Any], Wire]:
    """Returns a context and a wire whose only endpoint has that address; no folder: no keys."""
    context: zmq.Context[Any] = zmq.Context()
    book = AddressBook({ENDPOINT: Address.same(address)})
    security = Security.load(Path(keys)) if keys else None
    return context, Wire(context, book, Identity("bench", 1), security=security)


def receive(kind: str, address: str, payload: str, keys: str) -> float:
    """Receives the messages of a round; returns the seconds between the first and the last."""
    context, wire = make_wire(address, keys)
    count = PAYLOADS[payload][1]
    if kind == "ours":
        socket = wire.pull(ENDPOINT, high_water_mark=64)
        seconds = _receive_ours(socket, count)
        wire.close(0)
    else:
        raw = context.socket(zmq.PULL)
        raw.set_hwm(64)
        raw.bind(address)
        raw.recv_multipart(copy=False)
        begin = time.perf_counter()
        for _ in range(count - 1):
            raw.recv_multipart(copy=False)
        seconds = time.perf_counter() - begin
        raw.close(0)
    context.destroy(0)
    return seconds


def _receive_ours(socket: Any, count: int) -> float:
    begin, got = 0.0, 0
    while got < count:
        message = socket.receive()
        if message is None:
            poll([socket], 0.01)
            continue
        got += 1
        begin = begin or time.perf_counter()
    return time.perf_counter() - begin


def send(kind: str, address: str, payload: str, keys: str) -> Callable[[], None]:
    """Sends the messages of a round at the highest rate.

    Returns:
        A function that closes the socket. Call it after the receiver is done: a slower receiver
        loses the messages in the kernel's buffers when its peer closes.
    """
    context, wire = make_wire(address, keys)
    arrays, count = arrays_of(payload), PAYLOADS[payload][1]
    if kind == "ours":
        socket = wire.push(ENDPOINT, high_water_mark=64)
        for sequence in range(count):
            message = Message("chunk", {"seq": sequence, "rows": sequence}, arrays)
            while not socket.send(message):
                socket.raw.poll(10, zmq.POLLOUT)
    else:
        raw = context.socket(zmq.PUSH)
        raw.set_hwm(64)
        raw.connect(address)
        frames = [b"h" * HEADER_BYTES, *(array.data.cast("B") for array in arrays.values())]
        for _ in range(count):
            raw.send_multipart(frames, copy=False)
    return lambda: context.destroy(0)


def one_round(kind: str, payload: str, *, folder: str = "", keys: str = "") -> float:
    """Returns the seconds of one round, measured by the receiving process.

    Args:
        kind: ``plain`` for plain pyzmq, else ours.
        payload: of each message.
        folder: for an ipc socket; empty: TCP.
        keys: folder with keys; empty: none are used.
    """
    address = f"ipc://{folder}/wire" if folder else f"tcp://127.0.0.1:{free_ports(['x'])['x']}"
    command = [sys.executable, __file__, "--receive", kind, address, payload, keys]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        close = send(kind, address, payload, keys)
        out, _ = receiver.communicate()
    close()
    return float(out)


def rates(payload: str, seconds: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Returns messages and bytes per second of each kind, from the seconds of its rounds."""
    count = PAYLOADS[payload][1]
    size = sum(array.nbytes for array in arrays_of(payload).values())
    found: dict[str, Any] = {"size_bytes": size}
    for kind, row in seconds.items():
        found[kind] = {
            "messages_per_second": spread([count / s for s in row]),
            "megabytes_per_second": spread([count * size / s / 1e6 for s in row]),
        }
    return found


def measure(transport: str, rounds: int) -> dict[str, Any]:
    """Measures all payloads, ours and plain in turn."""
    table = {}
    for payload in PAYLOADS:
        seconds: dict[str, list[float]] = {"ours": [], "plain": []}
        with tempfile.TemporaryDirectory(prefix="sl-bench-") as folder:
            for _ in range(rounds):
                for kind, row in seconds.items():
                    place = folder if transport == "ipc" else ""
                    row.append(one_round(kind, payload, folder=place))
        ratios = [p / o for o, p in zip(seconds["ours"], seconds["plain"], strict=True)]
        table[payload] = rates(payload, seconds) | {"ratio": spread(ratios)}
    return table


def main() -> None:
    """Prints the table as JSON; with ``--receive``, runs the receiving process of one round."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--transport", choices=("ipc", "tcp"), default="ipc")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--receive", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.receive:
        print(receive(*given.receive))
        return
    table = measure(given.transport, given.rounds)
    print(json.dumps({"machine": machine(), "transport": given.transport, "wire": table}, indent=2))


if __name__ == "__main__":
    main()
