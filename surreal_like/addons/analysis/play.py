"""Shows a trained policy: episodes as a video, or in a window."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from session.errors import MissingExtra, UsageError
from session.process.seeding import component_seed, seed_all
from surreal_like.addons.analysis.evaluate import TrainedPolicies
from surreal_like.addons.video.video import (
    SCREENS,
    Frame,
    check_video,
    draw,
    drawing_settings,
    frames_per_second,
    make_drawing_player,
    write_video,
)
from surreal_like.agent.evaluation import Evaluation, summarize
from surreal_like.agent.player import Player

_NO_SCREEN = "no screen to open a window on: write a file with --video out.mp4"


def check_screen() -> None:
    """Checks, before anything is played, that a window can be opened.

    Raises:
        UsageError: there is no screen.
        MissingExtra: the package that opens windows is not installed.
    """
    if sys.platform == "linux" and not any(os.environ.get(name) for name in SCREENS):
        raise UsageError(_NO_SCREEN)
    if find_spec("pygame") is None:
        raise MissingExtra.named("a window", "video")


def show_frames(frames: Iterable[npt.NDArray[np.uint8]], fps: float, title: str) -> int:
    """Shows frames until there are no more, or until the window is closed.

    Args:
        frames: uint8 ``[height, width, 3]``.
        fps: frames per second.
        title: title of the window.

    Returns:
        Number of frames shown.

    Raises:
        UsageError: there is no screen.
    """
    import pygame

    clock, screen, shown = pygame.time.Clock(), None, 0
    for frame in frames:
        pixels = np.swapaxes(frame, 0, 1)  # pygame counts columns first
        if screen is None:
            screen = _open(pygame, (pixels.shape[0], pixels.shape[1]), title)
        pygame.surfarray.blit_array(screen, pixels)
        pygame.display.flip()
        shown += 1
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            break
        clock.tick(fps)
    pygame.display.quit()
    return shown


def _open(pygame: Any, size: tuple[int, int], title: str) -> Any:
    try:
        screen = pygame.display.set_mode(size)
    except pygame.error as error:
        raise UsageError(f"{_NO_SCREEN} ({error})") from None
    pygame.display.set_caption(title)
    return screen


def play(
    folder: str | Path,
    *,
    video: str | Path | None = None,
    episodes: int = 1,
    checkpoint: str | int = "best",
    policies: Mapping[str, str | int] = MappingProxyType({}),
    seed: int | None = None,
    deterministic: bool = True,
    import_path: Sequence[str | Path] = (),
) -> dict[str, Any]:
    """Plays episodes in the environment of evaluators, and shows its rendered frames.

    Args:
        video: ``.mp4`` or ``.gif`` to write; None: a window on this machine's screen.
        episodes: number of episodes; closing the window ends them early.
        folder, checkpoint, policies, seed, deterministic, import_path: as in :func:`evaluate`.

    Returns:
        ``returns`` and ``lengths`` of the episodes that ended, with several policies ``policies``,
        the mean return of the agents of each in each episode, ``frames``, ``fps``, ``checkpoint``
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
    trained = TrainedPolicies(folder, checkpoint, policies, import_path)
    config = trained.config
    played = Evaluation(episodes, 1)
    if seed is None:
        seed = component_seed(config.session_config.seed, "play", 1)
    with contextlib.ExitStack() as stack:
        stack.enter_context(seed_all(seed))
        stack.enter_context(drawing_settings(window=path is None))
        make = partial(trained.make_player, deterministic=deterministic, num_envs=1, seed=seed)
        player = make_drawing_player(make, config)
        stack.callback(player.close)
        fps = frames_per_second(player, config.env_config)
        pictures = _pictures(player, played, str(config.env_config.env_name))
        if path is not None:
            frames = write_video(path, pictures, fps)
        else:
            frames = show_frames(pictures, fps, str(config.env_config.env_name))
    return {
        "returns": [float(each["return"]) for each in played.finished],
        "lengths": [int(each["length"]) for each in played.finished],
        **_by_policy(played),
        "frames": frames,
        "fps": fps,
        "checkpoint": trained.checkpoint,
        "video": str(path) if path is not None else None,
    }


def _by_policy(played: Evaluation) -> dict[str, list[dict[str, float]]]:
    """Returns the mean return of each policy in each episode; nothing with one policy."""
    found = [summarize([each]).get("policies", {}) for each in played.finished]
    return {"policies": found} if any(found) else {}


def _pictures(player: Player, played: Evaluation, name: str) -> Iterator[Frame]:
    """Plays; yields a frame after each reset and step."""
    player.fetch()
    player.reset()
    yield draw(player, name)
    while not played.over:
        player.fetch()
        player.step(played)
        yield draw(player, name)
