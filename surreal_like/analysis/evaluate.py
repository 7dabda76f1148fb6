"""Plays episodes with the trained policy of a run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from session.config import Config
from session.errors import UsageError
from session.process.seeding import component_seed, seed_all
from surreal_like.agent.acting import Acting
from surreal_like.agent.evaluation import Evaluation
from surreal_like.agent.player import Player, make_player
from surreal_like.policies.config import learning_policies, policies_of
from surreal_like.policies.player import make_joint_player
from surreal_like.policy import Policy, load_policy
from surreal_like.policy.policy import find_run

_STREAMS = 100


def evaluate(
    folder: str | Path,
    *,
    episodes: int = 100,
    checkpoint: str | int = "best",
    seed: int | None = None,
    deterministic: bool = True,
    import_path: Sequence[str | Path] = (),
) -> dict[str, Any]:
    """Plays episodes in this process, with the environment of evaluators.

    Args:
        folder: the run folder.
        episodes: number of episodes; divided evenly among at most 100 streams.
        checkpoint: ``best``, ``latest``, or the iteration of a checkpoint.
        seed: seed of the environments; None: derived from the run's, with episodes not seen by its
            evaluators.
        deterministic: the best actions, or actions drawn from the policy.
        import_path: further folders with modules that the run needs.

    Returns:
        ``mean_return``, ``std_return``, ``min_return``, ``max_return``, ``mean_length``,
        ``episodes``, ``checkpoint``, ``seconds``; with several policies also ``policies``, the mean
        return of the agents of each.

    Raises:
        UsageError: the folder is no run folder or has no such checkpoint, ``episodes`` is below 1,
            or the seed is below 0.
        CheckpointError: the checkpoint is incomplete.
    """
    if episodes < 1:
        raise UsageError(f"cannot play {episodes} episodes: ask for at least one")
    if seed is not None and seed < 0:
        raise UsageError(f"the seed is {seed}, expected 0 or more")
    began = time.monotonic()
    config, policies = load_policies(folder, checkpoint, import_path)
    if seed is None:
        seed = component_seed(config.session_config.seed, "evaluate", 1)
    streams = min(config.session_config.evaluator.num_envs or _STREAMS, episodes)
    with contextlib.ExitStack() as stack:
        stack.enter_context(seed_all(seed))
        acting = acting_of(policies, deterministic)
        player = make_player_for(acting, config, num_envs=streams, seed=seed)
        stack.callback(player.close)
        played = Evaluation(episodes, streams)
        player.reset()
        while not played.over:
            player.step(played)
    seconds = time.monotonic() - began
    return {
        **played.summary(),
        "checkpoint": next(iter(policies.values())).checkpoint,
        "seconds": seconds,
    }


def load_policies(
    folder: str | Path, checkpoint: str | int, import_path: Sequence[str | Path]
) -> tuple[Config, dict[str, Policy]]:
    """Returns the config of a run, and all its policies by name; raises as :func:`evaluate`."""
    config = find_run(folder).read_config()
    policies = {
        name: load_policy(folder, checkpoint, policy=name, import_path=import_path)
        for name in learning_policies(config)
    }
    return config, policies


def acting_of(policies: Mapping[str, Policy], deterministic: bool) -> dict[str, Acting]:
    """Returns what lets each policy act, by its best actions or by drawn ones."""
    return {
        name: Acting(policy.greedy if deterministic else policy.agent)
        for name, policy in policies.items()
    }


def make_player_for(
    acting: Mapping[str, Acting], config: Config, *, num_envs: int, seed: int
) -> Player:
    """Builds the environments of an evaluation, and lets the policies play them."""
    if policies_of(config):
        return make_joint_player(acting, config, num_envs=num_envs, seed=seed)
    [only] = acting.values()
    return make_player(only, config, num_envs=num_envs, seed=seed)
