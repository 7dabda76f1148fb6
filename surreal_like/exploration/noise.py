"""Noise on actions from -1 to 1: independent at each step, or correlated over steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.config.key import FROM_0, SHARE_ABOVE_0, Idle, Key

KINDS = ("gaussian", "ou")

NOISE_CONFIG = Config(
    {
        "kind": Key(
            "gaussian",
            "gaussian: independent at each step; ou: Ornstein-Uhlenbeck process, correlated.",
            one_of=KINDS,
        ),
        "sigma": Key(
            0.1,
            "Standard deviation of agent 0's noise per step.",
            unit="half widths of the action's bounds",
            within=FROM_0,
        ),
        "last_sigma": Key(
            0.0,
            "The same for the last agent; interpolated for agents between; 0: as agent 0.",
            within=FROM_0,
        ),
        "theta": Key(
            0.15,
            "Of ou: rate of return to 0.",
            unit="share per step",
            within=SHARE_ABOVE_0,
            idle=Idle("kind", ("gaussian",)),
        ),
    }
)

Array = npt.NDArray[np.float32]


def agent_sigma(sigma: float, last_sigma: float, agent_id: int, num_agents: int) -> float:
    """Returns sigma of one agent, interpolated from the first agent's to the last one's.

    Further agents start again at the first, so that the mixture stays the same.
    """
    if not last_sigma or num_agents <= 1:
        return sigma
    return sigma + (last_sigma - sigma) * (agent_id % num_agents) / (num_agents - 1)


class Noise:
    """Noise for the actions of N streams.

    The `ou` process is `x += theta (0 - x) + sigma g`, g standard normal, from 0 at the beginning
    of each episode: Lillicrap et al. 2016, section 7.

    Args:
        config: the keys of `NOISE_CONFIG`.
        agent_id, num_agents: determine the standard deviation.
    """

    def __init__(self, config: Mapping[str, Any], *, agent_id: int, num_agents: int) -> None:
        self.sigma = agent_sigma(config["sigma"], config["last_sigma"], agent_id, num_agents)
        self._theta: float = config["theta"]
        self._remembers = config["kind"] == "ou"
        self._state: Array = np.zeros((0, 0), np.float32)

    def draw(
        self,
        first: npt.NDArray[np.bool_],
        size: int,
        rng: np.random.Generator,
        streams: npt.NDArray[np.int64] | None = None,
    ) -> Array:
        """Draws noise, float32 `[N, size]`.

        Args:
            first: True where an episode begins, `[N]`.
            size: size of one action.
            rng: source of randomness.
            streams: numbers of the streams, whose noise is remembered, `[N]`; None: 0 to N - 1.
        """
        fresh = rng.standard_normal((len(first), size), np.float32) * np.float32(self.sigma)
        if not self._remembers:
            return fresh
        if streams is None:
            streams = np.arange(len(first))
        missing = int(streams.max(initial=-1)) + 1 - len(self._state)
        if missing > 0:
            grown = np.zeros((missing, size), np.float32)
            self._state = np.concatenate((self._state.reshape(-1, size), grown))
        before = self._state[streams]
        before[first] = 0.0
        now: Array = ((1.0 - self._theta) * before + fresh).astype(np.float32)
        self._state[streams] = now
        return now
