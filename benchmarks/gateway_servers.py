"""Servers of ``gateway.py``: gateways of real runs, and echoes by epoll and by gRPC streams."""

from __future__ import annotations

import multiprocessing
import select
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from compare import seconds_per_call
from gateway_load import FILL, Sample, request_head, sample_of
from machine import cpu_of
from whole import training as started

from session.addons.gateway.protocols import Encoding
from session.process.heartbeat import read_beats
from session.wire.frames import FrameReader, pack_frame
from surreal_like.addons.gateway.payloads import encode

ROOT = Path(__file__).resolve().parents[1]
# An answer as the gateway sends it.
ANSWER = pack_frame(
    encode({"kind": "action", "seq": 1 << 20, "action": 1, "version": 1}, Encoding.msgpack)
)
GRPC_MOST = 64
START_SECONDS = 90.0


class Server(NamedTuple):
    """A server that is measured.

    Args:
        port, pid: of its process.
        folder: of its run; of an echo, none.
    """

    port: int
    pid: int
    folder: Path = Path()

    @property
    def batch(self) -> float:
        """Requests that the gateway answered together, by its newest heartbeat."""
        return float(read_beats(self.folder / "alive")["gateway-0"].status.get("batch", 1.0))


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


def measure_grpc(server: Server, clients: int, seconds: float) -> Sample:
    """The clients of the other servers over gRPC; each has a thread."""
    import grpc

    over = threading.Event()
    latencies: list[float] = []
    head = request_head(np.zeros(4, np.float32), 1, Encoding.msgpack)

    def client(stub: Callable[[Iterator[bytes]], Iterator[bytes]]) -> None:
        go = threading.Semaphore(1)
        asked = [0.0]

        def requests() -> Iterator[bytes]:
            while not over.is_set():
                go.acquire()
                asked[0] = time.perf_counter()
                yield pack_frame(head + bytes(4))

        for _ in stub(requests()):
            latencies.append(time.perf_counter() - asked[0])
            go.release()

    with ExitStack() as stack:
        threads = []
        for _ in range(clients):
            channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{server.port}"))
            thread = threading.Thread(target=client, args=(channel.stream_stream("/bench/steps"),))
            thread.start()
            threads.append(thread)
        time.sleep(FILL * seconds + 0.3)
        latencies.clear()
        cpu, began = cpu_of(server.pid), time.perf_counter()
        time.sleep(seconds)
        passed = time.perf_counter() - began
        found = sample_of(list(latencies), passed, cpu_of(server.pid) - cpu, 1)
        over.set()
        for thread in threads:
            thread.join()
    return found


@contextmanager
def process_of(target: Callable[[Any], None]) -> Iterator[Server]:
    """Starts one of the echoes."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs,), daemon=True)
    process.start()
    try:
        if not ours.poll(START_SECONDS):
            raise SystemExit(f"{target.__name__} does not start")
        yield Server(ours.recv(), process.pid or 0)
    finally:
        process.kill()
        process.join()


def forward(network: torch.nn.Module, obs: torch.Tensor, seconds: float = 0.03) -> float:
    """Returns the processor time per row of a forward pass in seconds."""
    with torch.inference_mode():
        network(obs)
        return seconds_per_call(lambda: network(obs).argmax(1), seconds) / len(obs)


def floored(
    turn_of: Mapping[str, Callable[[int], Sample]],
    batch_of: Callable[[int], float],
    network: torch.nn.Module,
    shape: tuple[int, ...],
    dtype: torch.dtype,
) -> dict[str, Callable[[int], Sample]]:
    """Adds what cannot be saved: the echo, and a bare forward pass in batches of the same size.

    Args:
        turn_of: measurement of each server, of so many clients.
        batch_of: returns the mean batch of the gateway with so many clients.
        network: whose forward pass is measured.
        shape, dtype: of an observation.
    """
    batches: dict[int, float] = {}

    def floor(clients: int) -> Sample:
        if clients not in batches:
            batches[clients] = batch_of(clients)
        rows = max(1, round(batches[clients]))
        bare = forward(network, torch.zeros(rows, *shape, dtype=dtype))
        echoed = turn_of["echo"](clients)
        return Sample(0.0, echoed.cpu_seconds + bare, 0.0, 0.0)

    return {**turn_of, "floor": floor}


def free_port() -> int:
    """Returns a port that was free just now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def training(folder: Path, words: Sequence[str]) -> Iterator[Server]:
    """Starts a run whose only environments are clients, and yields its gateway.

    Args:
        folder: of the run.
        words: settings that differ from those of ``configs/cartpole_remote.yaml``.
    """
    port = free_port()
    fixed = (
        f"session_config.gateway.port={port}",
        "session_config.gateway.max_clients=1024",
        "session_config.stop={seconds: 36000}",
    )
    config = str(ROOT / "configs" / "cartpole_remote.yaml")
    with started(config, *fixed, *words, folder=folder) as process:
        deadline = time.monotonic() + START_SECONDS
        while not (beat := read_beats(folder / "alive").get("gateway-0")) or not beat.ready:
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit("the run does not start")
            time.sleep(0.1)
        yield Server(port, beat.pid, folder)


def certificate(folder: Path) -> tuple[Path, Path]:
    """Makes a certificate of one's own; returns the files of certificate and key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    subprocess.run(
        ["openssl", *words, "-keyout", str(key), "-out", str(cert)],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    # Both belong together.
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    return cert, key
