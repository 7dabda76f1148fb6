"""Frames of Atari's size into replay, and stacks of them out of it; part of :mod:`replay`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from compare import Found, Group, Line, Side, measure
from contenders import BATCH_SIZE, Ours, Reverb, best
from setting import Given
from steps import STACK

ATARI_CAPACITY = 20_000
STACKS_BYTES = 2 * STACK * 84 * 84


def stacked(run: Callable[[], float]) -> Callable[[], float]:
    """Converts a rate of rows to bytes per second of the two stacks in a transition."""
    return lambda: run() * STACKS_BYTES


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

    def both() -> Mapping[str, float]:
        into, out = ours.both(1, "chunks", **shape)
        return {"in": into * STACKS_BYTES, "out": out * STACKS_BYTES}

    sends = "ExpSender.send() of chunks 32 x 8 made before, each frame once; until acked"
    reads = f"ReplayClient, batches of {BATCH_SIZE}, one per request; stacks made when sampling"
    sides = [
        Side("alone in", "surreal_like", sends, stacked(partial(ours.into, "chunks", **shape))),
        Side("alone out", "surreal_like", reads, stacked(partial(ours.out, 1))),
        Side("both", "surreal_like", f"{sends}; {reads}", both),
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

    def both() -> Mapping[str, float]:
        into, out = reverb.both(table, chunk, 512, 2)
        return {"in": into * STACKS_BYTES, "out": out * STACKS_BYTES}

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
        Side(f"{name} both", label, did, both),
    ]
