"""What ffmpeg finds in a video file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import numpy.typing as npt

_HEADER_LINES = 3


def read_video(path: Path) -> tuple[list[npt.NDArray[np.uint8]], str]:
    """Return all pictures of a file, and what ffmpeg says of it."""
    # passthrough: each picture once, at whatever pace the file wants.
    options = ["-fps_mode", "passthrough", "-f", "image2pipe", "-c:v", "ppm", "-"]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), *options]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    data, frames = done.stdout, []
    while data:
        kind, size, depth, rest = data.split(b"\n", _HEADER_LINES)
        assert (kind, depth) == (b"P6", b"255")
        width, height = map(int, size.split())
        end = width * height * 3
        frames.append(np.frombuffer(rest[:end], np.uint8).reshape(height, width, 3))
        data = rest[end:]
    return frames, done.stderr.decode()
