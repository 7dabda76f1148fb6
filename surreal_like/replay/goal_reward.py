"""Rewards and terminations by goals, from functions that may or may not take batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.config.named_code import load_callable
from session.errors import ConfigError
from session.nest import Array
from surreal_like.data.casts import cast
from surreal_like.env.registry import make_env
from surreal_like.errors import DataError
from surreal_like.replay.n_step_view import Flags, Floats

# Achieved goals, desired goals, further columns -> one value per row.
GoalFunction = Callable[[Any, Any, Any], Any]
Info = Mapping[str, Array]
Event = Callable[[str, str], None]

_KEY = "learner_config.replay.hindsight.reward"


class GoalReward:
    """Computes the outcome of steps for any goal.

    Args:
        compute_reward: of ``(achieved [M, ...], desired [M, ...], info)`` of M rows, or of one.
        compute_terminated: of the same; None if the goal ends no episode.
        event: records ``(kind, detail)``.

    Attributes:
        terminates: whether the goal can end an episode.
    """

    def __init__(
        self,
        compute_reward: GoalFunction,
        compute_terminated: GoalFunction | None = None,
        *,
        event: Event = lambda kind, detail: None,
    ) -> None:
        self.terminates = compute_terminated is not None
        self._reward = _OverRows(compute_reward, "compute_reward", event)
        self._terminated = _OverRows(compute_terminated, "compute_terminated", event)

    def rewards(self, achieved: Array, desired: Array, info: Info) -> Floats:
        """Returns the rewards of M steps by the goals achieved at their ends, ``[M]`` float32.

        Raises:
            DataError: the function fails, or gives no finite number for each row.
        """
        return cast("compute_reward", self._reward(achieved, desired, info), np.float32)

    def terminated(self, achieved: Array, desired: Array, info: Info) -> Flags:
        """Returns whether M steps end their episodes by their goals, ``[M]``; raises as above."""
        return cast("compute_terminated", self._terminated(achieved, desired, info), np.bool_)


class _OverRows:
    """Calls a function with all rows at once if it takes batches, else once for each row.

    A first call with two rows shows that: only a result of shape [2] is that of a batch. Some
    functions of environments reduce over the whole batch, and give one value.
    """

    def __init__(self, function: GoalFunction | None, name: str, event: Event) -> None:
        self._function, self._name, self._event = function, name, event
        self._batches: bool | None = None

    def __call__(self, achieved: Array, desired: Array, info: Info) -> npt.NDArray[np.float64]:
        if not len(achieved):
            return np.zeros(0)
        if self._batches is None:
            self._batches = self._takes_batches(achieved, desired, info)
        try:
            if self._batches:
                values: Any = self._call(achieved, desired, info)
            else:
                rows = range(len(achieved))
                values = [self._call(achieved[i], desired[i], _row(info, i)) for i in rows]
            result = np.asarray(values, np.float64)
        except Exception as error:
            raise DataError(f"{self._name} failed: {type(error).__name__}: {error}") from error
        if result.shape != (len(achieved),) or not np.isfinite(result).all():
            raise DataError(
                f"{self._name} gave {'' if result.shape == (len(achieved),) else result.shape} "
                f"for {len(achieved)} goals, expected one finite number each"
            )
        return result

    def _call(self, achieved: Any, desired: Any, info: Any) -> Any:
        assert self._function is not None
        return self._function(achieved, desired, info)

    def _takes_batches(self, achieved: Array, desired: Array, info: Info) -> bool:
        two = np.arange(2) % len(achieved)
        try:
            result = self._call(achieved[two], desired[two], {k: v[two] for k, v in info.items()})
            if np.shape(result) == (2,):
                return True
            why = f"gives shape {list(np.shape(result))} for two goals"
        except Exception as error:  # noqa: BLE001 - what it raises for single goals is an error
            why = f"fails for two goals: {type(error).__name__}"
        self._event("goals_one_by_one", f"{self._name} {why}: it is called once for each row")
        return False


def _row(info: Info, place: int) -> dict[str, Any]:
    return {name: column[place] for name, column in info.items()}


def make_goal_reward(reward: str, env_config: Mapping[str, Any], event: Event) -> GoalReward:
    """Makes the rewards of ``learner_config.replay.hindsight.reward``.

    Args:
        reward: ``env`` for the environment's own functions, which is built once here, or
            ``package.module:function``.
        env_config: the experiment's.
        event: records ``(kind, detail)``.

    Raises:
        ConfigError: there is no such function.
    """
    if reward != "env":
        if ":" not in reward:
            raise ConfigError(
                f"{_KEY} is '{reward}', expected env, package.module:function or file.py:function"
            )
        return GoalReward(load_callable(reward, _KEY), event=event)
    env = make_env(env_config)
    compute_reward = _method(env, "compute_reward")
    if compute_reward is None:
        env.close()
        raise ConfigError(
            f"{_KEY} is env, but {env_config['env_name']} has no method compute_reward(achieved, "
            "desired, info): name a function package.module:function of the same arguments"
        )
    return GoalReward(compute_reward, _method(env, "compute_terminated"), event=event)


def _method(env: Any, name: str) -> GoalFunction | None:
    """Returns a method of an environment, or of the Gymnasium environment inside; None without."""
    method = getattr(env, name, None)
    if method is None and (inner := getattr(env, "gym_env", None)) is not None:
        method = getattr(inner.unwrapped, name, None)
    return method if callable(method) else None
