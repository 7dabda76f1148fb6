"""Noise on actions from -1 to 1: independent at each step, or correlated over steps."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from session.errors import ConfigError

KINDS = ("gaussian", "ou")

NOISE_CONFIG: Mapping[str, Any] = MappingProxyType(
    {
        # gaussian: independent at each step; ou: Ornstein-Uhlenbeck process, correlated.
        "kind": "gaussian",
        # Standard deviation of agent 0's noise per step [half widths of the action's bounds].
        "sigma": 0.1,
        # The same for the last agent; interpolated for agents between; 0: as agent 0.
        "last_sigma": 0.0,
        # Of ou: rate of return to 0 [share per step].
        "theta": 0.15,
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

    Raises:
        ConfigError: an unknown kind, or a number out of range.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        agent_id: int,
        num_agents: int,
        where: str = "learner_config.algo.noise",
    ) -> None:
        if config["kind"] not in KINDS:
            raise ConfigError(
                f"{where}.kind is {config['kind']!r}, expected one of {', '.join(KINDS)}"
            )
        if config["sigma"] < 0 or config["last_sigma"] < 0:
            raise ConfigError(
                f"{where} has sigma {config['sigma']} and last_sigma {config['last_sigma']}, "
                "expected 0 or more"
            )
        if not 0 < config["theta"] <= 1:
            raise ConfigError(f"{where}.theta is {config['theta']}, expected above 0, at most 1")
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
            size: of one action.
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
