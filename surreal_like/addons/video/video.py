"""Videos of what a policy does: frames of environments, and files."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.errors import ConfigError, MissingExtra, UsageError
from surreal_like.agent.player import Player
from surreal_like.data.policy_names import agents_of
from surreal_like.env.batched import FirstStream
from surreal_like.env.environment import Env, Wrapper
from surreal_like.env.gym_adapter import GymAdapter
from surreal_like.env.registry import make_env, make_joint_env
from surreal_like.errors import DataError

# Environment variables on Linux that indicate a screen, or the user's choice of a driver.
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
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
    check_writer(path.suffix.lower())


def check_writer(suffix: str = ".mp4") -> None:
    """Raises MissingExtra if the package that writes videos of that kind is not installed."""
    needed = ("PIL",) if suffix == ".gif" else ("imageio", "imageio_ffmpeg")
    if any(find_spec(name) is None for name in needed):
        raise MissingExtra.named(f"a video as {suffix}", "video")


class VideoFile:
    """An ``.mp4`` file (H.264) that is written frame by frame: complete, or not there.

    Args:
        path: path of the file.
        fps: frames per second.

    Attributes:
        number: number of frames so far.
    """

    def __init__(self, path: Path, fps: float) -> None:
        import imageio.v2

        self.path = path
        self.number = 0
        self._beside = _beside(path)
        # All players support yuv420p, which needs even sizes; odd ones are enlarged by one pixel.
        self._writer = imageio.v2.get_writer(
            str(self._beside),
            format="FFMPEG",
            mode="I",
            fps=fps,
            codec="libx264",
            pixelformat="yuv420p",
            macro_block_size=2,
            ffmpeg_log_level="error",
        )

    def add(self, frame: Frame) -> None:
        """Appends a frame, uint8 ``[height, width, 3]``, of the size of the first one."""
        self._writer.append_data(frame)
        self.number += 1

    def close(self) -> None:
        """Completes the file."""
        self._writer.close()
        self._beside.replace(self.path)

    def discard(self) -> None:
        """Removes what was written."""
        with contextlib.suppress(OSError):
            self._writer.close()
        self._beside.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.stem}.part{path.suffix.lower()}")


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
    write = _write_gif if path.suffix.lower() == ".gif" else _write_mp4
    try:
        return write(path, frames, fps)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None


def _write_mp4(path: Path, frames: Iterable[Frame], fps: float) -> int:
    video = VideoFile(path, fps)
    try:
        for frame in frames:
            video.add(frame)
        video.close()
    except BaseException:
        video.discard()
        raise
    return video.number


def _write_gif(path: Path, frames: Iterable[Frame], fps: float) -> int:
    from PIL import Image

    counted, beside = _Counted(frames), _beside(path)
    # The fastest method to choose 256 colours: five times as many frames per second as the default.
    pictures = (
        Image.fromarray(np.ascontiguousarray(frame)).quantize(
            256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
        )
        for frame in counted
    )
    try:
        next(pictures).save(
            beside,
            format="GIF",
            save_all=True,
            append_images=pictures,
            duration=max(_GIF_LEAST_MILLISECONDS, round(1000 / fps)),
            loop=0,
        )
        beside.replace(path)
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


@contextmanager
def drawing_settings(*, window: bool) -> Iterator[None]:
    """Sets environment variables so that rendering needs no sound and, without a window, no screen.

    Variables set by the user are kept. Enter before the rendering libraries are imported.
    """
    settings = {"PYGAME_HIDE_SUPPORT_PROMPT": "1", "SDL_AUDIODRIVER": "dummy"}
    if not window:
        settings["SDL_VIDEODRIVER"] = "dummy"
    if sys.platform == "linux" and not any(os.environ.get(name) for name in SCREENS[:2]):
        settings["MUJOCO_GL"] = "egl"
    added = {name: value for name, value in settings.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def make_drawing_player(make: Callable[[Config], Player], config: Config) -> Player:
    """Builds the environments of a player so that the first one renders frames.

    Args:
        make: builds the environments of a resolved experiment.
        config: the experiment.

    Raises:
        UsageError: the environment cannot render.
    """
    config = config.copy()
    modes, draws, single = _render_modes(config)
    if not draws:
        there = ", ".join(map(str, modes)) or "none"
        raise UsageError(
            f"{config.env_config.env_name} has no pictures to show: its render modes are {there}, "
            f"needed is {_MODE}; its returns: surreal-like evaluate"
        )
    if single:
        # Registered vector code and worker processes do not draw.
        config.env_config.vector = "sync"
    if _MODE in modes:
        drawn = config.copy()
        for key in ("env_args", "eval_mode"):
            drawn.env_config[key] = {**(drawn.env_config.get(key) or {}), "render_mode": _MODE}
        # A user's own environment may render without this argument.
        with contextlib.suppress(ConfigError):
            return make(drawn)
    return make(config)


def _render_modes(config: Config) -> tuple[list[str], bool, bool]:
    """Returns the modes that an environment names, whether it may draw, and False if batched."""
    several = bool(agents_of(config))
    make: Any = make_joint_env if several else make_env
    with contextlib.closing(make(config.env_config, evaluation=True)) as env:
        modes = list(env.metadata.get("render_modes") or ())
        # An author's own environment may draw without naming a mode.
        own = not several and not isinstance(_innermost(env), GymAdapter)
        batched = isinstance(env, FirstStream)
        own = own and (not batched or env.draws)
    return modes, own or _MODE in modes, not batched


def _innermost(env: Env) -> Env:
    return env.unwrapped if isinstance(env, Wrapper) else env


def frames_per_second(player: Player, env_config: Mapping[str, Any]) -> float:
    """Returns the frames per second at the environment's intended speed."""
    usual = float(player.env.metadata.get("render_fps") or _USUAL_FPS)
    return usual / (env_config.get("action_repeat") or 1)


def draw(player: Player, name: str) -> Frame:
    """Returns a picture of the first environment of a player, uint8 ``[height, width, 3]``.

    Args:
        player: player of :func:`make_drawing_player`.
        name: name of the environment.

    Raises:
        UsageError: it could not draw itself.
        MissingExtra: a package for drawing is not installed.
        DataError: it has drawn something else.
    """
    from gymnasium.error import DependencyNotInstalled

    try:
        drawn = player.env.render()
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
