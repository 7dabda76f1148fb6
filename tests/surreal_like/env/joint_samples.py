"""Environments of several agents for tests; they need no PettingZoo."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

_SPACE = spaces.Box(-np.inf, np.inf, (1,), np.float32)


class Script:
    """A parallel environment whose agents live as long as the script says.

    The observation is the step, the reward 1 for the first agent, 2 for the second, and so on.

    Args:
        lives: agent -> (step of its first observation, step of its end).
        keeps: True lists agents that have ended until the episode is over.
    """

    def __init__(self, lives: dict[str, tuple[int, int]], *, keeps: bool = False) -> None:
        self.possible_agents = list(lives)
        self.agents: list[str] = []
        self.lives, self.keeps, self.now = lives, keeps, 0

    def observation_space(self, agent: str) -> Any:
        return _SPACE

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def _obs(self) -> Any:
        return np.array([self.now], np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.now, self.options = 0, options
        self.agents = [name for name, (begin, _) in self.lives.items() if begin == 0]
        return {name: self._obs() for name in self.agents}, {name: {} for name in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self.now += 1
        acted = list(actions)
        ends = {name: self.now >= self.lives[name][1] for name in acted}
        new = [name for name, (begin, _) in self.lives.items() if begin == self.now]
        lived = self.agents if self.keeps else [name for name in acted if not ends[name]]
        self.agents = [*lived, *new]
        if self.keeps and all(self.now >= end for _, end in self.lives.values()):
            self.agents = list(self.possible_agents)
        names = [*acted, *new]
        return (
            {name: self._obs() for name in names},
            {name: float(self.possible_agents.index(name) + 1) for name in acted},
            {name: ends.get(name, False) for name in names},
            dict.fromkeys(names, False),
            {name: {} for name in names},
        )

    def render(self) -> None:
        return None

    def close(self) -> None:
        self.agents = []


class Swarm(Script):
    """81 agents of which nine end at every step, until none is left."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__({f"fly_{number}": (0, 1 + number // 9) for number in range(81)})


class TwoLives(Script):
    """Two agents, of which the second ends first."""

    def __init__(self) -> None:
        super().__init__({"a_0": (0, 5), "a_1": (0, 3)})


class Goals(TwoLives):
    """Two agents with goals, and no function for their rewards."""

    def observation_space(self, agent: str) -> Any:
        parts = ("observation", "achieved_goal", "desired_goal")
        return spaces.Dict(dict.fromkeys(parts, _SPACE))

    def _obs(self) -> Any:
        own = super()._obs()
        return {"observation": own, "achieved_goal": own, "desired_goal": own + 1}


class Stated(TwoLives):
    """Two agents, and a state: ten times the step, and the number of agents that live."""

    state_space: Any = spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def state(self) -> Any:
        return np.array([10 * self.now, len(self.agents)], np.float64)


class AgentsWithAState(Stated):
    """The same, with observations that have parts, one of them named `state`."""

    def observation_space(self, agent: str) -> Any:
        return spaces.Dict({"here": _SPACE, "state": _SPACE})

    def _obs(self) -> Any:
        return {"here": super()._obs(), "state": super()._obs()}


class InTurns:
    """An AEC environment of two agents; its state is the number of steps.

    A step gives 1 to the first agent and 4 to the second. The episode has four steps.
    """

    possible_agents = ("a", "b")
    state_space: Any = spaces.Discrete(9)

    def observation_space(self, agent: str) -> Any:
        return _SPACE

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents, self.now = list(self.possible_agents), 0
        self.agent_selection = "a"
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {name: {} for name in self.agents}

    def agent_iter(self) -> None:
        raise NotImplementedError

    def observe(self, agent: str) -> Any:
        return np.array([self.now], np.float32)

    def state(self) -> int:
        return self.now

    def step(self, action: Any) -> None:
        if self.terminations[self.agent_selection]:
            self.agents.remove(self.agent_selection)
            self.agent_selection = self.agents[0] if self.agents else ""
            return
        self.now += 1
        self.rewards = {"a": 1.0, "b": 4.0}
        self.terminations = dict.fromkeys(self.agents, self.now == 4)
        self.agent_selection = "ab"[self.now % 2]

    def render(self) -> None:
        return None

    def close(self) -> None:
        self.agents = []


class BookedInTurns(InTurns):
    """The same with the sums of rewards that `last()` gives, in one of several ways.

    Args:
        way: `both` books in `rewards` and in the sums, `sums` in the sums only, `rewards` in
            `rewards` only, `kept` never begins a sum anew, `early` pays at the reset and when an
            agent leaves, too.
    """

    def __init__(self, way: str = "sums") -> None:
        self.way = way

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        super().reset(seed, options)
        paid = 7.0 if self.way == "early" else 0.0
        self._cumulative_rewards = dict.fromkeys(self.agents, paid)

    def last(self) -> float:
        """Returns the reward of the agent whose turn it is, as `last()` of PettingZoo does."""
        return self._cumulative_rewards[self.agent_selection]

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent]:
            del self._cumulative_rewards[agent]
            super().step(action)
            if self.way == "early":
                self._cumulative_rewards = {k: v + 0.5 for k, v in self._cumulative_rewards.items()}
            return
        if self.way != "kept":
            self._cumulative_rewards[agent] = 0.0
        super().step(action)
        if self.way == "rewards":
            return
        for each, reward in self.rewards.items():
            self._cumulative_rewards[each] += reward
        if self.way != "both":
            self.rewards = dict.fromkeys(self.rewards, 0.0)
