"""Replay inside one process, no socket: our storage against cpprb, TorchRL, stable-baselines3.

Each side runs in a process of its own, in turn. Prints tables and JSON, and writes
benchmarks/results/storage.json.

    python benchmarks/storage.py [--rounds 15] [--seconds 0.2] [--scratch FOLDER] [--no-peers]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from compare import Found, Group, Line, Side, keep, measure
from setting import Given, arguments
from worker import Worker, WorkerFailed

HERE = Path(__file__).resolve().parent
LABELS = {"cpprb": "cpprb", "torchrl": "TorchRL", "sb3": "stable-baselines3"}
BATCH_SIZE = 256
FRAMES = 100_000


class Processes:
    """One process for each side.

    Args:
        given: the command line.
        stack: closes the processes.
    """

    def __init__(self, given: Given, stack: ExitStack) -> None:
        self._seconds = given.seconds
        words = {"ours": (sys.executable, str(HERE / "ours" / "stored.py"))} | {
            peer: (python, str(HERE / "peers" / f"{peer}_rounds.py"))
            for peer, python in given.pythons.items()
        }
        self._workers = {
            library: stack.enter_context(Worker(*each)) for library, each in words.items()
        }
        self._left_out = given.left_out

    def side(
        self, library: str, do: str, did: str, words: Mapping[str, int], *, key: str = ""
    ) -> list[Side]:
        """Returns that side, or nothing if it does not support the operation."""
        if library not in self._workers:
            return []
        try:
            self._workers[library].ask(do, **words, seconds=0.01)
        except WorkerFailed as error:
            self._left_out[f"{library} {do}"] = str(error)
            return []
        label = LABELS.get(library, "surreal_like")
        return [Side(key or library, label, did, self._round(library, do, words))]

    def _round(self, library: str, do: str, words: Mapping[str, int]) -> Callable[[], float]:
        def once() -> float:
            answer = self._workers[library].ask(do, **words, seconds=self._seconds)
            return float(answer["rows"] / answer["seconds"])

        return once


def added(processes: Processes, length: int, num_envs: int) -> Group:
    """Measures the insertion of rows."""
    shape = {"length": length, "num_envs": num_envs}
    sides = [
        *processes.side("ours", "add", "UniformReplay.insert of one chunk", shape),
        *processes.side("cpprb", "add", "ReplayBuffer.add of as many transitions", shape),
        *processes.side("torchrl", "add", "extend of as many, LazyTensorStorage", shape),
        *processes.side("sb3", "add", "ReplayBuffer.add, all environments at a time", shape),
    ]
    return Group(
        f"In, inside one process, {length} x {num_envs}",
        "rows/s",
        "more",
        f"{length * num_envs:,} rows of CartPole's columns at a time, made before; "
        "ours 41 bytes a row, checked and linked, the peers' 48 bytes a transition.",
        sides,
        [Line(f"chunk of {length} x {num_envs}", "ours", tuple(LABELS))],
    )


def sampled(processes: Processes) -> Group:
    """Measures the sampling of batches."""
    one, three = {"batch_size": BATCH_SIZE}, {"batch_size": BATCH_SIZE, "n_step": 3}
    later = "the same, 3-step sums made when sampling"
    before = "the same, 3-step sums made when adding"
    sides = [
        *processes.side("ours", "sample", "UniformReplay.sample_columns", one, key="ours 1"),
        *processes.side("ours", "sample", later, three, key="ours 3"),
        *processes.side("cpprb", "sample", "ReplayBuffer.sample", one, key="cpprb 1"),
        *processes.side("cpprb", "sample", before, three, key="cpprb 3"),
        *processes.side("torchrl", "sample", "TensorDictReplayBuffer.sample", one),
        *processes.side("sb3", "sample", "ReplayBuffer.sample", one),
    ]
    return Group(
        "Out, inside one process",
        "rows/s",
        "more",
        f"Uniform, batches of {BATCH_SIZE} out of 100,000 rows.",
        sides,
        [
            Line("1-step", "ours 1", ("cpprb 1", "torchrl", "sb3")),
            Line("3-step", "ours 3", ("cpprb 3",)),
        ],
    )


def by_priority(processes: Processes) -> Group:
    """Measures sampling by priority with priority updates."""
    words, do = {"batch_size": BATCH_SIZE}, "prioritized"
    sides = [
        *processes.side("ours", do, "PrioritizedReplay: sample, update_priorities", words),
        *processes.side("cpprb", do, "PrioritizedReplayBuffer: sample, update_priorities", words),
        *processes.side("torchrl", do, "TensorDictPrioritizedReplayBuffer: the same", words),
    ]
    return Group(
        "Prioritized, inside one process",
        "rows/s",
        "more",
        f"Sample + update, batches of {BATCH_SIZE} out of 100,000 rows, alpha 0.6, beta 0.4.",
        sides,
        [Line("sample + update", "ours", ("cpprb", "torchrl"))],
    )


def remembered() -> Group:
    """Measures the memory of frames that are stored once."""

    def ours() -> float:
        # A new process each time: it would reuse memory that an earlier measurement freed.
        with Worker(sys.executable, str(HERE / "ours" / "stored.py")) as worker:
            return float(worker.ask("memory", frames=FRAMES)["bytes"])

    twice = FRAMES * 2 * 4 * 84 * 84
    sides = [
        Side("ours", "surreal_like", "growth of a process that fills a UniformReplay", ours),
        Side("twice", "both stacks in each row", "arithmetic: 2 x 4 x 84 x 84", lambda: twice),
    ]
    about = f"{FRAMES:,} rows of Atari, gray 84 x 84, sampled as transitions of two stacks of four."
    line = Line("all rows", "ours", ("twice",), "1/4, aim 1/7.5")
    return Group("Memory", "bytes", "less", about, sides, [line])


def main() -> None:
    """Measures, prints the tables and writes the results."""
    with arguments(__doc__, *LABELS, seconds=0.2) as given, ExitStack() as stack:
        processes = Processes(given, stack)
        groups = [
            added(processes, 100, 1),
            added(processes, 64, 32),
            sampled(processes),
            by_priority(processes),
        ]
        found: list[Found] = [measure(group, given.rounds) for group in groups]
        # Three rounds: the result is the same each time.
        found.append(measure(remembered(), 3))
        keep("storage", found, given.versions, given.left_out)


if __name__ == "__main__":
    main()
