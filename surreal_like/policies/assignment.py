"""Assigns the agents of each episode to the policies that play them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from session.config import Config
from session.config.merge import quote
from session.config.named_code import load_callable
from surreal_like.data.added_parts import policy_spec
from surreal_like.data.policy_names import learns, policies_of
from surreal_like.env.multi_agent_vector import Mapper, PolicyAgents
from surreal_like.errors import DataError

_KEY = "env_config.policy_mapping"


def parts_of(config: Config, *, evaluation: bool = False) -> dict[str, PolicyAgents]:
    """Returns the agents that each policy of a resolved experiment may play, with their specs.

    A policy has the same agents in training and in evaluations, so that their order is the same.

    Args:
        config: the resolved experiment.
        evaluation: True for the policies that play in evaluations.
    """
    parts = {}
    for name, each in policies_of(config).items():
        trained: list[str] = each.get("agents", [])
        judged = each.get("eval_agents", trained)
        if not (judged if evaluation else trained):
            continue
        learning = learns(each) and not evaluation
        # Only value functions see the state; those that do not learn act without it.
        obs_spec = each.obs_spec if learning else dict(policy_spec(each.obs_spec))
        agents = list(dict.fromkeys([*trained, *judged]))
        parts[name] = PolicyAgents((obs_spec, each.action_spec), agents, learns=learning)
    return parts


class PolicyAssignment:
    """Assigns the agents of an episode to policies, by the mapping of an experiment.

    Args:
        config: the resolved experiment.
        seed: seed of the draws.
        evaluation: True for the episodes of evaluations.
    """

    def __init__(self, config: Config, seed: int, *, evaluation: bool = False) -> None:
        env, policies = config.env_config, policies_of(config)
        own = env.policy_mapping
        given = (env.eval_policy_mapping or own) if evaluation else own
        # One policy for all agents needs no mapping.
        self._mapping: Mapping[str, Any] = given or {"*": next(iter(policies))}
        self._policies = list(policies)
        self._shuffles = env.seats == "shuffled"
        self._rng = np.random.default_rng(seed)
        self._choosers = {
            pattern: load_callable(to, f"{_KEY} of {pattern}")
            for pattern, to in self._mapping.items()
            if is_function(to)
        }
        self._episode = -1

    def assign(self) -> Mapper:
        """Begins an episode; returns a function that gives the policy of each of its agents once.

        Raises:
            DataError: a function of the user returned no policy; by the returned function.
        """
        self._episode += 1
        cycles = {
            pattern: self._cycle(pattern, to)
            for pattern, to in self._mapping.items()
            if type(to) is not str
        }

        def play(agent: str) -> str:
            pattern = next(each for each in self._mapping if fnmatchcase(agent, each))
            if pattern in cycles:
                return next(cycles[pattern])
            if pattern in self._choosers:
                return self._choose(pattern, agent)
            to: str = self._mapping[pattern]
            return to

        return play

    def _cycle(self, pattern: str, policies: Sequence[str]) -> Iterator[str]:
        order = self._rng.permutation(len(policies)) if self._shuffles else range(len(policies))
        return itertools.cycle([policies[place] for place in order])

    def _choose(self, pattern: str, agent: str) -> str:
        policy: str = self._choosers[pattern](agent, self._episode, self._rng)
        if policy not in self._policies:
            raise DataError(
                f"{_KEY}: {self._mapping[pattern]} gave {quote(policy)} for agent {agent}, "
                f"expected one of {', '.join(self._policies)}"
            )
        return policy


def is_function(given: Any) -> bool:
    """Returns True if an entry of the mapping names a function, ``module:function``."""
    return isinstance(given, str) and ":" in given
