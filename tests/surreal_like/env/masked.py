"""Environments in which an illegal action is an error, and would pay the most."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

STEPS = 5


class Masked(gymnasium.Env[Any, Any]):
    """Each step draws a new mask. Actions with a high number pay the most.

    Last observations have masks of zeros.

    Args:
        nums: number of actions of each choice.
        dtype: dtype of the mask.
        cut: episodes are truncated instead of terminated.
    """

    def __init__(
        self, nums: tuple[int, ...] = (4,), dtype: str = "int8", *, cut: bool = False
    ) -> None:
        mask = spaces.Box(0, 1, (sum(nums),), np.dtype(dtype).type)
        seen = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.observation_space = spaces.Dict({"action_mask": mask, "observation": seen})
        several = len(nums) > 1
        self.action_space: spaces.Space[Any] = (
            spaces.MultiDiscrete(list(nums)) if several else spaces.Discrete(nums[0])
        )
        self.nums, self.dtype, self.cut = nums, dtype, cut
        self.now = 0
        self.masks: list[Any] = []
        # Broken: the first mask of an episode has zeros.
        self.ends_at_once = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.now = STEPS if self.ends_at_once else 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        chosen = np.atleast_1d(action)
        if not all(mask[each] for mask, each in zip(self.masks, chosen, strict=True)):
            raise RuntimeError(f"the action {action} is illegal")
        self.now += 1
        ended = self.now == STEPS
        flags = (False, ended) if self.cut else (ended, False)
        return self._observe(), 10.0 * float(chosen.sum()), *flags, {}

    def _observe(self) -> Any:
        self.masks = [self._draw(num) for num in self.nums]
        mask = np.concatenate(self.masks) * (self.now < STEPS)
        seen = self.np_random.normal(size=3).astype(np.float32)
        return {"observation": seen, "action_mask": mask.astype(self.dtype)}

    def _draw(self, num: int) -> Any:
        mask = self.np_random.random(num) < 0.4
        mask[self.np_random.integers(num - 1)] = True
        return mask


def make_vector(num_envs: int) -> SyncVectorEnv:
    """Vector code of Gymnasium for :class:`Masked`."""
    return SyncVectorEnv([Masked] * num_envs)


class MaskedBox(Masked):
    """Has the part of the observation, but continuous actions."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(-1.0, 1.0, (4,), np.float32)

    def step(self, action: Any) -> Any:
        return self._observe(), 0.0, False, False, {}


class MaskedGame:
    """A parallel environment of two agents on copies of :class:`Masked`.

    Args:
        informs: masks are in the infos, not in the observations.
    """

    possible_agents = ("a", "b")

    def __init__(self, *, informs: bool = False) -> None:
        self.informs = informs
        # Broken: the masks are left out.
        self.forgets = False
        self.agents: list[str] = []
        self.games = {agent: Masked() for agent in self.possible_agents}

    def observation_space(self, agent: str) -> Any:
        space: Any = self.games[agent].observation_space
        return space["observation"] if self.informs else space

    def action_space(self, agent: str) -> Any:
        return self.games[agent].action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        seeds = {a: None if seed is None else seed + i for i, a in enumerate(self.agents)}
        return self._split({a: self.games[a].reset(seed=seeds[a])[0] for a in self.agents})

    def step(self, actions: dict[str, Any]) -> Any:
        results = {agent: self.games[agent].step(action) for agent, action in actions.items()}
        obs, infos = self._split({agent: each[0] for agent, each in results.items()})
        rewards, ends, cuts = ({a: each[i] for a, each in results.items()} for i in (1, 2, 3))
        self.agents = [agent for agent in self.agents if not ends[agent]]
        return obs, rewards, ends, cuts, infos

    def _split(self, obs: dict[str, Any]) -> Any:
        if not self.informs:
            return obs, {agent: {} for agent in obs}
        masks = {} if self.forgets else obs
        infos = {agent: {"action_mask": each["action_mask"]} for agent, each in masks.items()}
        return {agent: each["observation"] for agent, each in obs.items()}, infos

    def render(self) -> None:
        return None

    def close(self) -> None:
        self.agents = []
