"""Columns that an agent computes from its own chunk before it is sent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from session.nest import Array
from surreal_like.data.timestep import StepType
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.loss.returns import gae, lambda_returns


def compute_advantages(
    chunk: Chunk,
    values: Array | None = None,
    last_values: Array | None = None,
    *,
    gamma: float,
    lambda_: float = 1.0,
    use_gae: bool = True,
) -> Chunk:
    """Returns the chunk with columns `extras/advantages` and `extras/value_targets`.

    Float32 `[T, N]`, 0 at the last row of an episode and of the chunk. Behind a termination nothing
    follows; the end by a time limit, and the last row of the chunk, continue with their value.

    Args:
        chunk: T rows of N streams.
        values: values of the rows, `[T, N]`; None: 0.
        last_values: last values of the last row, `[N]`, where `values` does not have them.
        gamma: discount of one step.
        lambda_: 0 relies on the values, 1 on the rewards.
        use_gae: False: both columns are the discounted returns.

    Raises:
        DataError: values of another shape; names both.
    """
    step_type, reward = chunk.columns["step_type"], chunk.columns["reward"]
    known = np.zeros_like(reward)
    for name, given, place in (
        ("values", values, known),
        ("last_values", last_values, known[-1]),
    ):
        if given is None:
            continue
        if np.shape(given) != place.shape:
            raise DataError(
                f"compute_advantages: {name} are {list(np.shape(given))}, but the rewards are "
                f"{list(reward.shape)}: expected {list(place.shape)}"
            )
        place[...] = given
    goes_on = torch.from_numpy((step_type[:-1] != StepType.LAST).astype(np.float32))
    # Reward and discount of a row are of the action before it.
    rewards, discounts = (
        torch.from_numpy(chunk.columns[name][1:].astype(np.float32))
        for name in ("reward", "discount")
    )
    v = torch.from_numpy(known)
    steps = (rewards, gamma * discounts, v[:-1], v[-1])
    if use_gae:
        advantages = gae(*steps, lambda_=lambda_, mask=goes_on)
        targets = (v[:-1] + advantages) * goes_on
    else:
        advantages = targets = lambda_returns(*steps, lambda_=1.0, mask=goes_on) * goes_on
    columns = {"advantages": advantages, "value_targets": targets}
    added = {
        f"extras/{name}": np.concatenate((column.numpy(), np.zeros_like(reward[:1])))
        for name, column in columns.items()
    }
    return replace(chunk, columns={**chunk.columns, **added})
