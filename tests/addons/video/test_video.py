"""Videos: each picture once, whole files or none, odd sizes, and clear words where it fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from session.errors import MissingExtra, UsageError
from session.program import install_line
from surreal_like.addons.video.video import check_video, write_video
from tests.addons.video.reading_video import read_video

Frame = npt.NDArray[np.uint8]


def frames(number: int, height: int = 32, width: int = 48) -> Iterator[Frame]:
    """Give pictures of which each is brighter than the one before, red at the left side."""
    for index in range(number):
        frame = np.full((height, width, 3), 20 * index, np.uint8)
        frame[:, : width // 2] = (200, 20 * index, 0)
        yield frame


def test_an_mp4_holds_every_picture(tmp_path: Path) -> None:
    assert write_video(tmp_path / "a.mp4", frames(10), 25.0) == 10
    read, said = read_video(tmp_path / "a.mp4")
    assert [frame.shape for frame in read] == [(32, 48, 3)] * 10
    brightness = [float(frame[:, 30:].mean()) for frame in read]
    assert brightness == sorted(brightness)
    left = read[5][:, :20].reshape(-1, 3).mean(0)
    assert left[0] > left[2] + 50
    for word in ("h264", "yuv420p", "25 fps"):
        assert word in said


def test_a_gif_holds_every_picture_and_goes_on_for_ever(tmp_path: Path) -> None:
    assert write_video(tmp_path / "a.gif", frames(10), 25.0) == 10
    with Image.open(tmp_path / "a.gif") as image:
        assert (image.n_frames, image.size) == (10, (48, 32))  # type: ignore[attr-defined]
        assert (image.info["duration"], image.info["loop"]) == (40, 0)
        image.seek(9)
        assert image.convert("RGB").getpixel((40, 10)) == pytest.approx((180, 180, 180), abs=12)


def test_a_gif_is_not_quicker_than_viewers_can_show(tmp_path: Path) -> None:
    write_video(tmp_path / "a.gif", frames(2), 200.0)
    with Image.open(tmp_path / "a.gif") as image:
        assert image.info["duration"] == 20


def test_odd_sizes_grow_by_one_pixel(tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4", frames(3, 33, 49), 10.0)
    [first, *_], _ = read_video(tmp_path / "a.mp4")
    assert first.shape == (34, 50, 3)


@pytest.mark.parametrize("name", ["a.mp4", "a.gif"])
def test_what_fails_in_the_middle_leaves_nothing_behind(tmp_path: Path, name: str) -> None:
    def broken() -> Iterator[Frame]:
        yield from frames(3)
        raise ValueError("no more")

    (tmp_path / name).write_text("old")
    with pytest.raises(ValueError, match="no more"):
        write_video(tmp_path / name, broken(), 10.0)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "old"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.avi", r"ends in \.mp4 or \.gif"),
        ("a", r"ends in \.mp4 or \.gif"),
        ("no/a.mp4", "there is no folder"),
    ],
)
def test_what_is_no_video(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_video(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "missing"), [("a.mp4", "imageio"), ("a.mp4", "imageio_ffmpeg"), ("a.gif", "PIL")]
)
def test_what_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, missing: str
) -> None:
    check_video(tmp_path / name)
    monkeypatch.setattr(
        "surreal_like.addons.video.video.find_spec",
        lambda package: None if package == missing else package,
    )
    with pytest.raises(MissingExtra, match=re.escape(install_line("video"))):
        check_video(tmp_path / name)
