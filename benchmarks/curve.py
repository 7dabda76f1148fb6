"""Cost of encryption: the same work over TCP with CURVE on and off, in turn, as ratios.

``wire``: messages per second from one process to another over PUSH and PULL. ``run``: wall time of
CartPole to a fixed number of environment steps, with or without keys on every socket of the run.
Rounds alternate, so that both see the same state of the machine. Prints JSON.

    python benchmarks/curve.py [--rounds 5] [--runs 3] [--env-steps 40000]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq
from machine import machine, spread
from wire import ENDPOINT, PAYLOADS, arrays_of

from session.launchers.launcher import free_ports
from session.wire import Address, AddressBook, Identity, Message, Wire
from session.wire.security import Security, write_keys
from session.wire.sockets import poll
from surreal_like.run.train import train

CONFIG = Path(__file__).resolve().parent.parent / "configs" / "cartpole_dqn.yaml"
KINDS = ("plain", "curve")
# Settings that make a run on this machine use TCP, without and with keys.
TRANSPORTS: dict[str, dict[str, Any]] = {
    "plain": {"session_config.launcher.transport": "tcp"},
    "curve": {"session_config.launcher.host": "127.0.0.1"},
}


def make_wire(kind: str, address: str, keys: Path) -> tuple[zmq.Context[Any], Wire]:
    """Returns a context and a wire whose only endpoint has that address."""
    context: zmq.Context[Any] = zmq.Context()
    book = AddressBook({ENDPOINT: Address.same(address)})
    security = Security.load(keys) if kind == "curve" else None
    return context, Wire(context, book, Identity("bench", 1), security=security)


def receive(kind: str, address: str, keys: Path, count: int) -> float:
    """Receives ``count`` messages; returns the seconds between the first and the last."""
    context, wire = make_wire(kind, address, keys)
    socket = wire.pull(ENDPOINT, high_water_mark=64)
    begin, got = 0.0, 0
    while got < count:
        if socket.receive() is None:
            poll([socket], 0.01)
            continue
        got += 1
        begin = begin or time.perf_counter()
    seconds = time.perf_counter() - begin
    wire.close(0)
    context.destroy(0)
    return seconds


def send(kind: str, address: str, keys: Path, payload: str) -> Callable[[], None]:
    """Sends one round at the highest rate; returns a function that closes the socket."""
    context, wire = make_wire(kind, address, keys)
    arrays = arrays_of(payload)
    socket = wire.push(ENDPOINT, high_water_mark=64)
    for sequence in range(PAYLOADS[payload][1]):
        message = Message("chunk", {"seq": sequence, "rows": sequence}, arrays)
        while not socket.send(message):
            socket.raw.poll(10, zmq.POLLOUT)

    def close() -> None:
        wire.close(0)
        context.destroy(0)

    return close


def one_round(kind: str, payload: str, keys: Path) -> float:
    """Returns the seconds of one round, measured by the receiving process."""
    address = f"tcp://127.0.0.1:{free_ports(['x'])['x']}"
    command = [sys.executable, __file__, "--receive", kind, address, str(keys), payload]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        close = send(kind, address, keys, payload)
        out, _ = receiver.communicate()
    close()
    return float(out)


def measure_wire(rounds: int) -> dict[str, Any]:
    """Measures all payloads; the ratio is throughput with keys to throughput without."""
    table = {}
    for payload, (_, count) in PAYLOADS.items():
        size = sum(array.nbytes for array in arrays_of(payload).values())
        seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
        with tempfile.TemporaryDirectory(prefix="sl-bench-") as folder:
            write_keys(Path(folder))
            for _ in range(rounds):
                for kind, row in seconds.items():
                    row.append(one_round(kind, payload, Path(folder)))
        pairs = zip(seconds["plain"], seconds["curve"], strict=True)
        table[payload] = {
            "size_bytes": size,
            **{
                kind: {
                    "messages_per_second": spread([count / s for s in row]),
                    "megabytes_per_second": spread([count * size / s / 1e6 for s in row]),
                }
                for kind, row in seconds.items()
            },
            "throughput_ratio": spread([plain / curve for plain, curve in pairs]),
        }
    return table


def measure_runs(runs: int, env_steps: int) -> dict[str, Any]:
    """Measures whole runs; the ratio is wall time with keys to wall time without."""
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    stop = {"eval_return": None, "env_steps": env_steps, "seconds": None}
    with tempfile.TemporaryDirectory(prefix="sl-bench-") as folder:
        for number in range(runs):
            for kind, transport in TRANSPORTS.items():
                settings = {"session_config.stop": stop, **transport}
                path = Path(folder) / f"{kind}-{number}"
                ended = train(CONFIG, overrides=settings, folder=path, seed=number)
                if not ended.ok:
                    raise SystemExit(f"{path} failed: {ended.result.get('reason')}")
                seconds[kind].append(ended.result["wall_seconds"])
    pairs = zip(seconds["plain"], seconds["curve"], strict=True)
    return {
        "config": CONFIG.name,
        "env_steps": env_steps,
        **{f"{kind}_wall_seconds": spread(row) for kind, row in seconds.items()},
        "wall_time_ratio": spread([curve / plain for plain, curve in pairs]),
    }


def main() -> None:
    """Prints the tables as JSON; with ``--receive``, runs the receiving process of one round."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--env-steps", type=int, default=40_000)
    parser.add_argument("--receive", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.receive:
        kind, address, keys, payload = given.receive
        print(receive(kind, address, Path(keys), PAYLOADS[payload][1]))
        return
    wire = measure_wire(given.rounds)
    run = measure_runs(given.runs, given.env_steps)
    print(json.dumps({"machine": machine(), "wire": wire, "run": run}, indent=2))


if __name__ == "__main__":
    main()
