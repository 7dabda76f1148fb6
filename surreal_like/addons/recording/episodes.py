"""Episodes of a recording, put together from the rows of its chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from session import nest
from session.nest import Array
from surreal_like.data.timestep import FIRST, LAST
from surreal_like.experience.chunk import Chunk


@dataclass(frozen=True, slots=True)
class Episode:
    """T steps of one episode.

    Args:
        observations: nest of arrays ``[T + 1, ...]``: before each step, and after the last one.
        actions: nest of arrays ``[T, ...]``.
        rewards: ``[T]``, float32.
        terminated: True if the task itself ended.
        truncated: True if the episode was cut off by its environment.
        begun: False if its beginning is not recorded.
        versions: versions of the parameters that acted, ``[T]``, int64.
        extras: nest of the further columns, ``[T, ...]``.
        sender, incarnation, stream: what has played it.
    """

    observations: Any
    actions: Any
    rewards: npt.NDArray[np.float32]
    terminated: bool
    truncated: bool
    begun: bool
    versions: npt.NDArray[np.int64]
    extras: Any
    sender: str
    incarnation: int
    stream: int

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def end(self) -> str:
        """``terminated``, ``truncated``, or ``cut`` where the end is not recorded."""
        return "terminated" if self.terminated else "truncated" if self.truncated else "cut"

    @property
    def complete(self) -> bool:
        """True if beginning and end are recorded."""
        return self.begun and self.end != "cut"

    @property
    def total_reward(self) -> float:
        """Sum of the rewards."""
        return float(self.rewards.sum(dtype=np.float64))


Columns = dict[str, Array]
# Before and after a step.
_LEAST_ROWS = 2


@dataclass(slots=True)
class _Stream:
    """Rows of a stream whose episode goes on, and the row with which its next chunk begins."""

    parts: list[Columns] = field(default_factory=list)
    overlap: Columns = field(default_factory=dict)


class EpisodeReader:
    """Puts episodes together from chunks in the order in which a shard has accepted them."""

    def __init__(self) -> None:
        # Sender -> number of its newest chunk.
        self._newest: dict[tuple[str, int], int] = {}
        self._streams: dict[tuple[str, int, int], _Stream] = {}

    def read(self, chunk: Chunk) -> Iterator[Episode]:
        """Yields the episodes that end in a chunk, or that it does not go on with."""
        sender = chunk.sender, chunk.incarnation
        if chunk.sequence != self._newest.get(sender, 0) + 1:
            # Chunks between are missing, so that no stream goes on.
            yield from self._end_all(sender)
        self._newest[sender] = chunk.sequence
        columns, steps = chunk.columns, chunk.columns["step_type"]
        for index, number in enumerate(chunk.streams):
            stream = self._streams.setdefault((*sender, number), _Stream())
            last = np.flatnonzero(steps[: chunk.length, index] == LAST).tolist()
            begin = 0
            for end in (*(at + 1 for at in last), chunk.length):
                if begin < end:
                    rows = {name: column[begin:end, index] for name, column in columns.items()}
                    stream.parts.append(rows)
                if end - 1 in last:
                    yield from _finish(stream, *sender, number)
                begin = end
            rest = {name: column[chunk.length :, index] for name, column in columns.items()}
            stream.overlap = rest if chunk.overlap else {}
            if chunk.tail:
                yield from self._end(sender, number)

    def end(self) -> Iterator[Episode]:
        """Yields the episodes that go on where the recording ends."""
        for sender in list(self._newest):
            yield from self._end_all(sender)

    def _end_all(self, sender: tuple[str, int]) -> Iterator[Episode]:
        for name, incarnation, number in list(self._streams):
            if (name, incarnation) == sender:
                yield from self._end(sender, number)

    def _end(self, sender: tuple[str, int], number: int) -> Iterator[Episode]:
        stream = self._streams.pop((*sender, number))
        if stream.parts and stream.overlap:
            stream.parts.append(stream.overlap)
        yield from _finish(stream, *sender, number)


def _finish(stream: _Stream, sender: str, incarnation: int, number: int) -> Iterator[Episode]:
    """Yields the episode of the rows of a stream, if there is a step in them."""
    parts, stream.parts, stream.overlap = stream.parts, [], {}
    rows = sum(len(each["reward"]) for each in parts)
    if rows < _LEAST_ROWS:
        return
    columns = {
        name: parts[0][name] if len(parts) == 1 else np.concatenate([part[name] for part in parts])
        for name in parts[0]
    }
    last = columns["step_type"][-1] == LAST
    yield Episode(
        observations=nest.unflatten(columns, "obs"),
        actions=nest.map(_but_last, nest.unflatten(columns, "action")),
        rewards=columns["reward"][1:],
        terminated=bool(last and not columns["discount"][-1]),
        truncated=bool(last and columns["discount"][-1]),
        begun=bool(columns["step_type"][0] == FIRST),
        versions=columns["version"][:-1],
        extras=nest.map(_but_last, nest.unflatten(columns, "extras")),
        sender=sender,
        incarnation=incarnation,
        stream=number,
    )


def _but_last(column: Array) -> Array:
    return column[:-1]
