"""The time step: what an environment tells at each step, and how the end of an episode is told.

A termination (the task itself ended) has discount 0. A truncation (time limit, horizon, cut)
keeps discount 1, so that the value of its last observation is still bootstrapped. Hot paths never
build a TimeStep per step: they write raw columns and compute `step_types` and `discounts` once
per chunk.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from surreal_like.data.spec import ArraySpec
from surreal_like.errors import DataError


class StepType(enum.IntEnum):
    """Where in its episode a step stands; the value is what the uint8 column holds."""

    FIRST = 0
    MID = 1
    LAST = 2


@dataclass(frozen=True, slots=True, eq=False)
class TimeStep:
    """One step of one stream. Made by `restart`, `transition`, `termination`, `truncation` only.

    step_type: FIRST, MID or LAST.
    reward: of the action taken before this observation, raw; 0 at FIRST.
    discount: 1 at FIRST and MID; at LAST 0 for a termination, 1 for a truncation.
    observation: nest of arrays; at LAST the true last observation of the episode.
    prev_action: the action that led here; zeros at FIRST.
    env_id: which stream.

    Raises ValueError for any other step type, reward or discount.
    """

    step_type: StepType
    reward: float
    discount: float
    observation: Any
    prev_action: Any
    env_id: int = 0

    def __post_init__(self) -> None:
        step_type = StepType(self.step_type)
        object.__setattr__(self, "step_type", step_type)  # a plain 0 becomes StepType.FIRST
        allowed = (0.0, 1.0) if step_type is StepType.LAST else (1.0,)
        if self.discount not in allowed:
            raise ValueError(f"discount {self.discount} at {step_type.name}: expected {allowed}")
        if step_type is StepType.FIRST and self.reward != 0.0:
            raise ValueError(f"reward {self.reward} at FIRST: no action came before it")

    def first(self) -> bool:
        """Whether an episode begins here."""
        return self.step_type is StepType.FIRST

    def mid(self) -> bool:
        """Whether the episode goes on here."""
        return self.step_type is StepType.MID

    def last(self) -> bool:
        """Whether an episode ends here."""
        return self.step_type is StepType.LAST


def restart(observation: Any, action_spec: ArraySpec, env_id: int = 0) -> TimeStep:
    """The first step of an episode; its previous action is zeros of `action_spec`."""
    return TimeStep(StepType.FIRST, 0.0, 1.0, observation, action_spec.zeros(), env_id)


def transition(reward: float, observation: Any, prev_action: Any, env_id: int = 0) -> TimeStep:
    """A step inside an episode."""
    return TimeStep(StepType.MID, reward, 1.0, observation, prev_action, env_id)


def termination(reward: float, observation: Any, prev_action: Any, env_id: int = 0) -> TimeStep:
    """The last step of an episode whose task ended: nothing can be earned after it."""
    return TimeStep(StepType.LAST, reward, 0.0, observation, prev_action, env_id)


def truncation(reward: float, observation: Any, prev_action: Any, env_id: int = 0) -> TimeStep:
    """The last step of an episode that was cut off: its observation still has a value."""
    return TimeStep(StepType.LAST, reward, 1.0, observation, prev_action, env_id)


def step_types(
    first: npt.NDArray[np.bool_],
    terminated: npt.NDArray[np.bool_],
    truncated: npt.NDArray[np.bool_],
) -> npt.NDArray[np.uint8]:
    """The column of step types, uint8, in the shape of its three bool columns (mostly [T, N]).

    Raises DataError where a row begins an episode and also ends it: such an environment does not
    reset at the step after the last.
    """
    last = terminated | truncated
    both = first & last
    if np.count_nonzero(both):
        where = tuple(int(i) for i in np.argwhere(both)[0])
        raise DataError(
            f"step_type: row {where} is both FIRST and LAST: the reset ended an episode"
        )
    # FIRST is one less than MID, LAST one more: a fraction of the time of writing by masks.
    types = last.view(np.uint8) + np.uint8(StepType.MID)
    types -= first.view(np.uint8)
    return types


def discounts(terminated: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
    """The column of discounts, float32: 0 at a termination, time limit or not, else 1."""
    return (~terminated).astype(np.float32)


def check_step_types(step_type: npt.NDArray[Any]) -> None:
    """Raises ValueError if a column holds anything but FIRST, MID and LAST."""
    wrong = (step_type < StepType.FIRST) | (step_type > StepType.LAST)
    if wrong.any():
        raise ValueError(f"{step_type[wrong][0]} is no step type: 0 FIRST, 1 MID, 2 LAST")
