"""Rows of the streams that have an observation now."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from session import nest
from session.nest import Nest
from surreal_like.data.timestep import Flags


class Rows(NamedTuple):
    """Rows of the streams of a policy that have an observation now, one per stream.

    Args:
        streams: number of the stream of each row, int64 ``[n]``.
        obs: nest of arrays ``[n, ...]``, at an end the true last observation.
        reward: sum of what the agent has got since its last action, float32 ``[n]``.
        terminated, truncated: flags of the agent, bool ``[n]``.
        first: True where an episode of the agent begins, bool ``[n]``.
        steps: steps of the environment that the row stands for, int64 ``[n]``: of all rows of a
            step of a copy, the first one that is no FIRST row counts it, of a policy that learns.
    """

    streams: npt.NDArray[np.int64]
    obs: Nest
    reward: npt.NDArray[np.float32]
    terminated: Flags
    truncated: Flags
    first: Flags
    steps: npt.NDArray[np.int64]

    def select(self, chosen: Flags) -> Rows:
        """Returns the rows where ``chosen``, bool ``[n]``, is True."""
        obs = nest.map(lambda leaf: leaf[chosen], self.obs)
        return Rows._make(obs if each is self.obs else each[chosen] for each in self)
