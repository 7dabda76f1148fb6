"""Rule that weights experience by the age of the policy that acted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Versions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AgeRule:
    """Draws experience in proportion to ``0.5 ** (age / half_life_versions)``, or not at all.

    Its age is the number of versions by which the parameters that acted are behind the newest.

    Args:
        max_versions: highest age that is drawn, 0 for no bound.
        half_life_versions: age at which the weight has fallen to a half, 0 for equal weights.
    """

    max_versions: int = 0
    half_life_versions: float = 0.0

    @classmethod
    def of(cls, replay_config: Mapping[str, Any]) -> AgeRule:
        """Returns the rule of ``learner_config.replay.age``."""
        return cls(**replay_config["age"])

    @property
    def matters(self) -> bool:
        """False if all weights are equal, whatever the age."""
        return self.max_versions > 0 or self.half_life_versions > 0.0

    def log_weights(self, versions: Versions, newest_version: int) -> npt.NDArray[np.float64]:
        """Natural logarithms of the weights, ``-inf`` for rows not drawn; shape of ``versions``.

        Versions above ``newest_version`` have age 0: the newest may not have been reported yet.
        """
        ages = np.maximum(newest_version - versions, 0)
        half_life = self.half_life_versions
        logs = ages * (-np.log(2.0) / half_life) if half_life else np.zeros(ages.shape)
        if self.max_versions:
            logs[ages > self.max_versions] = -np.inf
        return logs
