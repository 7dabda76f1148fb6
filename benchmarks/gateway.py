"""Clients of a gateway, beside an echo of the same bytes by epoll, and by gRPC streams.

Each contender has a process of its own; the clients are one process, this one, and do not think.
Contenders take turns within each round, so that all see the same state of the machine. Prints two
tables, steps per second and latency, and the processor time of the server per step.

    python benchmarks/gateway.py [--rounds 7] [--seconds 1] [--clients 1 8 32 48 64 128 256]
        [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine

from session.process.heartbeat import read_beats
from session.stream.door import Encoding
from session.stream.frame import FrameReader, framed
from surreal_like.gateway.payloads import decode, encode

ROOT = Path(__file__).resolve().parents[1]
OBSERVATION = np.zeros(4, np.float32)
# An answer as the gateway sends it.
ANSWER = framed(
    encode({"kind": "action", "seq": 1 << 20, "action": 1, "version": 1}, Encoding.msgpack)
)
CLIENTS = (1, 8, 32, 48, 64, 128, 256)
GRPC_MOST = 64
_TICKS = os.sysconf("SC_CLK_TCK")
_START_SECONDS = 90.0


@dataclass(frozen=True)
class Sample:
    """One measurement of one contender.

    Args:
        steps_per_second: answers.
        cpu_seconds: processor time of the server per step.
        p50_seconds, p99_seconds: from a request to its answer, at the client.
        batch: requests that the gateway answered together, 0 if unknown.
    """

    steps_per_second: float
    cpu_seconds: float
    p50_seconds: float
    p99_seconds: float
    batch: float = 0.0


def step_frame(seq: int) -> bytes:
    """Returns the request of every step; its number has five bytes, so all are equally long."""
    fields = {"kind": "step", "reward": 1.0, "observation": OBSERVATION}
    body = encode(fields, Encoding.msgpack)
    payload = bytes([body[0] + 1]) + body[1:] + b"\xa3seq\xce" + struct.pack(">I", seq)
    return framed(payload)


def cpu_of(pid: int) -> float:
    """Returns the processor time of a process so far in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class Connection:
    """One client without thinking time."""

    def __init__(self, port: int, *, greets: bool) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader(1 << 20)
        self.seq = 1
        self.asked_at = 0.0
        if greets:
            self._ask({"kind": "hello", "v": 1})
            self._ask({"kind": "reset", "seq": 1, "observation": OBSERVATION})

    def _ask(self, fields: dict[str, Any]) -> None:
        self.socket.sendall(framed(encode(fields, Encoding.msgpack)))
        while (payload := self._reader.next()) is None:
            self._reader.feed(self.socket.recv(1 << 16))
        answer = decode(payload, None)[0]
        if answer["kind"] not in ("welcome", "action"):
            raise SystemExit(f"the gateway says {answer}")

    def step(self, now: float) -> None:
        """Sends the next request."""
        self.seq += 1
        self.asked_at = now
        self.socket.sendall(step_frame(self.seq))

    def leave(self, *, says_bye: bool) -> None:
        """Closes the connection; with a bye its place is free at once."""
        if says_bye:
            self.socket.sendall(framed(encode({"kind": "bye"}, Encoding.msgpack)))
        self.socket.close()

    def answered(self) -> bool:
        """Reads; returns True once the answer is complete. Messages `wait` are left out."""
        self._reader.feed(self.socket.recv(1 << 16))
        payload = self._reader.next()
        return payload is not None and b"wait" not in payload


def measure(port: int, pid: int, clients: int, seconds: float, *, greets: bool) -> Sample:
    """Lets some clients step as fast as they are answered."""
    with ExitStack() as stack:
        connections = {}
        poll = stack.enter_context(select.epoll())
        for _ in range(clients):
            each = Connection(port, greets=greets)
            stack.callback(each.leave, says_bye=greets)
            connections[each.socket.fileno()] = each
            poll.register(each.socket, select.EPOLLIN)
        latencies: list[float] = []
        now = time.perf_counter()
        for each in connections.values():
            each.step(now)
        # A first part, which is not measured, fills the batches.
        for part in (0.2 * seconds, seconds):
            latencies.clear()
            cpu, began = cpu_of(pid), time.perf_counter()
            while (now := time.perf_counter()) < began + part:
                for number, _ in poll.poll(0.1):
                    each = connections[number]
                    if each.answered():
                        now = time.perf_counter()
                        latencies.append(now - each.asked_at)
                        each.step(now)
            passed = time.perf_counter() - began
        return _sample(latencies, passed, cpu_of(pid) - cpu)


def _sample(latencies: list[float], passed: float, cpu_seconds: float) -> Sample:
    ordered = sorted(latencies)
    count = len(ordered)
    if not count:
        raise SystemExit("no answer came in time")
    return Sample(
        count / passed,
        cpu_seconds / count,
        ordered[count // 2],
        ordered[min(count - 1, int(0.99 * count))],
    )


# -- contenders


def echo(ready: Any) -> None:
    """Answers each frame with one of the size of an action; an epoll loop and nothing else."""
    server = socket.create_server(("127.0.0.1", 0), backlog=512)
    ready.send(server.getsockname()[1])
    poll = select.epoll()
    poll.register(server, select.EPOLLIN)
    clients: dict[int, tuple[socket.socket, FrameReader]] = {}
    while True:
        for number, _ in poll.poll():
            if number == server.fileno():
                end, _address = server.accept()
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                clients[end.fileno()] = end, FrameReader(1 << 20)
                poll.register(end, select.EPOLLIN)
                continue
            end, reader = clients[number]
            try:
                data = end.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                poll.unregister(end)
                clients.pop(number)[0].close()
                continue
            reader.feed(data)
            while reader.next() is not None:
                end.sendall(ANSWER)


def grpc_echo(ready: Any) -> None:
    """The same with one gRPC stream for each client."""
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    def answers(requests: Iterator[bytes], context: object) -> Iterator[bytes]:
        for _ in requests:
            yield ANSWER

    handler = grpc.stream_stream_rpc_method_handler(answers)
    server = grpc.server(ThreadPoolExecutor(GRPC_MOST + 8))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("bench", {"steps": handler}),)
    )
    ready.send(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    server.wait_for_termination()


def measure_grpc(port: int, pid: int, clients: int, seconds: float) -> Sample:
    """The same clients over gRPC; each has a thread."""
    import grpc

    over = threading.Event()
    latencies: list[float] = []

    def client(stub: Callable[[Iterator[bytes]], Iterator[bytes]]) -> None:
        go = threading.Semaphore(1)
        asked = [0.0]

        def requests() -> Iterator[bytes]:
            seq = 1
            while not over.is_set():
                go.acquire()
                seq += 1
                asked[0] = time.perf_counter()
                yield step_frame(seq)

        for _ in stub(requests()):
            latencies.append(time.perf_counter() - asked[0])
            go.release()

    with ExitStack() as stack:
        threads = []
        for _ in range(clients):
            channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}"))
            thread = threading.Thread(target=client, args=(channel.stream_stream("/bench/steps"),))
            thread.start()
            threads.append(thread)
        time.sleep(0.2 * seconds + 0.3)
        latencies.clear()
        cpu, began = cpu_of(pid), time.perf_counter()
        time.sleep(seconds)
        found = _sample(list(latencies), time.perf_counter() - began, cpu_of(pid) - cpu)
        over.set()
        for thread in threads:
            thread.join()
    return found


@contextmanager
def process_of(target: Callable[[Any], None]) -> Iterator[tuple[int, int]]:
    """Yields port and process id of a contender."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs,), daemon=True)
    process.start()
    try:
        if not ours.poll(_START_SECONDS):
            raise SystemExit(f"{target.__name__} does not start")
        yield ours.recv(), process.pid or 0
    finally:
        process.kill()
        process.join()


@contextmanager
def training(folder: Path) -> Iterator[tuple[int, int, Path]]:
    """Yields port and process id of the gateway of a run that trains CartPole, and its folder."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [
        f"session_config.gateway.port={port}",
        "session_config.stop={seconds: 36000}",
    ]
    argv = [sys.executable, "-P", "-m", "main.cli", "train", str(ROOT / "configs")]
    argv[-1] += "/cartpole_remote.yaml"
    process = subprocess.Popen(
        [*argv, "--quiet", "--folder", str(folder), *words], stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not (beat := read_beats(folder / "alive").get("gateway-0")) or not beat.ready:
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit("the run does not start")
            time.sleep(0.1)
        yield port, beat.pid, folder
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def bare_forward(batch: float) -> float:
    """Returns the seconds per row of a forward pass of the network of the run, in such batches."""
    import torch

    rows = max(1, round(batch))
    torch.set_num_threads(1)
    layers = [torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(64, 2))
    obs = torch.zeros(rows, 4)
    with torch.inference_mode():
        for repeats in (100, 1000):
            began = time.process_time()
            for _ in range(repeats):
                network(obs).argmax(1)
    return (time.process_time() - began) / repeats / rows


# -- rounds and tables


def compare(clients: Sequence[int], rounds: int, seconds: float) -> dict[str, Any]:
    """Returns samples by contender and number of clients."""
    found: dict[str, dict[int, list[Sample]]] = {name: {} for name in ("echo", "grpc", "gateway")}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "run"
        echo_at = stack.enter_context(process_of(echo))
        grpc_at = stack.enter_context(process_of(grpc_echo))
        port, pid, folder = stack.enter_context(training(folder))
        for number in clients:
            for _ in range(rounds):
                samples = {"echo": measure(*echo_at, number, seconds, greets=False)}
                if number <= GRPC_MOST:
                    samples["grpc"] = measure_grpc(*grpc_at, number, seconds)
                ours = measure(port, pid, number, seconds, greets=True)
                beat = read_beats(folder / "alive").get("gateway-0")
                batch = beat.status.get("batch", 0.0) if beat is not None else 0.0
                samples["gateway"] = Sample(**{**asdict(ours), "batch": batch})
                for name, sample in samples.items():
                    found[name].setdefault(number, []).append(sample)
            print(f"{number} clients done", file=sys.stderr)
    return {
        name: {number: _medians(samples) for number, samples in of.items()}
        for name, of in found.items()
    }


def _medians(samples: Sequence[Sample]) -> dict[str, float]:
    rows = [asdict(each) for each in samples]
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def tables(found: dict[str, Any], clients: Sequence[int]) -> str:
    """Returns latency and steps per second as text, and the processor time per step."""
    columns: dict[str, Callable[[dict[str, float]], str]] = {
        "p50 / p99 [ms]": lambda s: f"{1e3 * s['p50_seconds']:.2f} / {1e3 * s['p99_seconds']:.2f}",
        "steps/s": lambda s: f"{s['steps_per_second']:,.0f}",
        "processor time of the server per step [µs]": lambda s: f"{1e6 * s['cpu_seconds']:.1f}",
    }
    lines = []
    contenders = {name: of for name, of in found.items() if name != "forward"}
    for title, shown in columns.items():
        lines += [title, "".join(f"{name:>18}" for name in ("clients", *contenders))]
        for number in clients:
            cells = [shown(of[number]) if number in of else "-" for of in contenders.values()]
            lines.append("".join(f"{cell:>18}" for cell in (str(number), *cells)))
        lines.append("")
    for number in clients:
        ours, bare = found["gateway"][number], found["echo"][number]
        cost = bare["cpu_seconds"] + found["forward"][number]["cpu_seconds"]
        lines.append(
            f"{number} clients: {ours['cpu_seconds'] / cost:.2f} x (echo + forward pass in batches "
            f"of {ours['batch']:.0f}), p50 {ours['p50_seconds'] / bare['p50_seconds']:.2f} x echo"
        )
    return "\n".join(lines)


def main() -> int:
    """Measures, prints the tables, and writes JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--clients", type=int, nargs="+", default=list(CLIENTS))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = compare(given.clients, given.rounds, given.seconds)
    forward = {n: bare_forward(found["gateway"][n]["batch"] or n) for n in given.clients}
    shown = {**found, "forward": {n: {"cpu_seconds": value} for n, value in forward.items()}}
    print(tables(shown, given.clients))
    if given.json is not None:
        given.json.write_text(json.dumps({"machine": machine(), **shown}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
