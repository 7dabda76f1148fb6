"""Our replay inside one process, without any socket. Rounds of :mod:`worker`.

python stored.py
"""

from __future__ import annotations

import sys
from itertools import cycle
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "peers")]

import numpy as np  # noqa: E402
import psutil  # noqa: E402
from rows import make_chunks, make_columns  # noqa: E402
from services import make_replay  # noqa: E402
from steps import STACK, check_order  # noqa: E402
from worker import Answer, repeat, serve  # noqa: E402

from surreal_like.experience.chunk import Chunk  # noqa: E402
from surreal_like.replay.kinds import FIFOReplay, PrioritizedReplay, UniformReplay  # noqa: E402
from surreal_like.replay.table import Table  # noqa: E402

CAPACITY = 100_000


class Stored:
    """Replays by kind and n, made when they are asked for and filled once."""

    def __init__(self) -> None:
        self._replays: dict[tuple[bool, int], Table] = {}
        self._queue: FIFOReplay | None = None
        self._sequence = 0

    def _replay(self, *, prioritized: bool, n_step: int) -> Table:
        key = (prioritized, n_step)
        if key not in self._replays:
            changes: dict[str, Any] = {
                "learner_config.replay.capacity": CAPACITY,
                "learner_config.algo.n_step": n_step,
            }
            kind: type[Table] = PrioritizedReplay if prioritized else UniformReplay
            replay = make_replay(kind, changes)
            self._replays[key] = replay
            self._insert(replay, make_columns("small", 100, 32), CAPACITY // 3200 + 2)
        return self._replays[key]

    def queue(
        self, *, changes: dict[str, Any], length: int, num_envs: int, unrolls: int, seconds: float
    ) -> Answer:
        """Inserts the unrolls of a batch and takes them out; checks their order afterwards."""
        made = make_chunks("small", length, num_envs)
        replay = self._queue = self._queue or make_replay(FIFOReplay, changes)
        source, marks = cycle(made), []

        def work() -> int:
            for _ in range(unrolls):
                self._insert(replay, next(source), 1)
            batch = replay.sample_columns(unrolls * num_envs)
            marks.append(batch["obs"][0, ::num_envs, 0].copy())
            return unrolls * (length - 1) * num_envs

        answer = repeat(work, seconds)
        check_order(marks, made)
        return answer

    def _insert(self, replay: Table, columns: dict[str, np.ndarray], count: int) -> None:
        streams = list(range(columns["reward"].shape[1]))
        for _ in range(count):
            self._sequence += 1
            replay.insert(Chunk(columns, self._sequence, streams, sender="agent-0"))

    def memory(self, *, frames: int) -> Answer:
        """Fills a replay of stacks of four frames; how much larger this process has become."""
        changes = {"learner_config.replay.capacity": frames, "env_config.frame_stack": STACK}
        columns = make_columns("atari", 32, 8)
        before = psutil.Process().memory_info().rss
        replay = make_replay(UniformReplay, changes)
        self._insert(replay, columns, -(-frames // 256))
        batch = replay.sample_columns(1)
        if batch["obs"].shape != (1, STACK, 84, 84):
            raise RuntimeError(f"no stacks: {batch['obs'].shape}")
        del batch
        return {"bytes": psutil.Process().memory_info().rss - before}

    def add(self, *, length: int, num_envs: int, seconds: float) -> Answer:
        """Inserts chunks."""
        replay = self._replay(prioritized=False, n_step=1)
        columns = make_columns("small", length, num_envs)

        def work() -> int:
            self._insert(replay, columns, 1)
            return length * num_envs

        return repeat(work, seconds)

    def sample(self, *, batch_size: int, seconds: float, n_step: int = 1) -> Answer:
        """Draws and gathers batches."""
        replay = self._replay(prioritized=False, n_step=n_step)

        def work() -> int:
            replay.sample_columns(batch_size)
            return batch_size

        return repeat(work, seconds)

    def prioritized(self, *, batch_size: int, seconds: float) -> Answer:
        """Draws and gathers batches by priority, and gives each row a new one."""
        replay = self._replay(prioritized=True, n_step=1)
        fresh = cycle(np.random.default_rng(0).random((64, batch_size), np.float32))

        def work() -> int:
            batch = replay.sample_columns(batch_size)
            replay.update_priorities(batch["indices"], next(fresh))
            return batch_size

        return repeat(work, seconds)


if __name__ == "__main__":
    stored = Stored()
    serve(
        {
            "add": stored.add,
            "queue": stored.queue,
            "sample": stored.sample,
            "prioritized": stored.prioritized,
            "memory": stored.memory,
        }
    )
