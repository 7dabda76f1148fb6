"""Experience into replay and batches out of it, between processes, beside Reverb and id-echo.

All do the same in turn, id-echo only where batches are first in, first out (:mod:`queues`).
Ours: the process of a sender, the replay service as a run starts it, the process of a learner, over
ipc sockets. Reverb: writers and a dataset in processes of their own, over gRPC on this machine,
with the best of several settings, which are tried first. Prints tables and JSON, and writes
benchmarks/results/replay.json.

    python benchmarks/replay.py [--rounds 15] [--seconds 0.3] [--scratch FOLDER] [--no-peers]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

from compare import Found, Group, Line, Side, keep, measure
from contenders import (
    BATCH_SIZE,
    CAPACITY,
    READING,
    Ours,
    Reverb,
    best,
    reverb_both,
    reverb_in,
    reverb_out,
)
from queues import ROOM, UNROLLS, Echo, measure_queues, write_unrolls
from rows import make_columns, row_bytes
from setting import Given, arguments
from steps import STACK
from worker import WorkerFailed

ATARI_CAPACITY = 20_000
STACKS_BYTES = 2 * STACK * 84 * 84
PRIORITIZED = "PrioritizedReplay"

Peer = TypeVar("Peer")


def small_in(given: Given, ours: Ours, reverb: Reverb | None) -> Found:
    """Measures the insertion of small rows."""
    columns = make_columns("small", 100, 1)
    sides = [
        Side(
            f"steps {streams}",
            "surreal_like",
            "ExpSenderWrapper.step() for every step, chunks of 100 steps; until acked",
            partial(ours.into, "steps", kind="small", num_envs=streams),
        )
        for streams in (1, 32)
    ]
    sides += [
        Side(
            f"rows {streams}",
            "surreal_like",
            "RowBuffer.write() for every row, its chunks of 100 steps through ExpSender.send(): "
            "no environment, no account of episodes; until acked",
            partial(ours.into, "rows", kind="small", length=100, num_envs=streams),
        )
        for streams in (1, 32)
    ]
    shapes = {"100 x 1": (100, 1), "100 x 8": (100, 8), "64 x 32": (64, 32)}
    sides += [
        Side(
            f"chunks {name}",
            "surreal_like",
            "ExpSender.send() of columns that were made before; until acked",
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
                Line("the same without environment, 100 x 1", "rows 1", peers, "8 x, aim 0.6 M"),
                Line("the same without environment, 100 x 32", "rows 32", peers, "100 x, aim 10 M"),
                Line("prebuilt chunks 100 x 1", "chunks 100 x 1", peers),
                Line("prebuilt chunks 100 x 8", "chunks 100 x 8", peers),
                Line("prebuilt chunks 64 x 32", "chunks 64 x 32", peers, "aim 30 M"),
            ],
        ),
        given.rounds,
    )


def small_out(given: Given, ours: Mapping[int, Ours], reverb: Reverb | None) -> Found:
    """Measures the sampling of small transitions."""
    sides = [
        Side(
            f"{n_step}-step x {per_request}",
            "surreal_like",
            f"ReplayClient, batches of {BATCH_SIZE}, {per_request} per request, 16 under way; "
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


def small_both(given: Given, ours: Ours, reverb: Reverb | None) -> Found:
    """Measures small rows in and out at once."""
    run = partial(ours.both, 8, kind="small", num_envs=8)
    steps = "ExpSenderWrapper.step(), chunks 100 x 8; ReplayClient, eight batches per request"
    chunks = "ExpSender.send() of chunks 100 x 8 made before; the same reader"
    sides = [
        Side("steps", "surreal_like", steps, partial(run, "steps")),
        Side("chunks", "surreal_like", chunks, partial(run, "chunks", length=100)),
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


def prioritized(given: Given, ours: Ours, reverb: Reverb | None) -> Found:
    """Measures sampling by priority, with a priority update for each row."""
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


def stacked(
    run: Callable[[], float | Mapping[str, float]],
) -> Callable[[], float | Mapping[str, float]]:
    """Converts rates of rows to bytes per second of the two stacks in a transition."""

    def once() -> float | Mapping[str, float]:
        found = run()
        if isinstance(found, Mapping):
            return {name: value * STACKS_BYTES for name, value in found.items()}
        return found * STACKS_BYTES

    return once


def atari(given: Given, ours: Ours, reverb: Reverb | None) -> Found:
    """Measures stacks of four frames: in, out, and both at once.

    Raises:
        RuntimeError: the batches hold no stacks; their rate would be meaningless.
    """
    row_bytes = ours.row_bytes_out()
    if row_bytes < STACKS_BYTES:
        raise RuntimeError(
            f"rows of {row_bytes:g} bytes at the learner, stacks have {STACKS_BYTES}"
        )
    shape: dict[str, Any] = {"kind": "atari", "length": 32, "num_envs": 8}
    both = partial(ours.both, 1, "chunks", **shape)
    sends = "ExpSender.send() of chunks 32 x 8 made before, each frame once; until acked"
    reads = f"ReplayClient, batches of {BATCH_SIZE}, one per request; stacks made when sampling"
    sides = [
        Side("alone in", "surreal_like", sends, stacked(partial(ours.into, "chunks", **shape))),
        Side("alone out", "surreal_like", reads, stacked(partial(ours.out, 1))),
        Side("both", "surreal_like", f"{sends}; {reads}", stacked(both)),
    ]
    names = ("frames once", "stacks") if reverb is not None else ()
    if reverb is not None:
        sides += [side for name in names for side in reverb_atari(reverb, name)]
    lines = [
        Line(what, key, tuple(f"{name} {key}" for name in names), "1 x, aim 2 x")
        for what, key in (
            ("in", "alone in"),
            ("out", "alone out"),
            ("in, both at once", "both in"),
            ("out, both at once", "both out"),
        )
    ]
    about = (
        f"Gray frames 84 x 84, 7,056 bytes; a transition is two stacks of four, "
        f"{STACKS_BYTES:,} bytes, however they are stored and sent; {ATARI_CAPACITY:,} rows kept "
        f"(Reverb 4,000), batches of {BATCH_SIZE}, uniform, 1-step."
    )
    return measure(Group("Atari frames", "bytes/s", "more", about, sides, lines), given.rounds)


def reverb_atari(reverb: Reverb, name: str) -> list[Side]:
    """Reverb with each frame appended once, or with both stacks in each item."""
    table = {"frames once": "atari_frames", "stacks": "atari_stacks"}[name]
    chunks = (1, 5) if name == "frames once" else (1,)
    reverb.fill(table, chunks[-1], 2000)
    chunk = int(best({str(each): partial(reverb.into, table, each) for each in chunks}))
    label = f"Reverb, {name}"
    did = (
        "trajectory_writer, items over the last five frames"
        if name == "frames once"
        else "client.writer, items with both stacks"
    )
    did += f", chunks of {chunk} of {chunks}; dataset with 512 in flight, 2 workers"
    into, out = partial(reverb.into, table, chunk), partial(reverb.out, table, 512, 2)
    return [
        Side(f"{name} alone in", label, did, stacked(into)),
        Side(f"{name} alone out", label, did, stacked(out)),
        Side(f"{name} both", label, did, stacked(partial(reverb.both, table, chunk))),
    ]


def start(given: Given, name: str, make: Callable[[str], Peer]) -> Peer | None:
    """Starts a peer with its interpreter; None, and the reason in ``left_out``, if it fails."""
    try:
        return make(given.pythons[name]) if name in given.pythons else None
    except WorkerFailed as error:
        given.left_out[name] = str(error)
        return None


def main() -> None:
    """Measures, prints the tables and writes the results."""
    with arguments(__doc__, "reverb", "id-echo") as given, ExitStack() as stack:
        unrolls = write_unrolls(given.folder)
        reverb = start(
            given,
            "reverb",
            lambda python: Reverb(given, stack, python, unrolls=unrolls, room=ROOM * UNROLLS),
        )
        echo = start(given, "id-echo", lambda python: Echo(stack, python, unrolls))
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
            measure_queues(given, stack, reverb, echo),
        ]
        changes = {
            "env_config.frame_stack": STACK,
            "env_config.obs_spec": {"type": "uint8", "dim": [STACK, 84, 84]},
            "learner_config.replay.capacity": ATARI_CAPACITY,
        }
        frames = Ours(given, stack, "frames", changes)
        frames.fill(kind="atari", length=32, num_envs=8)
        groups.append(atari(given, frames, reverb))
        keep("replay", groups, given.versions, given.left_out)


if __name__ == "__main__":
    main()
