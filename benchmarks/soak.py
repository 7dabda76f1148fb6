"""Memory and latency of one replay while very many small rows pass through it.

Three processes and real sockets (ipc): a sender pushes prebuilt chunks of 64 steps x 32 streams at
the highest rate; the replay server keeps the newest million rows; this process requests eight
batches of 256 rows, waits for the reply, learns nothing, and repeats that after a pause. Prints
JSON: the server's memory over the number of rows received, and percentiles of the time from request
to decoded reply in each tenth of the run.

    python benchmarks/soak.py [--rows 100000000] [--pause 0.005]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import zmq
from machine import machine

from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.config.sections import sections_of
from session.process.clock import WallClock
from session.process.component import Component, Topology
from session.process.context import Context, Launch
from session.process.service import Frame
from session.run_connection import Client
from session.wire import AddressBook
from session.wire.requests import DealerSocket
from session.wire.socket_state import poll
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.batch_server import ReplayService
from surreal_like.replay.kinds import UniformReplay

STEPS, STREAMS = 64, 32
CAPACITY = 1_000_000
BATCH_SIZE, BATCHES = 256, 8
EPISODE_STEPS = 20
PARTS = 10
NAME = "replay-0"
ENDS = ("experience", "acks", "batches", "priorities")
_MEMORY_SECONDS = 0.25
_ANSWER_SECONDS = 30.0


def make_config() -> Config:
    """Returns the config of one shard that keeps the newest rows and never blocks inserts."""
    config = BASE_CONFIG.copy()
    config.algorithm = "none"
    config.env_config.env_name = "toy:none"
    config.env_config.num_envs = STREAMS
    config.session_config.sender.flush_iteration = STEPS
    config.session_config.agent.num = 1
    config.learner_config.replay.update({"capacity": CAPACITY, "batch_size": BATCH_SIZE})
    return config


def columns() -> dict[str, np.ndarray[Any, Any]]:
    """Returns CartPole's columns, 41 bytes a row; episodes of 20 rows that end in a termination."""
    shape = (STEPS, STREAMS)
    place = (np.arange(STEPS)[:, None] + np.arange(STREAMS)) % EPISODE_STEPS
    last = place == EPISODE_STEPS - 1
    return {
        "step_type": np.where(place == 0, 0, np.where(last, 2, 1)).astype(np.uint8),
        "reward": (place > 0).astype(np.float32),
        "discount": (~last).astype(np.float32),
        "version": np.zeros(shape, np.int64),
        "obs": np.random.default_rng(0).normal(size=(*shape, 4)).astype(np.float32),
        "action": np.zeros(shape, np.int64),
    }


def wire_of(name: str, folder: Path) -> Client:
    """Opens the wire of one process of the benchmark."""
    return Client(addresses(folder), name, config=make_config())


def addresses(folder: Path) -> AddressBook:
    """Returns the addresses of the four sockets of the shard."""
    return AddressBook.ipc([f"{NAME}.{end}" for end in ENDS], folder)


def serve(folder: Path) -> None:
    """Runs the replay server until SIGTERM."""
    config, book = make_config(), addresses(folder)
    component = Component(NAME, "replay", "main.replay", binds=tuple(book))
    # Replay accepts messages only from components of its run: the sender and the watcher.
    agent = Component("agent-0", "agent", "main.agent")
    learner = Component("learner", "learner", "main.learner")
    launch = Launch(component, config, Topology([component, agent, learner]), book, None)
    replay = UniformReplay(**sections_of(config))
    sockets: zmq.Context[Any] = zmq.Context()
    context = Context(launch, sockets, clock=WallClock(), incarnation=1)
    frame = Frame(context, lambda own: ReplayService(own, replay))

    def stop(number: int, stack: object) -> None:
        context.stopping = True

    signal.signal(signal.SIGTERM, stop)
    while not frame.finished:
        if not frame.step():
            frame.idle()
    sockets.destroy(0)


def send(folder: Path, rows: int) -> None:
    """Runs the sender; ends when all its rows are acked as inserted."""
    prebuilt = columns()
    with wire_of("agent-0", folder) as wire:
        push = wire.push(f"{NAME}.experience", high_water_mark=8)
        acks = wire.subscriber(f"{NAME}.acks", name="agent-0")
        inserted = sequence = sent = 0
        while inserted < rows:
            while (message := acks.receive()) is not None:
                _, _, inserted, *_ = message.fields["senders"].get("agent-0", (1, 0, inserted))
            if sent >= rows:
                poll([acks], 0.05)
                continue
            sequence += 1
            sent += STEPS * STREAMS
            chunk = Chunk(
                prebuilt, sequence, list(range(STREAMS)), rows=sent, env_steps=sent
            ).to_message()
            while not push.send(chunk):
                push.raw.poll(10, zmq.POLLOUT)


@contextmanager
def ended_after(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a process that ends with the block."""
    with subprocess.Popen(command) as process:
        try:
            yield process
        finally:
            process.terminate()


@dataclass(frozen=True)
class Answer:
    """One request: its time and duration, and the rows that replay had received by then."""

    at: float
    seconds: float
    rows: int


def ask(dealer: DealerSocket, rows: int) -> Answer:
    """Requests batches and waits for them; ``rows`` is used if the reply has no counts."""
    begin = time.perf_counter()
    wanted = {"batch_size": BATCH_SIZE, "batches": BATCHES}
    while dealer.send("sample", wanted) is None:  # the server has not started yet
        poll([dealer], 0.01)
    while (answer := dealer.receive()) is None:
        if time.perf_counter() - begin > _ANSWER_SECONDS:
            raise SystemExit(f"no answer for {_ANSWER_SECONDS:g} s")
        poll([dealer], 0.1)
    seconds = time.perf_counter() - begin
    if answer.kind != "batch":
        raise SystemExit(f"replay answered '{answer.kind}': {answer.fields.get('reason')}")
    counts = answer.fields["counts"]
    return Answer(begin, seconds, rows if counts is None else counts["inserted"])


def watch(
    sender: subprocess.Popen[bytes], server: psutil.Process, folder: Path, pause: float
) -> tuple[list[Answer], list[tuple[int, int]]]:
    """Sends requests while rows arrive; returns all answers and samples (rows, bytes of memory)."""
    answers: list[Answer] = []
    memory: list[tuple[int, int]] = []
    with wire_of("learner", folder) as wire:
        dealer = wire.dealer(f"{NAME}.batches")
        ask(dealer, 0)  # waits for the first rows; not measured
        looked = 0.0
        while sender.poll() is None:
            answers.append(ask(dealer, answers[-1].rows if answers else 0))
            if answers[-1].at - looked >= _MEMORY_SECONDS:
                looked = answers[-1].at
                memory.append((answers[-1].rows, server.memory_info().rss))
            time.sleep(pause)
    if sender.returncode:
        raise SystemExit(f"the sender ended with {sender.returncode}")
    return answers, memory


def percentiles(answers: list[Answer]) -> dict[str, float]:
    """Returns percentiles of the durations of requests [ms]."""
    milliseconds = np.array([answer.seconds for answer in answers]) * 1e3
    p50, p90, p99 = np.percentile(milliseconds, (50, 90, 99)).tolist()
    worst = float(milliseconds.max())
    return {"requests": len(answers), "p50": p50, "p90": p90, "p99": p99, "max": worst}


def in_parts(answers: list[Answer], rows: int) -> list[dict[str, float]]:
    """Returns the percentiles of each tenth of the rows; the ring is full after the first one."""
    ends = [rows * part // PARTS for part in range(1, PARTS + 1)]
    table = []
    for begin, end in itertools.pairwise([0, *ends]):
        part = [answer for answer in answers if begin <= answer.rows < end]
        if part:
            table.append({"rows": end, **percentiles(part)})
    return table


def measure(rows: int, pause: float) -> dict[str, Any]:
    """Measures the whole run."""
    with tempfile.TemporaryDirectory(prefix="sl-bench-") as name:
        folder = Path(name)
        command = [sys.executable, __file__]
        begin, load = time.perf_counter(), os.getloadavg()[0]
        with (
            ended_after([*command, "--serve", name]) as server,
            ended_after([*command, "--send", name, str(rows)]) as sender,
        ):
            answers, memory = watch(sender, psutil.Process(server.pid), folder, pause)
        seconds = time.perf_counter() - begin
    # From the first reply on: before it, processes start.
    moving = answers[-1].at - answers[0].at
    full = [size for taken, size in memory if taken >= rows // PARTS]
    return {
        "rows": rows,
        "chunk": [STEPS, STREAMS],
        "row_bytes": sum(c.nbytes for c in columns().values()) // (STEPS * STREAMS),
        "capacity": CAPACITY,
        "request": {"batch_size": BATCH_SIZE, "batches": BATCHES, "pause_seconds": pause},
        "seconds": seconds,
        # Of the machine over the minute before; the load of our three processes is added later.
        "load_before": load,
        "rows_in_per_second": rows / moving,
        "rows_out_per_second": len(answers) * BATCH_SIZE * BATCHES / moving,
        "server_bytes": [{"rows": taken, "rss": size} for taken, size in memory],
        "server_growth": {
            "from_rows": rows // PARTS,
            "first_rss": full[0],
            "last_rss": full[-1],
            "max_rss": max(full),
        },
        "request_milliseconds": in_parts(answers, rows),
    }


def main() -> None:
    """Prints the result as JSON; with ``--serve`` or ``--send``, runs one of the processes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--pause", type=float, default=0.005, help="seconds between requests")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--send", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    # The ring must be full for most of the run, and each tenth must contain requests.
    if given.rows < 10 * CAPACITY:
        parser.error(f"--rows is {given.rows}: expected at least {10 * CAPACITY}")
    if given.serve:
        serve(Path(given.serve))
    elif given.send:
        send(Path(given.send[0]), int(given.send[1]))
    else:
        soak = measure(given.rows, given.pause)
        print(json.dumps({"machine": machine(), "soak": soak}, indent=2))


if __name__ == "__main__":
    main()
