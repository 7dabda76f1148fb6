"""Encodes pictures as PNG and videos as animated PNG, both lossless."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

# Level 3 compresses a frame nearly as well as level 9 in a fraction of the time.
_LEVEL = 3

Pixels = npt.NDArray[Any]


def png(pixels: Pixels) -> bytes:
    """Encodes one picture as PNG, uint8 ``[H, W, C]`` with 1, 3 or 4 colours."""
    return _encode(pixels[None])


def animated_png(frames: Pixels, fps: float) -> bytes:
    """Encodes a video as animated PNG, uint8 ``[T, H, W, C]``, repeated without end.

    A frame that equals the one before it lengthens that one.
    """
    delay_millis = int(np.clip(round(1000 / fps), 1, 0xFFFF))
    return _encode(frames, save_all=True, duration=delay_millis, loop=0)


def _encode(frames: Pixels, **options: Any) -> bytes:
    grey = frames.shape[-1] == 1
    first, *others = [Image.fromarray(each[..., 0] if grey else each) for each in frames]
    file = BytesIO()
    first.save(file, "PNG", compress_level=_LEVEL, append_images=others, **options)
    return file.getvalue()
