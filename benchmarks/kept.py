"""Rows in memory that outlives their process, beside rows in memory of the process alone.

The same replay service twice, with session_config.replay.keep process and none: experience in and
batches out, between processes over ipc sockets. Prints tables and JSON, and writes
benchmarks/results/kept.json.

    python benchmarks/kept.py [--rounds 15] [--seconds 0.3]
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from compare import Found, Group, Line, Side, keep, measure
from contenders import BATCH_SIZE, Ours
from setting import Given, arguments
from steps import STACK

KEEPS = ("process", "none")
ROWS, FRAMES = 1_000_000, 20_000
SMALL: dict[str, Any] = {"kind": "small", "length": 100, "num_envs": 32}
ATARI: dict[str, Any] = {"kind": "atari", "length": 32, "num_envs": 8}


def both_ways(
    given: Given, name: str, about: str, changes: dict[str, Any], shape: dict[str, Any], fills: int
) -> Found:
    """Measures one kind of rows, in and out, with both settings."""
    with ExitStack() as stack:
        ours = {}
        for how in KEEPS:
            settings = {**changes, "session_config.replay.keep": how}
            ours[how] = Ours(given, stack, f"{name}-{how}", settings)
            for _ in range(fills):
                ours[how].fill(**shape)
        runs: dict[str, Callable[[Ours], Callable[[], float]]] = {
            "in": lambda each: partial(each.into, "chunks", **shape),
            "out": lambda each: partial(each.out, 1),
            "out, eight batches per request": lambda each: partial(each.out, 8),
        }
        if "learner_config.replay.type" in changes:
            runs["out and new priorities"] = lambda each: partial(each.out, 8, "priorities")
        sides = [
            Side(f"{what}, {how}", f"keep: {how}", about, make(ours[how]))
            for what, make in runs.items()
            for how in KEEPS
        ]
        lines = [
            Line(what, f"{what}, process", (f"{what}, none",), "0.95 x, aim 0.98 x")
            for what in runs
        ]
        text = f"{about}; batches of {BATCH_SIZE}."
        return measure(Group(name, "rows/s", "more", text, sides, lines), given.rounds)


def main() -> None:
    """Measures, prints the tables and writes the results."""
    frames = {
        "env_config.frame_stack": STACK,
        "learner_config.replay.capacity": FRAMES,
    }
    small = {"learner_config.replay.capacity": ROWS}
    by_priority = {**small, "learner_config.replay.type": "PrioritizedReplay"}
    with arguments(__doc__) as given:
        groups = [
            both_ways(given, "Kept rows", f"CartPole's columns, {ROWS:,} rows", small, SMALL, 4),
            both_ways(
                given, "Kept rows by priority", f"the same, {ROWS:,} rows", by_priority, SMALL, 4
            ),
            both_ways(
                given,
                "Kept frames",
                f"Gray frames 84 x 84 in stacks of {STACK}, {FRAMES:,} rows",
                frames,
                ATARI,
                1,
            ),
        ]
        keep("kept", groups, given.versions, given.left_out)


if __name__ == "__main__":
    main()
