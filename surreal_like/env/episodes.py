"""Counting episodes: return, length and own metrics of N streams, per step only vector sums.

Where a game goes on after an end that counts only for learning (a lost life), what is counted is
the whole game.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from surreal_like.errors import DataError

EpisodeSummary: TypeAlias = dict[str, Any]


class EpisodeCounter:
    """Sums up the episodes of N streams.

    env_steps: environment steps of all streams so far; a FIRST row is no step.
    episodes: episodes that ended so far.
    """

    def __init__(self, num_envs: int) -> None:
        self.env_steps = 0
        self.episodes = 0
        self._returns = np.zeros(num_envs, np.float64)
        self._step = 0
        self._begun_at = np.zeros(num_envs, np.int64)
        self._has_metrics = False
        self._going_on = np.zeros(num_envs, np.bool_)
        self._metrics: list[dict[str, Any]] = [{} for _ in range(num_envs)]

    def reset(self) -> None:
        """Every stream begins an episode; those that were open are forgotten."""
        self._going_on[:] = False
        self._begin(slice(None))

    def update(
        self,
        reward: npt.NDArray[Any],
        last: npt.NDArray[np.bool_],
        first: npt.NDArray[np.bool_],
        metrics: Sequence[Mapping[str, Any] | None] | None = None,
        life_lost: npt.NDArray[np.bool_] | None = None,
    ) -> list[EpisodeSummary]:
        """Counts one vector step; gives the summaries of the episodes that it ended.

        reward: raw rewards, [N]; 0 at FIRST.
        last, first: where an episode ends, where one begins, bool [N].
        metrics: `info["metrics"]`, N dicts or None; the newest number of each name counts.
        life_lost: `info["life_lost"]`, bool [N], True where the game goes on after such an end;
            the FIRST row that follows may bring a reward to it.

        A summary has `return`, `length` (environment steps) and `metrics`; summaries are in the
        order of the streams, see :func:`ended`. Raises DataError for a metric that is no number.
        """
        self._step += 1
        begun = int(np.count_nonzero(first))
        if begun:
            self._begin(self._new(first))
        self._returns += reward
        self.env_steps += len(first) - begun
        if metrics is not None:
            self._has_metrics = True
            for kept, given in zip(self._metrics, metrics, strict=True):
                kept.update(given or ())
        if not np.count_nonzero(last):
            return []
        if life_lost is not None:
            self._going_on |= life_lost
            last = last & ~life_lost
        finished = [self._summary(stream) for stream in np.flatnonzero(last).tolist()]
        self.episodes += len(finished)
        return finished

    def _new(self, first: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Where not only an episode begins, but a game; the others have one more row of no step."""
        if not np.count_nonzero(self._going_on):
            return first
        self._begun_at[first & self._going_on] += 1
        new = first & ~self._going_on
        self._going_on[first] = False
        return new

    def _begin(self, streams: slice | npt.NDArray[np.bool_]) -> None:
        self._returns[streams] = 0.0
        self._begun_at[streams] = self._step
        if not self._has_metrics:
            return
        for stream in np.arange(len(self._metrics))[streams].tolist():
            self._metrics[stream] = {}

    def _summary(self, stream: int) -> EpisodeSummary:
        return {
            "return": float(self._returns[stream]),
            "length": int(self._step - self._begun_at[stream]),
            "metrics": {
                name: _number(name, value) for name, value in self._metrics[stream].items()
            },
        }


def ended(last: npt.NDArray[np.bool_], info: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
    """Where an episode has ended, and not only a life of it, bool [N]."""
    return last & ~info["life_lost"] if "life_lost" in info else last


def _number(name: object, value: Any) -> float:
    try:
        if isinstance(name, str) and not isinstance(value, str):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise DataError(f"info['metrics'][{name!r}] is {value!r}: expected a text and a number")


def mean_metrics(episodes: Sequence[EpisodeSummary]) -> dict[str, float]:
    """The mean of each own metric over episodes; NaN left out, absent where nothing remains."""
    values: dict[str, list[float]] = {}
    for episode in episodes:
        for name, value in episode["metrics"].items():
            if not np.isnan(value):
                values.setdefault(name, []).append(value)
    return {name: float(np.mean(each)) for name, each in values.items()}
