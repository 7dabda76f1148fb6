"""PNG and animated PNG, read back by another implementation."""

import io

import numpy as np
import pytest
from PIL import Image

from session.tensorplex.event_files import make_animated_png, png

MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@pytest.mark.parametrize("colours", MODES)
def test_png_is_lossless(colours: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (7, 11, colours), np.uint8)
    with Image.open(io.BytesIO(png(pixels))) as image:
        assert (image.format, image.mode) == ("PNG", MODES[colours])
        assert np.array_equal(np.asarray(image).reshape(pixels.shape), pixels)


@pytest.mark.parametrize("colours", MODES)
def test_animated_png_is_lossless(colours: int) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (5, 6, 4, colours), np.uint8)
    with Image.open(io.BytesIO(make_animated_png(frames, fps=20))) as image:
        assert image.n_frames == 5  # type: ignore[attr-defined]
        for index, frame in enumerate(frames):
            image.seek(index)
            assert image.info["duration"] == 50
            shown = np.asarray(image.convert(MODES[colours]))
            assert np.array_equal(shown.reshape(frame.shape), frame)


def test_extreme_speeds_are_clipped() -> None:
    frames = np.array([0, 255], np.uint8).reshape(2, 1, 1, 1)
    for fps, millis in ((1e9, 1), (1e-9, 65535)):
        with Image.open(io.BytesIO(make_animated_png(frames, fps))) as image:
            assert image.info["duration"] == pytest.approx(millis)


def test_a_still_video_lasts_as_long_as_its_frames() -> None:
    frames = np.zeros((3000, 2, 2, 3), np.uint8)
    frames[-1] = 255
    with Image.open(io.BytesIO(make_animated_png(frames, fps=25))) as image:
        assert image.n_frames == 2  # type: ignore[attr-defined]
        assert image.info["duration"] == pytest.approx(2999 * 40, rel=1e-3)
        image.seek(1)
        assert image.info["duration"] == 40


def test_a_video_of_one_frame_is_a_picture_too() -> None:
    frames = np.full((1, 2, 3, 3), 7, np.uint8)
    with Image.open(io.BytesIO(make_animated_png(frames, fps=25))) as image:
        assert np.array_equal(np.asarray(image.convert("RGB")), frames[0])
