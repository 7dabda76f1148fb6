"""Emulator of Atari games (ale-py, the extra ``atari``): names, screens, starts of games."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from session.did_you_mean import did_you_mean
from session.errors import ConfigError, MissingExtra
from surreal_like.env.environment import Info

Frame = npt.NDArray[np.uint8]

PREFIX = "atari:"


def import_ale(name: str) -> Any:
    """Returns the emulator's module; raises MissingExtra if it is not installed."""
    try:
        return importlib.import_module("ale_py")
    except ModuleNotFoundError as error:
        raise MissingExtra.named(name, "atari") from error


def list_games() -> list[str]:
    """Returns the names of all games, such as ``MsPacman``; none without the emulator."""
    try:
        roms = _roms()
    except ModuleNotFoundError:
        return []
    return sorted(_game_name(rom) for rom in roms.get_all_rom_ids() if roms.get_rom_path(rom))


def rom_of(game: str) -> str:
    """Returns the emulator's name of a game: ``ms_pacman`` for ``MsPacman``.

    Raises:
        MissingExtra: the emulator is not installed.
        ConfigError: there is no such game; the message names the nearest ones.
    """
    import_ale(f"{PREFIX}{game}")
    games = list_games()
    if game not in games:
        otherwise = "such as atari:Pong"
        hint = did_you_mean(game, games, most=3, shown=PREFIX.__add__, otherwise=otherwise)
        raise ConfigError(f"env_config.env_name: no {PREFIX}{game}; {hint}")
    rom: str = next(rom for rom in _roms().get_all_rom_ids() if _game_name(rom) == game)
    return rom


def _roms() -> Any:
    return importlib.import_module("ale_py.roms")


def _game_name(rom: str) -> str:
    return rom.title().replace("_", "")


class Emulator:
    """Emulator of one game, with the start of a game.

    Args:
        game: such as ``Pong``.
        noop_max, fires, grayscale, full_action_space, repeat_action_probability: as in
            :class:`surreal_like.addons.atari.atari.AtariSettings`.
    """

    def __init__(
        self,
        game: str,
        *,
        noop_max: int,
        fires: bool,
        grayscale: bool,
        full_action_space: bool,
        repeat_action_probability: float,
    ) -> None:
        ale_py = import_ale(f"{PREFIX}{game}")
        rom = rom_of(game)
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self._path = _roms().get_rom_path(rom)
        self._ale = ale_py.ALEInterface()
        self._ale.setFloat("repeat_action_probability", repeat_action_probability)
        self._ale.loadROM(self._path)
        self.actions = (
            self._ale.getLegalActionSet() if full_action_space else self._ale.getMinimalActionSet()
        )
        self.size: tuple[int, int] = tuple(self._ale.getScreenDims())
        self.seeded = False
        self._noop_max = max(noop_max, 1)
        self._grayscale = grayscale
        self._no_op, fire = ale_py.Action.NOOP, ale_py.Action.FIRE
        self._fire = fire if fires and fire in self.actions else None
        self._words: Callable[[], int] = int

    @property
    def lives(self) -> int:
        """Number of lives left."""
        return int(self._ale.lives())

    @property
    def over(self) -> bool:
        """True if the game has ended."""
        return bool(self._ale.game_over())

    def begin(self, seed: int | None) -> None:
        """Begins a game: the fire button, then screens without an action.

        seed: of all randomness from now on; None: the generators continue.
        """
        if seed is not None:
            self.seeded = True
            self._words = mersenne_words(seed)
            self._ale.setInt("random_seed", seed)
            self._ale.loadROM(self._path)
        self._ale.reset_game()
        if self._fire is not None:
            self._ale.act(self._fire)
        idle = draw_below(self._noop_max, self._words)
        for _ in range(idle - (self._fire is not None)):
            self._ale.act(self._no_op)
            if self.over:
                self._ale.reset_game()

    def act(self, action: int) -> int:
        """Runs one screen with an action; returns the reward."""
        return int(self._ale.act(self.actions[action]))

    def screen(self) -> Frame:
        """Returns the current screen, gray or in colours."""
        screen: Frame = self._ale.getScreenGrayscale() if self._grayscale else self.picture()
        return screen

    def picture(self) -> Frame:
        """Returns the current screen, in colours."""
        picture: Frame = self._ale.getScreenRGB()
        return picture

    def counts(self) -> Info:
        """Returns the lives, and the screens since the start and of this game."""
        return {
            "lives": self.lives,
            "frame_number": self._ale.getFrameNumber(),
            "episode_frame_number": self._ale.getEpisodeFrameNumber(),
        }


def mersenne_words(seed: int) -> Callable[[], int]:
    """Returns a source of 32-bit words: Mersenne Twister seeded as in C++, as ale-py draws."""
    generator = np.random.RandomState(seed)
    return lambda: int(generator.randint(0, 2**32, dtype=np.uint32))


def draw_below(bound: int, words: Callable[[], int]) -> int:
    """Draws a whole number from 0 to below ``bound`` as GNU's C++ library does (Lemire 2019)."""
    product = words() * bound
    if product % 2**32 < bound:
        least = (2**32 - bound) % bound
        while product % 2**32 < least:
            product = words() * bound
    return product >> 32
