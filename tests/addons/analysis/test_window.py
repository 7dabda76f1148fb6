"""A window: only where there is a screen, at its pace, until it is closed. SDL has a dummy one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pygame
import pytest

from session.errors import MissingExtra, UsageError
from surreal_like.addons.analysis.play import check_screen, show_frames
from surreal_like.addons.video.video import drawing_settings

Frame = npt.NDArray[np.uint8]


def frames(number: int) -> Iterator[Frame]:
    for index in range(number):
        yield np.full((20, 30, 3), index, np.uint8)


@pytest.fixture
def no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)


def test_pictures_are_shown_at_their_pace() -> None:
    began = time.monotonic()
    assert show_frames(frames(6), 50.0, "chain") == 6
    assert time.monotonic() - began > 0.08
    assert not pygame.display.get_init()


def test_what_is_shown_is_the_picture() -> None:
    seen: list[object] = []

    def watched() -> Iterator[Frame]:
        frame = np.zeros((20, 30, 3), np.uint8)
        frame[2, 5] = (10, 20, 30)
        yield frame
        surface = pygame.display.get_surface()
        assert surface is not None  # pygame-ce has this type
        seen.append(tuple(surface.get_at((5, 2)))[:3])
        seen.append(surface.get_size())
        seen.append(pygame.display.get_caption()[0])

    show_frames(watched(), 1000.0, "chain")
    assert seen == [(10, 20, 30), (30, 20), "chain"]


def test_a_closed_window_is_the_end() -> None:
    def closed() -> Iterator[Frame]:
        yield from frames(2)
        pygame.event.post(pygame.event.Event(pygame.QUIT))
        yield from frames(100)

    assert show_frames(closed(), 1000.0, "chain") == 3


def test_without_a_screen_the_way_out_is_named(
    no_screen: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    with pytest.raises(UsageError, match=r"no screen to open a window on: .* --video out\.mp4"):
        check_screen()
    monkeypatch.setenv("DISPLAY", ":0")
    check_screen()
    monkeypatch.setattr("surreal_like.addons.analysis.play.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"\[video\]"):
        check_screen()


def test_a_screen_that_does_not_open_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "nosuchdriver")
    pygame.display.quit()
    with pytest.raises(UsageError, match=r"no screen .* --video out\.mp4 \(.*nosuchdriver"):
        show_frames(frames(2), 50.0, "chain")


def test_settings_of_drawing_last_as_long_as_the_drawing(
    no_screen: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("SDL_AUDIODRIVER", "alsa")
    before = dict(os.environ)
    with drawing_settings(window=False):
        assert os.environ["SDL_VIDEODRIVER"] == "dummy"
        assert os.environ["SDL_AUDIODRIVER"] == "alsa"
        assert os.environ["MUJOCO_GL"] == "egl"
    assert dict(os.environ) == before
    with drawing_settings(window=True):
        assert "SDL_VIDEODRIVER" not in os.environ
