"""Writes frames into a video file one by one, with bounded memory."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from session.errors import MissingExtra, UsageError

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
