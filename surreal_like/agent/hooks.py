"""Calls the hooks of an agent around each step of its environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from surreal_like.agent.base import Agent

_HOOKS = ("pre_action", "post_action", "pre_episode", "post_episode")


class Hooks:
    """Calls an agent's hooks; only made if the agent overrides one, see :meth:`any_of`."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    @staticmethod
    def any_of(agent: Agent) -> bool:
        """Returns True if the agent overrides a hook of its steps."""
        return any(getattr(type(agent), name) is not getattr(Agent, name) for name in _HOOKS)

    def before(self, obs: Any) -> None:
        """Calls the hooks before ``act``: for episodes that begin, then for the action."""
        streams = np.flatnonzero(self._agent.first)
        if streams.size:
            self._agent.pre_episode(streams)
        self._agent.pre_action(obs)

    def after(self, obs: Any, actions: Any, finished: Sequence[Mapping[str, Any]]) -> None:
        """Calls the hooks after the step: for the action, then for episodes that ended."""
        self._agent.post_action(obs, actions)
        if finished:
            self._agent.post_episode(finished)
