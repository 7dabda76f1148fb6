"""Shows a trained policy: episodes as a video, or in a window."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.errors import ConfigError, MissingExtra, UsageError
from session.process.seeding import component_seed, seed_all
from surreal_like.agent.evaluation import Evaluation, summarize
from surreal_like.agent.player import Player
from surreal_like.analysis.evaluate import TrainedPolicies
from surreal_like.env.base import Env, Wrapper
from surreal_like.env.gym_adapter import GymAdapter
from surreal_like.env.registry import make_env, make_joint_env
from surreal_like.errors import DataError
from surreal_like.policies.config import policies_of

_NO_SCREEN = "no screen to open a window on: write a file with --video out.mp4"
# Environment variables on Linux that indicate a screen, or the user's choice of a driver.
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
_MODE = "rgb_array"
_USUAL_FPS = 30.0

Frame = npt.NDArray[np.uint8]

_FORMATS = (".mp4", ".gif")
# Viewers replace shorter delays of a GIF by their own, much longer one.
_GIF_LEAST_MILLISECONDS = 20


def check_video(path: Path) -> None:
    """Checks, before anything is played, that a video can be written.

    Raises:
        UsageError: unknown file type, missing folder, or not writable.
        MissingExtra: the package that writes it is not installed.
    """
    if path.suffix.lower() not in _FORMATS:
        raise UsageError(f"cannot write {path}: the name of a video ends in .mp4 or .gif")
    if not os.path.isdir(path.parent):
        raise UsageError(f"cannot write {path}: there is no folder {path.parent}")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}; give a folder that you may write to"
        ) from None
    needed = ("PIL",) if path.suffix.lower() == ".gif" else ("imageio", "imageio_ffmpeg")
    if any(find_spec(name) is None for name in needed):
        raise MissingExtra.named(f"a video as {path.suffix}", "video")


def write_video(path: Path, frames: Iterable[Frame], fps: float) -> int:
    """Writes a complete video or none.

    Args:
        path: ``.mp4`` (H.264) or ``.gif``.
        frames: frames of one size, uint8 ``[height, width, 3]``.
        fps: frames per second.

    Returns:
        Number of frames.

    Raises:
        UsageError: the file cannot be written.
    """
    beside = path.with_name(f".{path.stem}.part{path.suffix.lower()}")
    counted = _Counted(frames)
    write = _write_gif if beside.suffix == ".gif" else _write_mp4
    try:
        write(beside, counted, fps)
        beside.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        beside.unlink(missing_ok=True)
    return counted.number


class _Counted:
    """Passes frames on and counts them."""

    def __init__(self, frames: Iterable[Frame]) -> None:
        self._frames = frames
        self.number = 0

    def __iter__(self) -> Iterator[Frame]:
        for frame in self._frames:
            self.number += 1
            yield frame


def _write_mp4(path: Path, frames: Iterable[Frame], fps: float) -> None:
    import imageio.v2

    # All players support yuv420p, which needs even sizes; odd ones are enlarged by one pixel.
    writer = imageio.v2.get_writer(
        str(path),
        format="FFMPEG",
        mode="I",
        fps=fps,
        codec="libx264",
        pixelformat="yuv420p",
        macro_block_size=2,
        ffmpeg_log_level="error",
    )
    with contextlib.closing(writer):
        for frame in frames:
            writer.append_data(frame)


def _write_gif(path: Path, frames: Iterable[Frame], fps: float) -> None:
    from PIL import Image

    # The fastest method to choose 256 colours: five times as many frames per second as the default.
    pictures = (
        Image.fromarray(np.ascontiguousarray(frame)).quantize(
            256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
        )
        for frame in frames
    )
    next(pictures).save(
        path,
        format="GIF",
        save_all=True,
        append_images=pictures,
        duration=max(_GIF_LEAST_MILLISECONDS, round(1000 / fps)),
        loop=0,
    )


def check_screen() -> None:
    """Checks, before anything is played, that a window can be opened.

    Raises:
        UsageError: there is no screen.
        MissingExtra: the package that opens windows is not installed.
    """
    if sys.platform == "linux" and not any(os.environ.get(name) for name in _SCREENS):
        raise UsageError(_NO_SCREEN)
    if find_spec("pygame") is None:
        raise MissingExtra.named("a window", "video")


@contextmanager
def drawing_settings(*, window: bool) -> Iterator[None]:
    """Sets environment variables so that rendering needs no sound and, without a window, no screen.

    Variables set by the user are kept. Enter before the rendering libraries are imported.
    """
    settings = {"PYGAME_HIDE_SUPPORT_PROMPT": "1", "SDL_AUDIODRIVER": "dummy"}
    if not window:
        settings["SDL_VIDEODRIVER"] = "dummy"
    if sys.platform == "linux" and not any(os.environ.get(name) for name in _SCREENS[:2]):
        settings["MUJOCO_GL"] = "egl"
    added = {name: value for name, value in settings.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


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
        player = _make_player(trained, deterministic=deterministic, seed=seed)
        stack.callback(player.close)
        fps = _fps(player, config.env_config)
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


def _make_player(trained: TrainedPolicies, *, deterministic: bool, seed: int) -> Player:
    """Builds one environment that renders frames, and lets the policy play it.

    Raises:
        UsageError: the environment cannot render.
    """
    config = trained.config.copy()
    name = config.env_config.env_name
    modes, draws = _render_modes(config)
    if not draws:
        there = ", ".join(map(str, modes)) or "none"
        raise UsageError(
            f"{name} has no pictures to show: its render modes are {there}, needed is {_MODE}; "
            "its returns: surreal-like evaluate"
        )
    make = partial(trained.make_player, deterministic=deterministic, num_envs=1, seed=seed)
    # Native vector code and worker processes do not draw.
    config.env_config.vector = "sync"
    if _MODE in modes:
        drawn = config.copy()
        for key in ("env_args", "eval_mode"):
            drawn.env_config[key] = {**(drawn.env_config.get(key) or {}), "render_mode": _MODE}
        # A user's own environment may render without this argument.
        with contextlib.suppress(ConfigError):
            return make(drawn)
    return make(config)


def _render_modes(config: Config) -> tuple[list[str], bool]:
    """Returns the modes that an environment names, and True if it may draw."""
    several = bool(policies_of(config))
    make: Any = make_joint_env if several else make_env
    with contextlib.closing(make(config.env_config, evaluation=True)) as env:
        modes = list(env.metadata.get("render_modes") or ())
        # An author's own environment may draw without naming a mode.
        own = not several and not isinstance(_innermost(env), GymAdapter)
    return modes, own or _MODE in modes


def _innermost(env: Env) -> Env:
    return env.unwrapped if isinstance(env, Wrapper) else env


def _fps(player: Player, env_config: Mapping[str, Any]) -> float:
    """Returns the frames per second at the environment's intended speed."""
    usual = float(player.metadata.get("render_fps") or _USUAL_FPS)
    return usual / (env_config.get("action_repeat") or 1)


def _pictures(player: Player, played: Evaluation, name: str) -> Iterator[Frame]:
    """Plays; yields a frame after each reset and step."""
    player.fetch()
    player.reset()
    yield _picture(player, name)
    while not played.over:
        player.fetch()
        player.step(played)
        yield _picture(player, name)


def _picture(player: Player, name: str) -> Frame:
    from gymnasium.error import DependencyNotInstalled

    try:
        drawn = player.render()
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
