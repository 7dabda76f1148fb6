"""Counting of episodes: return, length and own metrics of N streams, per step only vector sums.

If a game goes on after an end that counts only for learning (a lost life), the whole game is
counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from surreal_like.errors import DataError

EpisodeSummary: TypeAlias = dict[str, Any]

# Metric of an episode that an error of its environment has cut short; 1.
CUT_SHORT = "cut_short"

# Rewards are added up when an episode ends or begins, or after this number of steps.
_ADD_UP = 256


class EpisodeCounter:
    """Sums up the episodes of N streams.

    env_steps: environment steps of all streams so far; a FIRST row is no step.
    episodes: episodes that ended so far.
    """

    def __init__(self, num_envs: int) -> None:
        self.env_steps = 0
        self.episodes = 0
        self._returns = np.zeros(num_envs, np.float64)
        self._rewards: list[npt.NDArray[Any]] = []
        self._step = 0
        self._beginning = 0
        self._begun_at = [0] * num_envs
        self._has_metrics = False
        self._metrics: list[dict[str, Any]] = [{} for _ in range(num_envs)]

    def reset(self) -> None:
        """Begins an episode in every stream; open episodes are discarded."""
        self._beginning = 0
        self._rewards.clear()
        self._returns[:] = 0.0
        self._begun_at = [self._step] * len(self._begun_at)
        self._metrics = [{} for _ in self._metrics]

    def discard(self) -> None:
        """Counts one vector step that ends every stream; open episodes are discarded.

        As after an end, the next row of each stream is FIRST, and no step.
        """
        self._step += 1
        self.env_steps += len(self._begun_at) - self._beginning
        self._beginning = len(self._begun_at)
        self._rewards.clear()
        self._returns[:] = 0.0
        self._begun_at = [self._step + 1] * len(self._begun_at)
        self._metrics = [{} for _ in self._metrics]

    def update(
        self,
        reward: npt.NDArray[Any],
        last: npt.NDArray[np.bool_],
        metrics: Sequence[Mapping[str, Any] | None] | None = None,
        life_lost: npt.NDArray[np.bool_] | None = None,
        *,
        begun: bool = False,
        absent: npt.NDArray[np.bool_] | None = None,
    ) -> list[EpisodeSummary]:
        """Counts one vector step; returns the summaries of the episodes that it ended.

        reward: raw rewards, [N]; 0 at FIRST; it must not change afterwards.
        last: where an episode ends, bool [N]; the next row of such a stream is FIRST, and no step.
        metrics: `info["metrics"]`, N dicts or None; the newest number of each name counts.
        life_lost: `info["life_lost"]`, bool [N], True where the game goes on after such an end;
            the FIRST row that follows may have a reward, which counts for that game.
        begun: True: the next episodes of streams that ended have begun in this step already, so
            that their next row is a step.
        absent: `info["absent_streams"]`, bool [N], streams that have ended before and have no row.

        A summary has `return`, `length` (environment steps) and `metrics`; summaries are in the
        order of the streams, see :func:`ended`. Raises DataError for a metric that is no number.
        """
        self._step += 1
        self._rewards.append(reward)
        self.env_steps += len(last) - self._beginning
        if metrics is not None:
            self._has_metrics = True
            for kept, given in zip(self._metrics, metrics, strict=True):
                kept.update(given or ())
        if absent is not None:
            last = last & ~absent
        ends = last.nonzero()[0]
        gap = 0 if begun else 1
        self._beginning = gap * len(ends)
        if absent is not None:
            self._postpone(absent.nonzero()[0])
        if len(ends) and life_lost is not None:
            ends = self._keep_games(ends, life_lost, gap)
        if len(ends):
            self._add_up()
            totals = self._returns[ends].tolist()
            self._returns[ends] = 0.0
            return self._finish(ends.tolist(), totals, repeat(self._step), gap)
        if len(self._rewards) >= _ADD_UP:
            self._add_up()
        return []

    def update_many(
        self, rewards: npt.NDArray[Any], last: npt.NDArray[np.bool_]
    ) -> list[EpisodeSummary]:
        """Does the same as :meth:`update` for each of K vector steps without metrics and lives.

        rewards: raw rewards, [K, N]; last: bool [K, N]. Summaries are in the order of the steps,
        then of the streams.
        """
        before, self._beginning = self._beginning, int(np.count_nonzero(last[-1]))
        self.env_steps += last.size - before - int(np.count_nonzero(last[:-1]))
        self._add_up()
        streams, steps = last.T.nonzero()
        totals, self._returns = _totals(self._returns, rewards, streams, steps)
        order = steps.argsort(kind="stable")
        at = (self._step + 1 + steps[order]).tolist()
        self._step += len(last)
        return self._finish(streams[order].tolist(), totals[order].tolist(), at)

    def _postpone(self, streams: npt.NDArray[np.int64]) -> None:
        """Lets the next episodes of streams begin a step later."""
        self._beginning += len(streams)
        for stream in streams.tolist():
            self._begun_at[stream] += 1

    def _keep_games(
        self, ends: npt.NDArray[np.int64], life_lost: npt.NDArray[np.bool_], gap: int
    ) -> npt.NDArray[np.int64]:
        """Returns the streams whose games ended; the others get `gap` more rows without a step."""
        for stream in ends[life_lost[ends]].tolist():
            self._begun_at[stream] += gap
        return ends[~life_lost[ends]]

    def _add_up(self) -> None:
        rewards = self._rewards
        if len(rewards) == 1:
            self._returns += rewards[0]
        elif rewards:
            self._returns += np.add.reduce(rewards, axis=0, dtype=np.float64)
        rewards.clear()

    def _finish(
        self, streams: Iterable[int], totals: Iterable[float], steps: Iterable[int], gap: int = 1
    ) -> list[EpisodeSummary]:
        """Returns summaries of episodes that end there; few per step, so a loop is fastest."""
        finished, begun_at = [], self._begun_at
        # `steps` may be infinite.
        for stream, total, step in zip(streams, totals, steps, strict=False):
            metrics = self._take_metrics(stream) if self._has_metrics else {}
            length = step - begun_at[stream]
            finished.append({"return": total, "length": length, "metrics": metrics})
            begun_at[stream] = step + gap
        self.episodes += len(finished)
        return finished

    def _take_metrics(self, stream: int) -> dict[str, float]:
        given, self._metrics[stream] = self._metrics[stream], {}
        return {name: metric_number(name, value) for name, value in given.items()}


def _totals(
    returns: npt.NDArray[np.float64],
    rewards: npt.NDArray[Any],
    streams: npt.NDArray[np.intp],
    steps: npt.NDArray[np.intp],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Sums the returns of episodes that end there, by stream, then by step, and of open ones, [N].

    returns: [N], of the episodes that were open; rewards: [K, N].
    """
    count, num_envs = rewards.shape
    # Of each stream: its open return, K rewards, and a zero in case that it ends with the last.
    width = count + 2
    table = np.zeros((num_envs, width))
    table[:, 0] = returns
    table[:, 1:-1] = rewards.T
    # After each end a new sum begins; the last one of each stream stays open.
    begins = np.zeros(table.shape, np.bool_)
    begins[:, 0] = True
    begins[streams, steps + 2] = True
    sums = np.add.reduceat(table.reshape(-1), begins.reshape(-1).nonzero()[0])
    goes_on = np.cumsum(np.bincount(streams, minlength=num_envs) + 1) - 1
    ends = np.ones(len(sums), np.bool_)
    ends[goes_on] = False
    return sums[ends], sums[goes_on]


def ended(last: npt.NDArray[np.bool_], info: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
    """Returns True where an episode has ended, and not only a life of it, bool [N]."""
    return last & ~info["life_lost"] if "life_lost" in info else last


def metric_number(name: object, value: Any) -> float:
    """Returns a metric of an episode as a float; raises DataError unless it is a named number."""
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
