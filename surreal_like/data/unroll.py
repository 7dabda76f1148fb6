"""Unrolls: whole chunks laid side by side, for algorithms that learn from them in order.

A chunk of T steps of N streams holds ``T + 1`` rows: the last row is the first one of the next
chunk, where it is counted. Row t holds the reward and the discount that led to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from session.nest import Array
from surreal_like.data.frames import stack_rows
from surreal_like.data.timestep import StepType
from surreal_like.experience.chunk import LEAD_IN
from surreal_like.transform.reward import RewardTransform

Columns = Mapping[str, Array]

_OF_STEPS = ("action", "extras", "version")


class _Stack(NamedTuple):
    """Frames ``[k - 1 + T + 1, B, ...]``, and the stacks that are made of them."""

    frames: Array
    stacks: Array

    def fill(self, first: npt.NDArray[np.bool_]) -> Array:
        """Fills the stacks ``[T + 1, B, k, ...]``; ``first`` flags where episodes begin."""
        _, width, size = self.stacks.shape[:3]
        rows = stack_rows(first, size) + (size - 1)
        places = rows * width + np.arange(width)[:, None]
        flat = self.frames.reshape(-1, *self.frames.shape[2:])
        # With a mode that checks indices numpy would fill a copy first.
        return flat.take(places, axis=0, out=self.stacks, mode="clip")


class UnrollBuffer:
    """Lays unrolls side by side, in memory that is reused for each batch.

    Args:
        gamma: discount per step, multiplied with the environment's own.
        transform: of single rewards.
    """

    def __init__(self, gamma: float, *, transform: RewardTransform | None = None) -> None:
        self._gamma = np.float32(gamma)
        self._transform = transform or RewardTransform()
        self._columns: dict[str, Array] = {}
        self._stacks: dict[str, _Stack] = {}

    def lay(self, unrolls: Sequence[Columns]) -> dict[str, Array]:
        """Returns one batch of unrolls, valid until the next call.

        Args:
            unrolls: columns ``[T + 1, N, ...]`` each, of one T and the same columns; where
                observations are stacks of k frames also ``lead_in/<column>``, ``[k - 1, N, ...]``.

        Returns:
            Time first. ``obs`` (``obs/<path>``) and ``first`` bool (an episode begins there)
            ``[T + 1, B, ...]`` (stacks ``[T + 1, B, k, ...]``); ``actions``, ``extras/<name>`` and
            ``version`` ``[T, B, ...]``; ``rewards`` of the actions, ``discounts`` (gamma included),
            ``dones`` (1 where the step ends in a termination) and ``mask`` (0 at rows that no
            action was taken from: an episode had ended) float32 ``[T, B]``.
        """
        width = sum(unroll["step_type"].shape[1] for unroll in unrolls)
        self._open(unrolls[0], width)
        at = 0
        for unroll in unrolls:
            streams = unroll["step_type"].shape[1]
            for name, column in self._columns.items():
                column[:, at : at + streams] = unroll[name]
            at += streams
        return self._batch()

    def _open(self, unroll: Columns, width: int) -> None:
        known = self._columns
        fits = known.keys() == unroll.keys() and all(
            known[name].shape == (len(column), width, *column.shape[2:])
            and known[name].dtype == column.dtype
            for name, column in unroll.items()
        )
        if not fits:
            self._columns = {
                name: np.empty((len(column), width, *column.shape[2:]), column.dtype)
                for name, column in unroll.items()
            }
            self._stacks = {
                name.removeprefix(LEAD_IN): self._open_stack(name.removeprefix(LEAD_IN))
                for name in unroll
                if name.startswith(LEAD_IN)
            }

    def _open_stack(self, name: str) -> _Stack:
        """Places lead-in and rows of one column one after the other, and allocates the stacks."""
        lead, column = self._columns[LEAD_IN + name], self._columns[name]
        frames = np.empty((len(lead) + len(column), *column.shape[1:]), column.dtype)
        self._columns[LEAD_IN + name], self._columns[name] = (
            frames[: len(lead)],
            frames[len(lead) :],
        )
        stacks = np.empty((*column.shape[:2], len(lead) + 1, *column.shape[2:]), column.dtype)
        return _Stack(frames, stacks)

    def _batch(self) -> dict[str, Array]:
        columns = self._columns
        step_type, discount = columns["step_type"], columns["discount"][1:]
        last = step_type[1:] == StepType.LAST
        batch: dict[str, Array] = {
            "first": step_type == StepType.FIRST,
            "rewards": self._transform(columns["reward"][1:]),
            "discounts": self._gamma * discount,
            "dones": (last & (discount == 0.0)).astype(np.float32),
            "mask": (step_type[:-1] != StepType.LAST).astype(np.float32),
        }
        for name, column in columns.items():
            kind, slash, path = name.partition("/")
            if name in self._stacks:
                batch[name] = self._stacks[name].fill(batch["first"])
            elif kind == "obs":
                batch[name] = column
            elif kind in _OF_STEPS:
                name = f"actions{slash}{path}" if kind == "action" else name
                batch[name] = column[:-1]
        return batch
