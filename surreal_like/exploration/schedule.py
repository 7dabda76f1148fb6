"""Schedules: numbers that change over a run, such as the share of random actions.

In a config a schedule is a mapping with the keys of `SCHEDULE_CONFIG`, or one constant number. It
is a function of the counters of the whole run and has no counter of its own, so a restarted process
continues at the run's position.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.config.key import FROM_0, Key, section
from session.config.learner_defaults import SCHEDULE_KEYS
from session.errors import ConfigError

_FEW = 8
SCHEDULE_CONFIG = Config(SCHEDULE_KEYS)


def schedule_section(text: str, start: float) -> Key:
    """Returns the section of a schedule of numbers from 0 on, by default one constant.

    Args:
        text: description of the number.
        start: the constant.
    """
    constant = {"kind": "constant", "start": start, "end": 0.0}
    return section(text, SCHEDULE_CONFIG | constant, within=FROM_0)


class Progress(Protocol):
    """Counters of a run."""

    @property
    def env_steps(self) -> int:
        """Environment steps of all agents."""
        ...

    @property
    def iteration(self) -> int:
        """Updates of the newest parameters."""
        ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """A value at every step: interpolated between points, constant before and after them.

    Args:
        points: (step, value), steps rising; one point is a constant.
        exponential: interpolate by equal ratios instead of equal differences.
        by: counter that is the step, env_steps or iterations.
    """

    points: tuple[tuple[float, float], ...]
    exponential: bool = False
    by: str = "env_steps"

    def at(self, progress: Progress) -> float:
        """Returns the value at this point of the run."""
        return self.value(progress.env_steps if self.by == "env_steps" else progress.iteration)

    def value(self, step: float) -> float:
        """Returns the value at a step; constant before the first point and after the last."""
        index = bisect_right(self.points, step, key=lambda point: point[0])
        if index == 0 or index == len(self.points):
            return self.points[max(0, index - 1)][1]
        (step_before, before), (step_after, after) = self.points[index - 1 : index + 1]
        share = (step - step_before) / (step_after - step_before)
        if self.exponential:
            return float(before * (after / before) ** share)
        return before + (after - before) * share


def make_schedule(
    config: Mapping[str, Any] | float,
    where: str = "schedule",
    *,
    least: float = -math.inf,
    most: float = math.inf,
) -> Schedule:
    """Builds the schedule of a config, whose values lie between `least` and `most`.

    Raises ConfigError, which names the key `where`, for an unknown kind or clock, steps that do not
    rise, an exponential that touches or crosses zero, or a value that is not finite or beyond these
    bounds.
    """
    schedule = _make(config, where)
    for _, value in schedule.points:
        if not (math.isfinite(value) and least <= value <= most):
            bounds = "a finite number" + (f" from {least:g} on" if least > -math.inf else "")
            bounds += f" up to {most:g}" if most < math.inf else ""
            raise ConfigError(f"{where} has the value {value:g}, expected {bounds}")
    return schedule


def _make(config: Mapping[str, Any] | float, where: str) -> Schedule:
    if isinstance(config, (int, float)):
        return Schedule(((0.0, float(config)),))
    wanted = {**SCHEDULE_CONFIG, **config}
    kind, clock = wanted["kind"], wanted["by"]
    for key, allowed in ((key, SCHEDULE_KEYS[key].one_of) for key in ("kind", "by")):
        if wanted[key] not in allowed:
            raise ConfigError(
                f"{where}.{key} is {wanted[key]!r}, expected one of {', '.join(allowed)}"
            )
    if kind == "piecewise":
        return Schedule(_check_points(wanted["points"], where), by=clock)
    start, end, steps = (float(wanted[key]) for key in ("start", "end", "steps"))
    if kind == "constant":
        return Schedule(((0.0, start),), by=clock)
    if steps <= 0:
        raise ConfigError(f"{where}.steps is {wanted['steps']}, expected more than 0")
    if kind == "exponential" and not start * end > 0.0:
        raise ConfigError(f"{where} goes from {start} to {end}: an exponential never reaches 0")
    return Schedule(((0.0, start), (steps, end)), exponential=kind == "exponential", by=clock)


def _check_points(points: Sequence[Any], where: str) -> tuple[tuple[float, float], ...]:
    try:
        pairs = tuple((float(step), float(value)) for step, value in points)
    except (TypeError, ValueError):
        pairs = ()
    steps = [step for step, _ in pairs]
    if not pairs or any(later <= step for step, later in pairwise(steps)):
        raise ConfigError(
            f"{where}.points is {points!r}, expected [[step, value], ...], steps rising"
        )
    return pairs


def agent_epsilon(epsilon: float, alpha: float, agent_id: int, num_agents: int) -> float:
    """Returns epsilon of one agent: epsilon ** (1 + alpha i / (N - 1)).

    Horgan et al. 2018, section 4.1: agents with different epsilons fill replay with a mixture. A
    single agent, or alpha 0, gets epsilon itself. Agents beyond N start again at i = 0, so that the
    mixture does not change with their number.
    """
    if num_agents <= 1:
        return epsilon
    place = agent_id % num_agents / (num_agents - 1)
    return float(epsilon ** (1.0 + alpha * place))


def epsilon_greedy(
    greedy: npt.NDArray[np.int64],
    num_actions: int,
    epsilon: float,
    rng: np.random.Generator,
    legal: npt.NDArray[np.bool_] | None = None,
) -> npt.NDArray[np.int64]:
    """Replaces actions `greedy` `[N]`, each with probability epsilon, by a uniform draw.

    legal: `[N, num_actions]`, actions to draw from, at least one in each row; None: all.
    """
    draws = rng.random(len(greedy))
    # A draw below epsilon is uniform there, so it also selects the action. Rounding may yield
    # num_actions, which is no valid action.
    if legal is None and len(draws) <= _FEW:
        # Plain numbers give the same as operations of numpy and cost less.
        actions = greedy
        for stream, draw in enumerate(draws.tolist()):
            if draw < epsilon:
                actions = greedy.copy() if actions is greedy else actions
                actions[stream] = min(draw * (num_actions / epsilon), num_actions - 1)
        return actions
    exploring = (draws < epsilon).nonzero()[0]
    if not exploring.size:
        return greedy
    actions = greedy.copy()
    if legal is None:
        random = draws[exploring] * (num_actions / epsilon)
        actions[exploring] = np.minimum(random, num_actions - 1)
        return actions
    numbers = legal[exploring].cumsum(1)
    counts = numbers[:, -1]
    chosen = np.minimum((draws[exploring] * (counts / epsilon)).astype(np.int64), counts - 1)
    # The first action that has this number among the legal ones.
    actions[exploring] = (numbers > chosen[:, None]).argmax(1)
    return actions
