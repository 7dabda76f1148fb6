"""Shows a trained policy: episodes as a video, or in a window."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from session.errors import ConfigError, MissingExtra, UsageError
from session.process.seeding import component_seed, seed_all
from surreal_like.agent.evaluation import Evaluation
from surreal_like.analysis.video import check_video, write_video
from surreal_like.analysis.window import check_screen, drawing_settings, show_frames
from surreal_like.env.base import Env, VectorEnv, Wrapper
from surreal_like.env.frame_stack import stack_frames
from surreal_like.env.gym_adapter import GymAdapter
from surreal_like.env.registry import make_env
from surreal_like.env.vector import make_sync, stream_seeds
from surreal_like.errors import DataError
from surreal_like.policy import Policy, load_policy

Frame = npt.NDArray[np.uint8]

_MODE = "rgb_array"
_USUAL_FPS = 30.0


def play(
    folder: str | Path,
    *,
    video: str | Path | None = None,
    episodes: int = 1,
    checkpoint: str | int = "best",
    seed: int | None = None,
    deterministic: bool = True,
    import_path: Sequence[str | Path] = (),
) -> dict[str, Any]:
    """Plays episodes in the environment of evaluators, and shows its rendered frames.

    Args:
        video: ``.mp4`` or ``.gif`` to write; None: a window on this machine's screen.
        episodes: number of episodes; closing the window ends them early.
        folder, checkpoint, seed, deterministic, import_path: as in :func:`evaluate`.

    Returns:
        ``returns`` and ``lengths`` of the episodes that ended, ``frames``, ``fps``, ``checkpoint``
        and ``video``, None for a window.

    Raises:
        UsageError: as in :func:`evaluate`; no screen, an unknown kind of video, or an environment
            that cannot render.
        MissingExtra: a package for videos or rendering is not installed.
        CheckpointError: the checkpoint is incomplete.
    """
    if episodes < 1:
        raise UsageError(f"cannot play {episodes} episodes: ask for at least one")
    if seed is not None and seed < 0:
        raise UsageError(f"the seed is {seed}, expected 0 or more")
    path = Path(video) if video is not None else None
    if path is not None:
        check_video(path)
    else:
        check_screen()
    policy, played = (
        load_policy(folder, checkpoint, import_path=import_path),
        Evaluation(episodes, 1),
    )
    if seed is None:
        seed = component_seed(policy.config.session_config.seed, "play", 1)
    with contextlib.ExitStack() as stack:
        stack.enter_context(seed_all(seed))
        stack.enter_context(drawing_settings(window=path is None))
        single = _make_env(policy.config.env_config, seed)
        env = stack_frames(
            stack.enter_context(contextlib.closing(single)), policy.config.env_config
        )
        fps = _fps(env, policy.config.env_config)
        pictures = _pictures(policy, env, played, deterministic)
        if path is not None:
            frames = write_video(path, pictures, fps)
        else:
            frames = show_frames(pictures, fps, str(policy.config.env_config.env_name))
    return {
        "returns": [float(each["return"]) for each in played.finished],
        "lengths": [int(each["length"]) for each in played.finished],
        "frames": frames,
        "fps": fps,
        "checkpoint": policy.checkpoint,
        "video": str(path) if path is not None else None,
    }


def _make_env(env_config: Mapping[str, Any], seed: int) -> VectorEnv:
    """Builds one stream that renders frames.

    Raises:
        UsageError: the environment cannot render.
    """
    with contextlib.closing(make_env(env_config, evaluation=True)) as env:
        modes = list(env.metadata.get("render_modes") or ())
        draws = _MODE in modes or not isinstance(_innermost(env), GymAdapter)
    name = env_config["env_name"]
    if not draws:
        there = ", ".join(map(str, modes)) or "none"
        raise UsageError(
            f"{name} has no pictures to show: its render modes are {there}, needed is {_MODE}; "
            "its returns: surreal-like evaluate"
        )
    seeds = stream_seeds(seed, 1)
    if _MODE in modes:
        mode = {"render_mode": _MODE}
        drawn = {**env_config, "env_args": {**(env_config.get("env_args") or {}), **mode}}
        drawn["eval_mode"] = {**(env_config.get("eval_mode") or {}), **mode}
        # A user's own environment may render without this argument.
        with contextlib.suppress(ConfigError):
            return make_sync(drawn, seeds, evaluation=True)
    return make_sync(env_config, seeds, evaluation=True)


def _innermost(env: Env) -> Env:
    return env.unwrapped if isinstance(env, Wrapper) else env


def _fps(env: VectorEnv, env_config: Mapping[str, Any]) -> float:
    """Returns the frames per second at the environment's intended speed."""
    usual = float(env.metadata.get("render_fps") or _USUAL_FPS)
    return usual / (env_config.get("action_repeat") or 1)


def _pictures(
    policy: Policy, env: VectorEnv, played: Evaluation, deterministic: bool
) -> Iterator[Frame]:
    """Plays; yields a frame after each reset and step."""
    obs, _ = env.reset()
    yield _picture(env, policy)
    state = None
    while not played.over:
        actions, state = policy(obs, state, deterministic=deterministic, first=played.first)
        obs, reward, terminated, truncated, info = env.step(actions)
        played.step(reward, terminated, truncated, info)
        yield _picture(env, policy)


def _picture(env: VectorEnv, policy: Policy) -> Frame:
    from gymnasium.error import DependencyNotInstalled

    name = policy.config.env_config.env_name
    try:
        drawn = env.render()
    except (DependencyNotInstalled, ModuleNotFoundError) as error:
        raise MissingExtra.named(f"a picture of {name}", "video") from error
    except Exception as error:
        raise UsageError(f"{name} could not draw itself: {error!r}") from error
    if drawn is None:
        raise UsageError(f"{name} has no pictures to show; its returns: surreal-like evaluate")
    pixels = np.asarray(drawn)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in (3, 4):
        raise DataError(
            f"{name}: render() gave {pixels.dtype} {list(pixels.shape)}, "
            "expected uint8 [height, width, 3]"
        )
    return pixels[:, :, :3]
