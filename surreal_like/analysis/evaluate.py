"""Plays episodes with the trained policy of a run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from session.errors import UsageError
from session.process.seeding import component_seed, seed_all
from surreal_like.agent.evaluation import Evaluation
from surreal_like.env.frame_stack import stack_frames
from surreal_like.env.vector import make_vector_env
from surreal_like.policy import load_policy

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
        ``episodes``, ``checkpoint``, ``seconds``.

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
    policy = load_policy(folder, checkpoint, import_path=import_path)
    config = policy.config
    if seed is None:
        seed = component_seed(config.session_config.seed, "evaluate", 1)
    streams = min(config.session_config.evaluator.num_envs or _STREAMS, episodes)
    with contextlib.ExitStack() as stack:
        stack.enter_context(seed_all(seed))
        single = make_vector_env(config.env_config, num_envs=streams, seed=seed, evaluation=True)
        env = stack.enter_context(contextlib.closing(stack_frames(single, config.env_config)))
        played = Evaluation(episodes, streams)
        obs, _ = env.reset()
        state = None
        while not played.over:
            actions, state = policy(obs, state, deterministic=deterministic, first=played.first)
            obs, reward, terminated, truncated, info = env.step(actions)
            played.step(reward, terminated, truncated, info)
    seconds = time.monotonic() - began
    return {**played.summary(), "checkpoint": policy.checkpoint, "seconds": seconds}
