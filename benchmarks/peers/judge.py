"""Plays a policy greedily from given start states: the same for every system."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

# Greedy actions [N, ...] for observations [N, ...].
Act = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


def register(env_name: str) -> None:
    """Imports the module of an environment's name, and registers what it has: MinAtar asks for it.

    Args:
        env_name: of Gymnasium, with or without a module.
    """
    module, named, _ = env_name.partition(":")
    if named:
        getattr(importlib.import_module(module), "register_envs", lambda: None)()


def start_seeds(seed: int, episodes: int) -> list[int]:
    """Returns the seed of each episode's environment, for a run with a seed: no run has it."""
    return [10**6 * (seed + 1) + episode for episode in range(episodes)]


def judged(act: Act, env_name: str, seeds: Sequence[int], limit: int | None) -> float:
    """Returns the mean return of an episode for each seed; all episodes step together.

    Args:
        act: the policy.
        env_name: of Gymnasium.
        seeds: of the environments.
        limit: steps of the longest episode; None: the environment's own.
    """
    register(env_name)
    envs = [gymnasium.make(env_name, max_episode_steps=limit) for _ in seeds]
    observed = [env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=True)]
    returns, going = np.zeros(len(envs)), list(range(len(envs)))
    while going:
        actions = act(np.stack([observed[each] for each in going]))
        for each, action in zip(tuple(going), actions, strict=True):
            observed[each], reward, terminated, truncated, _ = envs[each].step(action)
            returns[each] += float(reward)
            if terminated or truncated:
                going.remove(each)
    for env in envs:
        env.close()
    return float(returns.mean())
