"""Base of all kinds of N streams: what is the same in each, whatever steps the environments."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from session.nest import Nest
from surreal_like.data.spec import Bounds
from surreal_like.data.task import TASK
from surreal_like.env.actions import ActionValidator, Outside
from surreal_like.env.environment import Info, VectorEnv, VectorStep
from surreal_like.env.masks import make_guard
from surreal_like.env.restarts import NO_RESTARTS, Restarts
from surreal_like.env.task_feed import TaskFeed

Flags = npt.NDArray[np.bool_]


class CheckedVector(VectorEnv):
    """N streams: a kind gives `_reset` and `_step`; all else that a step needs is done here.

    It checks actions and masks, keeps which streams the next step resets, and adds the number of
    its task to each episode.

    Args:
        num_envs: N.
        obs_spec, action_spec: specs of one stream, in the form of `env_config`.
        metadata: metadata of the environment, as of Env.
        info_keys: keys of `info` that become columns.
        feed: progress and task of the run; None: the environments are outside of one.
        outside, bounds: treatment and range of continuous actions, see :class:`ActionValidator`.

    Attributes:
        ended: streams that the next step resets, bool [N].
        newest: observations of the newest step, which are never overwritten.
        feed: progress and task of the run.
        restarts: counts and limits the environments, or workers, that are made anew.
    """

    restarts: Restarts = NO_RESTARTS

    def __init__(
        self,
        num_envs: int,
        obs_spec: Mapping[str, Any],
        action_spec: Mapping[str, Any],
        *,
        metadata: Mapping[str, Any],
        info_keys: Sequence[str] = (),
        feed: TaskFeed | None = None,
        outside: Outside = "pass",
        bounds: Bounds | None = None,
    ) -> None:
        self.num_envs, self.metadata = num_envs, metadata
        self.obs_spec, self.action_spec = obs_spec, action_spec
        self.feed = feed or TaskFeed({})
        self.newest: Nest = {}
        self._masks = make_guard(obs_spec, action_spec)
        self._actions = ActionValidator(
            action_spec, (num_envs,), outside=outside, bounds=bounds, masks=self._masks
        )
        # A kind may want them in another form.
        self._check: Callable[[Any, Flags], Any] = self._actions
        self._info_keys = tuple(info_keys)
        # Number of the task of each stream.
        self._numbers = np.zeros(num_envs, np.int64)
        self._none = np.zeros(num_envs, np.bool_)
        self._none.flags.writeable = False
        self.ended = self._none

    @abstractmethod
    def _reset(self) -> tuple[Nest, Info]:
        """Starts a new episode in every stream and returns (observations, info)."""

    @abstractmethod
    def _step(self, actions: Any, ended: Flags) -> VectorStep:
        """Steps every stream.

        Args:
            actions: checked, as :attr:`_check` returns them.
            ended: streams that are reset, bool [N].
        """

    def reset(self) -> tuple[Nest, Info]:
        """Resets every stream."""
        self.ended = self._none
        self._numbers[:] = self.feed.number
        obs, info = self._reset()
        self.newest = obs
        if self._masks is not None:
            self._masks.observe(obs, self._none)
        if self.feed.numbered:
            self._add_column(info)
        return obs, info

    def step(self, actions: npt.NDArray[Any]) -> VectorStep:
        """Steps every stream, or resets it where its last step ended an episode."""
        ended = self.ended
        checked = self._check(actions, ended)
        if self.feed.numbered:
            self._numbers[ended] = self.feed.number
        result = self._step(checked, ended)
        obs, _, terminated, truncated, info = result
        self.newest = obs
        # Bytes: an operation of numpy costs more, and most steps end nothing.
        if 1 in terminated.tobytes() or 1 in truncated.tobytes():
            last = terminated | truncated
            self._end(last, info)
            self.ended = self._none if self.resets_in_step else last
        else:
            self.ended = self._none
        if self._masks is not None:
            self._masks.observe(obs, self.ended)
        if self.feed.numbered:
            self._add_column(info)
        return result

    @property
    def env_restarts(self) -> int:
        return self.restarts.count

    def _end(self, last: Flags, info: Info) -> None:
        """Adds the number of its task to each episode that has ended."""
        if not self.feed.numbered:
            return
        streams = last.nonzero()[0].tolist()
        self._add_metric(info, streams, TASK, self._numbers[last].tolist())
        if self.resets_in_step:
            if TASK in self._info_keys:
                info["final_info"][TASK] = self._numbers[last]
            self._numbers[last] = self.feed.number

    def _add_column(self, info: Info) -> None:
        if TASK in self._info_keys:
            info[TASK] = self._numbers.copy()

    def _add_metric(
        self, info: Info, streams: Iterable[int], name: str, values: Iterable[float]
    ) -> None:
        """Adds a metric of episodes to the info of a step."""
        metrics = info["metrics"] = list(info.get("metrics") or [None] * self.num_envs)
        for stream, value in zip(streams, values, strict=True):
            metrics[stream] = {**(metrics[stream] or {}), name: value}
