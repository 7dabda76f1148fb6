"""The rows that our side is measured with: CartPole's columns, and frames of Atari's shape."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
from steps import EPISODE_ROWS, frames

from session.nest import Array
from surreal_like.data.timestep import StepType, discounts, step_types
from surreal_like.env.environment import Info, VectorEnv, VectorStep

Columns = dict[str, Array]

OBS_SPEC = {"small": {"type": "float32", "dim": [4]}, "atari": {"type": "uint8", "dim": [84, 84]}}
ACTION_SPEC = {"type": "discrete", "dim": [2]}
CHUNKS_MADE = 8


def observations(kind: str, length: int, streams: int, seed: int) -> Array:
    """``[T, N, 4]`` float32, or ``[T, N, 84, 84]`` uint8."""
    if kind == "atari":
        return frames(length * streams, seed).reshape(length, streams, 84, 84)
    generator = np.random.default_rng(seed)
    return generator.standard_normal((length, streams, 4), dtype=np.float32)


def make_columns(
    kind: str,
    length: int,
    streams: int,
    seed: int = 0,
    *,
    begin: int = 0,
    episode_rows: int = EPISODE_ROWS,
) -> Columns:
    """The columns of one chunk, ``[T, N, ...]``; the streams are out of step.

    Args:
        kind: of the observations.
        length, streams: T and N.
        seed: of observations and actions.
        begin: row of the streams at which the chunk begins. Where two chunks meet the episodes
            need not fit: nothing reads across that is not there.
        episode_rows: rows of an episode.
    """
    place = (begin + np.arange(length)[:, None] + np.arange(streams)) % episode_rows
    first, last = place == 0, place == episode_rows - 1
    generator = np.random.default_rng(seed)
    return {
        "obs": observations(kind, length, streams, seed),
        "action": generator.integers(0, 2, (length, streams)),
        "reward": np.where(first, 0.0, 1.0).astype(np.float32),
        "step_type": step_types(first, last, np.zeros_like(last)),
        "discount": discounts(last),
        "version": np.zeros((length, streams), np.int64),
    }


def make_chunks(kind: str, length: int, streams: int) -> list[Columns]:
    """The columns of different chunks, to be sent in turn; see :func:`make_columns`."""
    return [make_columns(kind, length, streams, seed) for seed in range(CHUNKS_MADE)]


def row_bytes(columns: Columns) -> int:
    """Payload of one row."""
    return sum(column[0, 0].nbytes for column in columns.values())


class Played(VectorEnv):
    """N streams whose steps have been made before, so that stepping them costs next to nothing.

    Args:
        kind: ``small`` or ``atari``.
        num_envs: N.
    """

    def __init__(self, kind: str, num_envs: int) -> None:
        self.num_envs = num_envs
        self.obs_spec = OBS_SPEC[kind]
        self.action_spec = ACTION_SPEC
        columns = make_columns(kind, EPISODE_ROWS * 5, num_envs)
        step_type = columns["step_type"]
        never = np.zeros(num_envs, np.bool_)
        self._steps: list[VectorStep] = [
            (obs, reward, last, never, {})
            for obs, reward, last in zip(
                columns["obs"], columns["reward"], step_type == StepType.LAST, strict=True
            )
        ]
        self._next = cycle(self._steps).__next__

    def reset(self) -> tuple[Any, Info]:
        """The first observations."""
        self._next = cycle(self._steps).__next__
        return self._next()[0], {}

    def step(self, actions: Array) -> VectorStep:
        """The next step, whatever the actions are."""
        return self._next()
