"""Contenders of the replay benchmarks: our run, and Reverb; experience moves between processes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# Scripts import modules of their own folder; these lie one folder deeper.
sys.path += [str(HERE / "ours"), str(HERE / "peers")]

from compare import Side  # noqa: E402
from rows import ACTION_SPEC, OBS_SPEC  # noqa: E402
from services import Services  # noqa: E402
from setting import Given  # noqa: E402
from worker import Answer, Worker  # noqa: E402

CAPACITY = 100_000
BATCH_SIZE = 256
# The only setting of all rows that differs from the defaults: chunks that may be unacked.
CHUNKS_UNDER_WAY = 64


READING = {
    f"{in_flight} in flight, {workers} workers": (in_flight, workers)
    for in_flight in (512, 2048)
    for workers in (1, 2)
}


def rate(answer: Answer) -> float:
    """Rows per second of a round."""
    return float(answer["rows"] / answer["seconds"])


class Ours:
    """Our services, with worker processes in the roles of agent and learner.

    Args:
        given: the command line.
        stack: closes the services and workers.
        name: of the run folder.
        changes: overrides of settings.

    Attributes:
        sender: process of an agent.
        learner: process that takes batches.
    """

    def __init__(
        self, given: Given, stack: ExitStack, name: str, changes: Mapping[str, Any]
    ) -> None:
        settings = {
            "learner_config.replay.capacity": CAPACITY,
            "learner_config.replay.batch_size": BATCH_SIZE,
            "session_config.sender.max_unacked_chunks": CHUNKS_UNDER_WAY,
            "env_config.obs_spec": OBS_SPEC["small"],
            "env_config.action_spec": ACTION_SPEC,
            **changes,
        }
        self._seconds = given.seconds
        folder = given.folder / name
        stack.enter_context(Services(folder, settings))
        # An agent has one sender: of chunks made before, and of steps with N = 1, 8 and 32.
        agents = ("agent-0", "agent-1", "agent-2", "agent-3")
        self.sender = stack.enter_context(
            Worker(sys.executable, str(HERE / "ours" / "sending.py"), str(folder), *agents)
        )
        self.learner = stack.enter_context(
            Worker(sys.executable, str(HERE / "ours" / "sampling.py"), str(folder))
        )

    def fill(self, **shape: Any) -> None:
        """Fills the replay once."""
        self.sender.ask("chunks", **shape, seconds=self._seconds)

    def into(self, do: str, **shape: Any) -> float:
        """Returns the rows inserted per second."""
        return rate(self.sender.ask(do, **shape, seconds=self._seconds))

    def out(self, per_request: int, do: str = "batches") -> float:
        """Returns the rows sampled per second."""
        return rate(self.learner.ask(do, per_request=per_request, seconds=self._seconds))

    def row_bytes_out(self) -> float:
        """Returns the size of one row of a batch at the learner, in bytes."""
        return float(self.learner.ask("batches", per_request=1, seconds=0.0, least=1)["row_bytes"])

    def both(self, per_request: int, do: str, **shape: Any) -> dict[str, float]:
        """Inserts and samples at the same time; returns rows per second in and out."""
        self.learner.start("batches", per_request=per_request, seconds=self._seconds)
        into = rate(self.sender.ask(do, **shape, seconds=self._seconds))
        return {"in": into, "out": rate(self.learner.finish())}


class Reverb:
    """A server and two clients.

    Args:
        given: the command line.
        stack: closes the processes.
        python: interpreter of Reverb's environment.
        unrolls: file with those of the queues.
        room: unrolls that a queue has room for.

    Attributes:
        writer, reader: the clients.
    """

    def __init__(
        self, given: Given, stack: ExitStack, python: str, *, unrolls: str, room: int
    ) -> None:
        script = str(HERE / "peers" / "reverb_rounds.py")
        server = stack.enter_context(Worker(python, script, "server", unrolls, str(room)))
        port = str(server.ask("port")["port"])
        self._seconds = given.seconds
        self.writer, self.reader = (
            stack.enter_context(Worker(python, script, "client", port, unrolls)) for _ in range(2)
        )

    def fill(self, table: str, chunk: int, least: int) -> None:
        """Fills a table."""
        self.writer.ask("insert", table=table, chunk=chunk, seconds=0, least=least)

    def into(self, table: str, chunk: int) -> float:
        """Returns the items inserted per second."""
        return rate(self.writer.ask("insert", table=table, chunk=chunk, seconds=self._seconds))

    def out(self, table: str, in_flight: int, workers: int) -> float:
        """Returns the items sampled per second."""
        return rate(self.reader.ask("sample", **self._reading(table, in_flight, workers)))

    def _reading(self, table: str, in_flight: int, workers: int) -> dict[str, Any]:
        return {
            "table": table,
            "batch_size": BATCH_SIZE,
            "in_flight": in_flight,
            "workers": workers,
            "seconds": self._seconds,
        }

    def prioritized(self, in_flight: int, workers: int, *, update: bool) -> float:
        """Returns the items sampled per second by priority, with or without priority updates."""
        words = self._reading("prioritized", in_flight, workers)
        del words["table"]
        return rate(self.reader.ask("prioritized", **words, update=update))

    def both(self, table: str, chunk: int) -> dict[str, float]:
        """Inserts and samples at the same time; returns items per second in and out."""
        self.reader.start("sample", **self._reading(table, 512, 2))
        into = self.into(table, chunk)
        return {"in": into, "out": rate(self.reader.finish())}


def best(options: Mapping[str, Callable[[], float]]) -> str:
    """Returns the name of the fastest option, by one round each."""
    found = {name: run() for name, run in options.items()}
    print(f"tried: { ({name: round(value) for name, value in found.items()}) }", file=sys.stderr)
    return max(found, key=lambda name: found[name])


def reverb_in(reverb: Reverb) -> list[Side]:
    """Reverb's writer, with the fastest chunk length."""
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


def reverb_out(reverb: Reverb) -> list[Side]:
    """Reverb's dataset, with the fastest of four settings."""
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


def reverb_both(reverb: Reverb, table: str, chunks: tuple[int, ...] = (1, 10)) -> Side:
    """Reverb's writer and dataset at once; the chunk length has the highest product of rates."""

    def product(chunk: int) -> float:
        found = reverb.both(table, chunk)
        return found["in"] * found["out"]

    options = {str(chunk): partial(product, chunk) for chunk in chunks}
    chunk = int(best(options))
    did = f"writer with chunk_length {chunk} of {chunks}, dataset with 512 in flight, 2 workers"
    return Side("reverb", f"Reverb, {table}", did, partial(reverb.both, table, chunk))
