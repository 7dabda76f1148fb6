"""Unrolls through a queue: an on-policy learner's batches, each unroll once and in order.

The sides of one group of :mod:`replay`: our FIFOReplay, Reverb's queue and id-echo, between
processes; ours and id-echo's also inside one process, without any socket. All move the same
unrolls in the same batches, and each round checks their order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from compare import Found, Group, Line, Side, measure
from contenders import CHUNKS_UNDER_WAY, HERE, Ours, Reverb, best, rate
from rows import make_chunks, make_columns, row_bytes
from setting import Given
from worker import Worker

STEPS = 32
NUM_ENVS = 32
UNROLLS = 4  # of a batch
ROOM = 24  # batches that a queue has room for
ROWS = UNROLLS * STEPS * NUM_ENVS
SETTINGS: dict[str, Any] = {
    "learner_config.replay.type": "FIFOReplay",
    "learner_config.replay.batch_size": UNROLLS * NUM_ENVS,
    "learner_config.replay.capacity": ROOM * ROWS,
    "env_config.num_envs": NUM_ENVS,
    "session_config.sender.flush_iteration": STEPS,
}
# The last row of an unroll is also the first of the next one.
_SHAPE = {"length": STEPS + 1, "num_envs": NUM_ENVS}


def write_unrolls(folder: Path) -> str:
    """Writes the unrolls that our senders make, for the peers; returns the file's path."""
    made = make_chunks("small", STEPS + 1, NUM_ENVS)
    path = folder / "unrolls.npz"
    together: dict[str, Any] = {name: np.stack([each[name] for each in made]) for name in made[0]}
    np.savez(path, **together)
    return str(path)


class Echo:
    """Two processes of id-echo.

    Args:
        stack: closes the processes.
        python: interpreter of id-echo's environment.
        unrolls: file with those that it sends.
    """

    def __init__(self, stack: ExitStack, python: str, unrolls: str) -> None:
        script = str(HERE / "peers" / "id_echo_rounds.py")
        self.writer, self.reader = (
            stack.enter_context(Worker(python, script, unrolls)) for _ in range(2)
        )
        self.listen(1)

    def listen(self, threads: int) -> int:
        """Starts a queue with so many threads of each kind; returns its port."""
        words = {"unrolls": UNROLLS, "batches": ROOM, "threads": threads}
        return int(self.reader.ask("listen", **words)["port"])


@dataclass(frozen=True)
class Ends:
    """The two ends of an empty queue between processes.

    Args:
        writer, reader: their processes.
        write, read: their requests, without the number of unrolls or batches.
    """

    writer: Worker
    reader: Worker
    write: Mapping[str, Any]
    read: Mapping[str, Any]

    def move(self, batches: int) -> float:
        """Moves so many batches; returns the rows per second until the reader has the last one."""
        self.reader.start(**self.read, batches=batches)
        self.writer.ask(**self.write, least=batches * UNROLLS)
        return float(batches * ROWS / self.reader.finish()["seconds"])

    def make_round(self, seconds: float) -> Callable[[], float]:
        """Returns a round of as many batches as take so long.

        Args:
            seconds: duration of the faster one of two tries; the first batch of all, for which
                connections are made, is none of them.
        """
        self.move(1)
        batches = 1
        while batches * ROWS / max(self.move(batches) for _ in range(2)) < seconds:
            batches *= 2
        return partial(self.move, batches)


def _ours(given: Given, ours: Ours, stored: Worker) -> list[Side]:
    write = {"do": "chunks", "kind": "small", **_SHAPE, "overlap": 1, "seconds": 0.0}
    ends = Ends(ours.sender, ours.learner, write, {"do": "unrolls"})
    words = {"changes": SETTINGS, **_SHAPE, "unrolls": UNROLLS, "seconds": given.seconds}
    return [
        Side(
            "ours",
            "surreal_like",
            f"ExpSender.send() of chunks made before, {CHUNKS_UNDER_WAY} under way; FIFOReplay in "
            "a replay service; ReplayClient, a batch per request, 16 under way; three processes",
            ends.make_round(given.seconds),
        ),
        Side(
            "ours inside",
            "surreal_like, inside",
            "FIFOReplay in one process: insert of the unrolls of a batch, sample_columns; "
            "no socket, no second process",
            lambda: rate(stored.ask("queue", **words)),
        ),
    ]


def _reverb(given: Given, reverb: Reverb) -> Side:
    steps = {"unrolls": 1, "unrolls_by_step": STEPS + 1}
    options = {}
    for table in steps:
        write = {"do": "write", "table": table, "in_flight": CHUNKS_UNDER_WAY}
        read = {"do": "read", "table": table, "unrolls": UNROLLS, "in_flight": ROOM * UNROLLS}
        options[table] = Ends(reverb.writer, reverb.reader, write, read).make_round(given.seconds)
    table = best(options)
    did = (
        f"Table.queue over gRPC; client.writer, an unroll as {steps[table]} of 1, {STEPS + 1} "
        f"steps of an item, {CHUNKS_UNDER_WAY} in flight; TrajectoryDataset.batch({UNROLLS})"
        ".prefetch(4) as numpy, one worker, which keeps the order; three processes"
    )
    return Side("reverb", "Reverb, queue", did, options[table])


def _echo(given: Given, echo: Echo) -> list[Side]:
    options = {}
    for threads in (1, 2, 8):
        port = echo.listen(threads)
        write = {"do": "write", "port": port, "in_flight": CHUNKS_UNDER_WAY}
        ends = Ends(echo.writer, echo.reader, write, {"do": "read", "port": port})
        options[f"{threads} threads"] = ends.make_round(given.seconds)
    fastest = best(options)
    words = {"unrolls": UNROLLS, "batches": ROOM, "seconds": given.seconds}
    return [
        Side(
            "echo",
            "id-echo",
            f"TcpClient.send of an unroll, {CHUNKS_UNDER_WAY} in flight; Server.sample over TCP, "
            f"{fastest} of {', '.join(options)}, and as many drainers; the queue lies in the "
            "reader's process: two processes, no server between them, and batches are views that "
            "the next one overwrites",
            options[fastest],
        ),
        Side(
            "echo inside",
            "id-echo, inside",
            "Server without transport in one process: submit of the unrolls of a batch, sample; "
            "no socket, no second process; batches are views that the next one overwrites",
            lambda: rate(echo.reader.ask("inside", **words)),
        ),
    ]


def measure_queues(
    given: Given, stack: ExitStack, reverb: Reverb | None, echo: Echo | None
) -> Found:
    """Measures unrolls in and batches of them out at once."""
    stored = stack.enter_context(Worker(sys.executable, str(HERE / "ours" / "stored.py")))
    ours = Ours(given, stack, "queue", SETTINGS)
    sides = _ours(given, ours, stored)
    if reverb is not None:
        sides.append(_reverb(given, reverb))
    if echo is not None:
        sides += _echo(given, echo)
    bytes_ = row_bytes(make_columns("small", STEPS + 1, NUM_ENVS))
    return measure(
        Group(
            "FIFO batches",
            "rows/s",
            "more",
            f"CartPole's columns, {bytes_} bytes a row, in unrolls of {STEPS} steps of {NUM_ENVS} "
            f"streams and a last row; batches of {UNROLLS} unrolls, {ROWS:,} rows; room for "
            f"{ROOM} batches; in and out at once, in order, each unroll once.",
            sides,
            [
                Line("between processes", "ours", ("reverb", "echo")),
                Line("inside one process, no socket", "ours inside", ("echo inside",)),
            ],
        ),
        given.rounds,
    )
