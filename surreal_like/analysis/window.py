"""Shows frames in a window, at their intended speed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from session.errors import MissingExtra, UsageError

_NO_SCREEN = "no screen to open a window on: write a file with --video out.mp4"
# Environment variables on Linux that indicate a screen, or the user's choice of a driver.
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")


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
