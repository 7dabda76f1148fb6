"""Reverb between processes, over its own gRPC on this machine. Rounds of :mod:`worker`.

python reverb_rounds.py server UNROLLS ROOM
python reverb_rounds.py client PORT UNROLLS
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import reverb
import tensorflow as tf

sys.path.append(str(Path(__file__).resolve().parent.parent))
from steps import STACK, check_order, frames, load_unrolls, transitions
from worker import Answer, repeat, serve

CAPACITY = 100_000
ATARI_CAPACITY = 4000
ALPHA = 0.6
FRAME = (84, 84)
ATARI_STEPS = 200

# What one item is: column -> shape and dtype of the trajectory that a table gives.
Columns = dict[str, tuple[tuple[int, ...], Any]]
SMALL: Columns = {
    "obs": ((4,), np.float32),
    "action": ((), np.int64),
    "reward": ((), np.float32),
    "discount": ((), np.float32),
    "obs_next": ((4,), np.float32),
}
PACKED: Columns = {"packed": ((12,), np.float32)}
NUMBERS: Columns = {name: SMALL[name] for name in ("action", "reward", "discount")}
STACKS: Columns = {
    "obs": ((STACK, *FRAME), np.uint8),
    "obs_next": ((STACK, *FRAME), np.uint8),
    **NUMBERS,
}
TABLES: dict[str, Columns] = {
    "columns": SMALL,
    "packed": PACKED,
    "prioritized": PACKED,
    "atari_stacks": STACKS,
}


def signature(columns: Columns, length: int = 1) -> dict[str, Any]:
    """Of trajectories of so many steps."""
    return {
        name: tf.TensorSpec((length, *shape), dtype) for name, (shape, dtype) in columns.items()
    }


def table(name: str, specs: dict[str, Any], size: int) -> Any:
    """A table that drops the oldest items."""
    prioritized = name == "prioritized"
    selectors = reverb.selectors
    return reverb.Table(
        name=name,
        sampler=selectors.Prioritized(ALPHA) if prioritized else selectors.Uniform(),
        remover=selectors.Fifo(),
        max_size=size,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=specs,
    )


def steps_of_unroll(table: str, unroll: dict[str, Any]) -> list[dict[str, Any]]:
    """Steps that a writer appends for one unroll: the whole of it at once, or step by step."""
    if table == "unrolls":
        return [unroll]
    length = len(unroll["obs"])
    return [{name: column[place] for name, column in unroll.items()} for place in range(length)]


def queue(name: str, unroll: dict[str, Any], room: int) -> Any:
    """A queue of unrolls, each of which is given once."""
    steps = steps_of_unroll(name, unroll)
    columns = {key: (column.shape, column.dtype) for key, column in steps[0].items()}
    return reverb.Table.queue(name, room, signature=signature(columns, len(steps)))


def make_server(unrolls: str, room: int) -> Any:
    """All tables."""
    tables = [
        table(name, signature(columns), ATARI_CAPACITY if "atari" in name else CAPACITY)
        for name, columns in TABLES.items()
    ]
    once = {"frames": tf.TensorSpec((STACK + 1, *FRAME), np.uint8), **signature(NUMBERS)}
    tables.append(table("atari_frames", once, ATARI_CAPACITY))
    unroll = load_unrolls(unrolls)[0]
    tables += [queue(name, unroll, room) for name in ("unrolls", "unrolls_by_step")]
    return reverb.Server(tables)


def steps_of(name: str) -> list[Any]:
    """Steps for the writers of a table, made before."""
    if name == "atari_stacks":
        film = frames(ATARI_STEPS)
        return [
            {
                "obs": film[place - STACK : place],
                "obs_next": film[place - STACK + 1 : place + 1],
                **_numbers(place),
            }
            for place in range(STACK, ATARI_STEPS)
        ]
    if name == "atari_frames":
        return [
            {"frame": frame, **_numbers(place)} for place, frame in enumerate(frames(ATARI_STEPS))
        ]
    rows = transitions(2000)
    if name == "columns":
        return [{key: column[place] for key, column in rows.items()} for place in range(2000)]
    packed = np.concatenate(
        [
            rows["obs"],
            np.stack(
                [rows["action"].view(np.float32)[::2], rows["action"].view(np.float32)[1::2]]
            ).T,
            rows["reward"][:, None],
            rows["discount"][:, None],
            rows["obs_next"],
        ],
        axis=1,
    )
    return [{"packed": row} for row in packed]


def _numbers(place: int) -> dict[str, Any]:
    return {"action": np.int64(place % 6), "reward": np.float32(1), "discount": np.float32(1)}


class Client:
    """Client of one process that writes or reads.

    Args:
        address: of the server.
        unrolls: file with those of the queues.
    """

    def __init__(self, address: str, unrolls: str) -> None:
        self._address = address
        self._client = reverb.Client(address)
        self._tf_client = reverb.TFClient(address)
        self._steps: dict[str, list[Any]] = {}
        self._unrolls = load_unrolls(unrolls)
        self._queues: dict[str, Iterator[Any]] = {}

    def insert(
        self,
        *,
        table: str,
        chunk: int,
        seconds: float,
        in_flight: int = 1000,
        least: int = 0,
    ) -> Answer:
        """Appends steps and makes an item of each; done when the server has confirmed them all."""
        steps = self._steps.setdefault(table, steps_of(table))
        if table == "atari_frames":
            return self._insert_frames(steps, chunk, seconds, least)
        count = 0
        begin = time.perf_counter()
        with self._client.writer(
            chunk, chunk_length=chunk, max_in_flight_items=in_flight
        ) as writer:
            while count < least or time.perf_counter() < begin + seconds:
                writer.append(steps[count % len(steps)])
                writer.create_item(table, 1, 1.0)
                count += 1
            writer.flush()
        return {"rows": count, "seconds": time.perf_counter() - begin}

    def _insert_frames(self, steps: list[Any], chunk: int, seconds: float, least: int) -> Answer:
        """Each frame once; an item is the last five of them and one action."""
        count = 0
        begin = time.perf_counter()
        with self._client.trajectory_writer(num_keep_alive_refs=max(chunk, STACK + 1)) as writer:
            for name in steps[0]:
                writer.configure(
                    (name,), num_keep_alive_refs=max(chunk, STACK + 1), max_chunk_length=chunk
                )
            while count < least or time.perf_counter() < begin + seconds:
                writer.append(steps[count % len(steps)])
                count += 1
                if count <= STACK:
                    continue
                history = writer.history
                numbers = {name: history[name][-1:] for name in NUMBERS}
                item = {"frames": history["frame"][-STACK - 1 :], **numbers}
                writer.create_item("atari_frames", 1.0, item)
                if count % 100 == 0:
                    # Or it runs ahead without a bound.
                    writer.flush(block_until_num_items=400)
            writer.flush()
        return {"rows": count - STACK, "seconds": time.perf_counter() - begin}

    def write(self, *, table: str, in_flight: int, least: int) -> Answer:
        """Writes so many unrolls; done when the server has confirmed them all."""
        made = [steps_of_unroll(table, unroll) for unroll in self._unrolls]
        length = len(made[0])
        begin = time.perf_counter()
        with self._client.writer(
            length, chunk_length=length, max_in_flight_items=in_flight
        ) as writer:
            for number in range(least):
                for step in made[number % len(made)]:
                    writer.append(step)
                writer.create_item(table, length, 1.0)
            writer.flush()
        return {"seconds": time.perf_counter() - begin}

    def read(self, *, table: str, unrolls: int, in_flight: int, batches: int) -> Answer:
        """Takes batches of a queue, and checks their order afterwards: one worker keeps it."""
        # The same one each time: an earlier one would go on and take what is written later.
        if table not in self._queues:
            self._queues[table] = self._batches(table, unrolls, in_flight, 1)
        queue, marks = self._queues[table], []
        begin = time.perf_counter()
        for _ in range(batches):
            marks.append(next(queue).data["obs"].reshape(unrolls, -1)[:, 0].copy())
        passed = time.perf_counter() - begin
        check_order(marks, self._unrolls)
        return {"seconds": passed}

    def sample(
        self, *, table: str, batch_size: int, in_flight: int, workers: int, seconds: float
    ) -> Answer:
        """Reads batches as numpy arrays; the clock begins with the first one."""
        batches = self._batches(table, batch_size, in_flight, workers)
        next(batches)

        def work() -> int:
            next(batches)
            return batch_size

        return repeat(work, seconds)

    def prioritized(
        self, *, batch_size: int, in_flight: int, workers: int, update: bool, seconds: float
    ) -> Answer:
        """Reads batches by priority and, if asked to, gives each row a new one."""
        batches = self._batches("prioritized", batch_size, in_flight, workers)
        fresh = cycle(np.random.default_rng(0).random((64, batch_size)))
        next(batches)

        def work() -> int:
            batch = next(batches)
            if update:
                keys = batch.info.key.reshape(-1)
                self._tf_client.update_priorities("prioritized", keys, next(fresh))
            return batch_size

        return repeat(work, seconds)

    def _batches(self, table: str, batch_size: int, in_flight: int, workers: int) -> Iterator[Any]:
        data = reverb.TrajectoryDataset.from_table_signature(
            self._address,
            table,
            max_in_flight_samples_per_worker=in_flight,
            num_workers_per_iterator=workers,
        )
        batched = data.batch(batch_size, drop_remainder=True).prefetch(4)
        return iter(batched.as_numpy_iterator())


if __name__ == "__main__":
    if sys.argv[1] == "server":
        server = make_server(sys.argv[2], int(sys.argv[3]))
        serve({"port": lambda: {"port": server.port}})
    else:
        client = Client(f"localhost:{sys.argv[2]}", sys.argv[3])
        serve(
            {
                "insert": client.insert,
                "sample": client.sample,
                "prioritized": client.prioritized,
                "write": client.write,
                "read": client.read,
            }
        )
