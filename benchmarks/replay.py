"""Experience into replay and batches out of it, between processes; Reverb does the same in turn.

Ours: a sender's process, the replay service as a run would start it, a learner's process, over ipc
sockets. Reverb: writers and a dataset in processes of their own, over its gRPC on this machine,
with the best of several settings, which are tried first. Prints tables and JSON, and writes
benchmarks/results/replay.json.

    python benchmarks/replay.py [--rounds 5] [--seconds 0.7] [--scratch FOLDER] [--no-peers]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# Scripts import their neighbours; these live a folder deeper.
sys.path += [str(HERE / "ours"), str(HERE / "peers")]

from compare import Found, Group, Line, Side, keep, measure  # noqa: E402
from rows import make_columns, row_bytes  # noqa: E402
from services import Services  # noqa: E402
from setting import Given, arguments  # noqa: E402
from worker import Answer, Worker, WorkerFailed  # noqa: E402

PRIORITIZED = "surreal_like.replay.prioritized_replay:PrioritizedReplay"
CAPACITY = 100_000
BATCH_SIZE = 256
# What differs from the defaults, in all rows: the chunks that may be under way.
CHUNKS_UNDER_WAY = 64
ATARI_LOGICAL_BYTES = 2 * 4 * 84 * 84


def rate(answer: Answer) -> float:
    """Rows per second of a round."""
    return float(answer["rows"] / answer["seconds"])


class Ours:
    """Our services, and workers that play agent and learner.

    Args:
        given: the command line.
        stack: closes them.
        name: of the run folder.
        changes: of settings.
    """

    def __init__(
        self, given: Given, stack: ExitStack, name: str, changes: Mapping[str, Any]
    ) -> None:
        settings = {
            "learner_config.replay.capacity": CAPACITY,
            "learner_config.replay.batch_size": BATCH_SIZE,
            "session_config.sender.max_unreceipted_chunks": CHUNKS_UNDER_WAY,
            **changes,
        }
        self._seconds = given.seconds
        folder = given.folder / name
        stack.enter_context(Services(folder, settings))
        # An agent has one sender: of chunks made before, and of steps with N = 1, 8 and 32.
        agents = ("agent-0", "agent-1", "agent-2", "agent-3")
        self._sender = stack.enter_context(
            Worker(sys.executable, str(HERE / "ours" / "sending.py"), str(folder), *agents)
        )
        self._learner = stack.enter_context(
            Worker(sys.executable, str(HERE / "ours" / "sampling.py"), str(folder))
        )

    def fill(self, **shape: Any) -> None:
        """Fills replay once."""
        self._sender.ask("chunks", **shape, seconds=self._seconds)

    def into(self, do: str, **shape: Any) -> float:
        """Rows per second in."""
        return rate(self._sender.ask(do, **shape, seconds=self._seconds))

    def out(self, per_request: int, do: str = "batches") -> float:
        """Rows per second out."""
        return rate(self._learner.ask(do, per_request=per_request, seconds=self._seconds))

    def both(self, per_request: int, do: str, **shape: Any) -> tuple[float, float]:
        """Rows per second in and out, at once."""
        self._learner.start("batches", per_request=per_request, seconds=self._seconds)
        into = rate(self._sender.ask(do, **shape, seconds=self._seconds))
        return into, rate(self._learner.finish())


class Reverb:
    """A server and two clients.

    Args:
        given: the command line.
        stack: closes them.
        python: interpreter of its environment.
    """

    def __init__(self, given: Given, stack: ExitStack, python: str) -> None:
        script = str(HERE / "peers" / "reverb_rounds.py")
        server = stack.enter_context(Worker(python, script, "server"))
        port = str(server.ask("port")["port"])
        self._seconds = given.seconds
        self._writer, self._reader = (
            stack.enter_context(Worker(python, script, "client", port)) for _ in range(2)
        )

    def fill(self, table: str, chunk: int, least: int) -> None:
        """Fills a table."""
        self._writer.ask("insert", table=table, chunk=chunk, seconds=0, least=least)

    def into(self, table: str, chunk: int) -> float:
        """Items per second in."""
        return rate(self._writer.ask("insert", table=table, chunk=chunk, seconds=self._seconds))

    def out(self, table: str, in_flight: int, workers: int) -> float:
        """Items per second out."""
        return rate(self._reader.ask("sample", **self._reading(table, in_flight, workers)))

    def _reading(self, table: str, in_flight: int, workers: int) -> dict[str, Any]:
        return {
            "table": table,
            "batch_size": BATCH_SIZE,
            "in_flight": in_flight,
            "workers": workers,
            "seconds": self._seconds,
        }

    def prioritized(self, in_flight: int, workers: int, *, update: bool) -> float:
        """Items per second out by priority, with new priorities or without."""
        words = self._reading("prioritized", in_flight, workers)
        del words["table"]
        return rate(self._reader.ask("prioritized", **words, update=update))

    def both(self, table: str, chunk: int, in_flight: int, workers: int) -> tuple[float, float]:
        """Items per second in and out, at once."""
        self._reader.start("sample", **self._reading(table, in_flight, workers))
        into = self.into(table, chunk)
        return into, rate(self._reader.finish())


def best(options: Mapping[str, Callable[[], float]]) -> str:
    """The option that was fastest in one round each."""
    found = {name: run() for name, run in options.items()}
    print(f"tried: { ({name: round(value) for name, value in found.items()}) }", file=sys.stderr)
    return max(found, key=lambda name: found[name])


def small_in(given: Given, ours: Ours, reverb: Reverb | None) -> Found:
    """Small rows, in only."""
    columns = make_columns("small", 100, 1)
    sides = [
        Side(
            f"steps {streams}",
            "surreal_like",
            "ExpSenderWrapper.step() for every step, chunks of 100 steps; until receipted",
            partial(ours.into, "steps", kind="small", num_envs=streams),
        )
        for streams in (1, 32)
    ]
    shapes = {"100 x 1": (100, 1), "100 x 8": (100, 8), "64 x 32": (64, 32)}
    sides += [
        Side(
            f"chunks {name}",
            "surreal_like",
            "ExpSender.send() of columns that were made before; until receipted",
            partial(ours.into, "chunks", kind="small", length=shape[0], num_envs=shape[1]),
        )
        for name, shape in shapes.items()
    ]
    if reverb is not None:
        sides += reverb_in(reverb)
    peers = ("reverb packed", "reverb columns")
    return measure(
        Group(
            "Small rows in",
            "rows/s",
            "more",
            f"CartPole's columns, {row_bytes(columns)} bytes a row, chunks T x N as named; "
            "Reverb's items are one-step transitions of 48 bytes, in five columns or packed into "
            "one array before the clock runs.",
            sides,
            [
                Line("one step at a time, 100 x 1", "steps 1", peers, "8 x, aim 0.6 M"),
                Line("one step at a time, 100 x 32", "steps 32", peers, "100 x, aim 10 M"),
                Line("prebuilt chunks 100 x 1", "chunks 100 x 1", peers),
                Line("prebuilt chunks 100 x 8", "chunks 100 x 8", peers),
                Line("prebuilt chunks 64 x 32", "chunks 64 x 32", peers, "aim 30 M"),
            ],
        ),
        given.rounds,
    )


def reverb_in(reverb: Reverb) -> list[Side]:
    """Its writer, with the length of chunks that is fastest."""
    sides = []
    for table in ("packed", "columns"):
        options = {str(chunk): partial(reverb.into, table, chunk) for chunk in (1, 10, 100)}
        chunk = int(best(options))
        sides.append(
            Side(
                f"reverb {table}",
                f"Reverb, {table}",
                f"client.writer, chunk_length {chunk} of 1, 10, 100, max_in_flight_items 1000; "
                "append, create_item, closed at the end",
                partial(reverb.into, table, chunk),
            )
        )
    return sides


def small_out(given: Given, ours: Mapping[int, Ours], reverb: Reverb | None) -> Found:
    """Small transitions, out only."""
    sides = [
        Side(
            f"{n_step}-step x {per_request}",
            "surreal_like",
            f"ReplayClient, batches of {BATCH_SIZE}, {per_request} per request, two in flight; "
            "numpy columns of each batch",
            partial(ours[n_step].out, per_request),
        )
        for n_step in (1, 3)
        for per_request in (1, 8)
    ]
    if reverb is not None:
        sides += reverb_out(reverb)
    peers = ("reverb packed", "reverb columns")
    return measure(
        Group(
            "Small transitions out",
            "rows/s",
            "more",
            f"Uniform, batches of {BATCH_SIZE}, {CAPACITY:,} rows kept, episodes of 20 rows, "
            "inserted in chunks 100 x 32; Reverb's items are one-step transitions.",
            sides,
            [
                Line("1-step, one batch per request", "1-step x 1", peers, "15 x, aim 2.5 M"),
                Line("1-step, eight per request", "1-step x 8", peers, "20 x, aim 7 M"),
                Line("3-step, one batch per request", "3-step x 1", peers, "15 x"),
                Line("3-step, eight per request", "3-step x 8", peers, "20 x, aim 3 M"),
            ],
        ),
        given.rounds,
    )


READING = {
    f"{in_flight} in flight, {workers} workers": (in_flight, workers)
    for in_flight in (512, 2048)
    for workers in (1, 2)
}


def reverb_out(reverb: Reverb) -> list[Side]:
    """Its dataset, with the best of four settings."""
    sides = []
    for table in ("packed", "columns"):
        reverb.fill(table, 1, CAPACITY // 2)
        options = {name: partial(reverb.out, table, *how) for name, how in READING.items()}
        name = best(options)
        sides.append(
            Side(
                f"reverb {table}",
                f"Reverb, {table}",
                f"TrajectoryDataset.batch({BATCH_SIZE}).prefetch(4) as numpy, {name}, of "
                f"{'; '.join(READING)}; items written with chunk_length 1",
                partial(reverb.out, table, *READING[name]),
            )
        )
    return sides


def small_both(given: Given, ours: Ours, reverb: Reverb | None) -> Found:
    """Small rows in and out at once."""

    def run(do: str, **shape: Any) -> Callable[[], Mapping[str, float]]:
        def once() -> Mapping[str, float]:
            into, out = ours.both(8, do, kind="small", **shape)
            return {"in": into, "out": out}

        return once

    steps = "ExpSenderWrapper.step(), chunks 100 x 8; ReplayClient, eight batches per request"
    chunks = "ExpSender.send() of chunks 100 x 8 made before; the same reader"
    sides = [
        Side("steps", "surreal_like", steps, run("steps", num_envs=8)),
        Side("chunks", "surreal_like", chunks, run("chunks", length=100, num_envs=8)),
    ]
    if reverb is not None:
        sides.append(reverb_both(reverb, "packed"))
    return measure(
        Group(
            "Small rows in and out at once",
            "rows/s",
            "more",
            f"N = 8, chunks 100 x 8, batches of {BATCH_SIZE}, uniform, 1-step; three processes.",
            sides,
            [
                Line("in, one step at a time", "steps in", ("reverb in",), "20 x, aim 2 M"),
                Line("out meanwhile", "steps out", ("reverb out",), "15 x, aim 3 M"),
                Line("in, prebuilt chunks", "chunks in", ("reverb in",)),
                Line("out meanwhile", "chunks out", ("reverb out",)),
            ],
        ),
        given.rounds,
    )


def reverb_both(reverb: Reverb, table: str, chunks: tuple[int, ...] = (1, 10)) -> Side:
    """Its writer and its dataset at once, with the chunks whose two rates multiply to most."""

    def product(chunk: int) -> float:
        into, out = reverb.both(table, chunk, 512, 2)
        return into * out

    options = {str(chunk): partial(product, chunk) for chunk in chunks}
    chunk = int(best(options))

    def once() -> Mapping[str, float]:
        into, out = reverb.both(table, chunk, 512, 2)
        return {"in": into, "out": out}

    did = f"writer with chunk_length {chunk} of {chunks}, dataset with 512 in flight, 2 workers"
    return Side("reverb", f"Reverb, {table}", did, once)


def prioritized(given: Given, ours: Ours, reverb: Reverb | None) -> Found:
    """Batches by priority, and a new priority for each of their rows."""
    sides = [
        Side(
            "ours",
            "surreal_like",
            "ReplayClient, eight batches per request; new priorities of each batch sent back",
            partial(ours.out, 8, "priorities"),
        )
    ]
    if reverb is not None:
        reverb.fill("prioritized", 1, CAPACITY // 2)
        options = {
            name: partial(reverb.prioritized, *how, update=False) for name, how in READING.items()
        }
        how = READING[best(options)]
        did = f"Prioritized(0.6), {how[0]} in flight, {how[1]} workers, packed"
        sides += [
            Side(
                "reverb update",
                "Reverb, sample + update",
                f"{did}; TFClient.update_priorities for each batch",
                partial(reverb.prioritized, *how, update=True),
            ),
            Side(
                "reverb sample",
                "Reverb, sample only",
                did,
                partial(reverb.prioritized, *how, update=False),
            ),
        ]
    peers = ("reverb update", "reverb sample")
    return measure(
        Group(
            "Prioritized, between processes",
            "rows/s",
            "more",
            f"Batches of {BATCH_SIZE}, {CAPACITY:,} rows kept, alpha 0.6, beta 0.4, 1-step.",
            sides,
            [Line("sample + update", "ours", peers, "5 x, aim 0.9 M")],
        ),
        given.rounds,
    )


def main() -> None:
    """Measures, prints, writes."""
    with arguments(__doc__, "reverb") as given, ExitStack() as stack:
        reverb = None
        if "reverb" in given.pythons:
            try:
                reverb = Reverb(given, stack, given.pythons["reverb"])
            except WorkerFailed as error:
                given.left_out["reverb"] = str(error)
        one = Ours(given, stack, "one", {})
        three = Ours(given, stack, "three", {"learner_config.algo.n_step": 3})
        priorities = {"learner_config.replay.type": PRIORITIZED}
        by_priority = Ours(given, stack, "by-priority", priorities)
        for each in (one, three, by_priority):
            each.fill(kind="small", length=100, num_envs=32)
        groups = [
            small_in(given, one, reverb),
            small_out(given, {1: one, 3: three}, reverb),
            small_both(given, one, reverb),
            prioritized(given, by_priority, reverb),
        ]
        keep("replay", groups, given.versions, given.left_out)


if __name__ == "__main__":
    main()
