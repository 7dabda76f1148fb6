"""Chunks for tests: written as text, or made by streams that run at random."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from surreal_like.experience.chunk import Chunk

# F first, M mid, T last by termination, U last by truncation.
_STEP_TYPE = {"F": 0, "M": 1, "T": 2, "U": 2}

# Every way in which rows of a stream can end.
EPISODES = {
    "termination": "FMMMMMT",
    "truncation": "FMMMMMU",
    "cut": "FMMMMM",
    "one step, termination": "FTFTF",
    "one step, truncation": "FUFUFM",
    "all of them": "FMTFMMUFTFUFMM",
}


def columns_of(
    texts: Sequence[str], *, first_id: int = 0, rewards: Sequence[float] | None = None
) -> dict[str, npt.NDArray[Any]]:
    """Columns ``[T, N]``; each text is a stream, each letter a row, each row has an id of its own.

    Args:
        texts: equally long, such as ``FMMT``.
        first_id: of row (0, 0); it stands in ``obs``, ``action`` and ``extras/id``.
        rewards: one per time step, 1 by default; 0 at FIRST in any case.
    """
    letters = np.array([list(text) for text in texts]).T
    ids = first_id + np.arange(letters.size).reshape(letters.shape)
    reward = np.ones(letters.shape) if rewards is None else np.array(rewards)[:, None]
    step_type = np.vectorize(_STEP_TYPE.__getitem__)(letters).astype(np.uint8)
    return {
        "step_type": step_type,
        "reward": np.where(step_type == 0, 0, reward).astype(np.float32),
        "discount": np.where(letters == "T", 0, 1).astype(np.float32),
        "version": ids // 10,
        "obs/image": (ids[..., None, None] % 251 + np.zeros((2, 2))).astype(np.uint8),
        "obs/position": np.stack([ids, -ids], axis=-1).astype(np.float32),
        "action": ids.copy(),
        "extras/id": ids.astype(np.float64),
    }


def chunk_of(
    *texts: str,
    sequence: int = 1,
    streams: Sequence[int] | None = None,
    sender: str = "agent-0",
    incarnation: int = 1,
    tail: bool = False,
    first_id: int = 0,
    rewards: Sequence[float] | None = None,
) -> Chunk:
    """A chunk of these streams; see :func:`columns_of`."""
    ids = list(streams) if streams is not None else list(range(len(texts)))
    return Chunk(
        columns_of(texts, first_id=first_id, rewards=rewards),
        sequence,
        ids,
        sender=sender,
        incarnation=incarnation,
        tail=tail,
    )


class Sender:
    """An agent whose streams end their episodes at random and whose chunks may get lost.

    Args:
        name: of the sender.
        streams: how many it has.
        random: what decides.
        ids: gives each row an id.
    """

    def __init__(self, name: str, streams: int, random: Random, ids: Iterator[int]) -> None:
        self._name = name
        self._random = random
        self._ids = ids
        self._width = streams
        self._incarnation = 0
        self.rows = 0
        self.restart()

    def restart(self) -> None:
        """A new incarnation: all episodes begin anew."""
        self._incarnation += 1
        self._sequence = 0
        self._generation = 0
        self.rows = 0
        self._ended = [True] * self._width

    def move(self) -> None:
        """The sender goes on in the middle of its episodes under new stream ids."""
        self._generation += 1

    def cut(self, steps: int, *, tail: bool = False) -> Chunk:
        """The next chunk."""
        texts = ["".join(self._step(stream) for _ in range(steps)) for stream in range(self._width)]
        self._sequence += 1
        self.rows += steps * self._width
        first_id = next(self._ids)
        for _ in range(steps * self._width - 1):
            next(self._ids)
        chunk = chunk_of(
            *texts,
            sequence=self._sequence,
            streams=[100 * self._generation + stream for stream in range(self._width)],
            sender=self._name,
            incarnation=self._incarnation,
            tail=tail,
            first_id=first_id,
            rewards=[self._random.randint(-3, 3) for _ in range(steps)],
        )
        chunk.rows = self.rows
        if tail:
            self.move()
        return chunk

    def _step(self, stream: int) -> str:
        if self._ended[stream]:
            self._ended[stream] = False
            return "F"
        letter = self._random.choice("MMMMTU")
        self._ended[stream] = letter in "TU"
        return letter


def counting() -> Iterator[int]:
    """Row ids 1, 2, 3, ..."""
    return itertools.count(1)
