"""Atari games with the usual preprocessing, one at a time.

``env_config.env_name`` is ``atari:Pong``; the ``env_args`` are those of :class:`AtariSettings`.
The emulator is ale-py (the extra ``atari``); its own vector code, which gives the same frames, is
:mod:`surreal_like.addons.atari.vector`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from surreal_like.addons.atari.emulator import Emulator, Frame
from surreal_like.env.actions import ActionValidator
from surreal_like.env.environment import Env, Info, Step

Image = npt.NDArray[np.uint8]

# A sliver thinner than this adds nothing to the mean.
_SLIVER = 1e-3


class AreaResize:
    """Shrinks images ``[height, width]`` or ``[height, width, channels]``, uint8.

    The mean is taken in float32, first along rows and then down columns, pixel after pixel, and
    rounded half to even: the same numbers as OpenCV's ``INTER_AREA`` where no side shrinks by a
    whole factor.

    Args:
        source: height and width of the given image.
        target: height and width of the new image.

    Raises:
        ConfigError: the target is larger than the source, or empty.
    """

    def __init__(self, source: tuple[int, int], target: tuple[int, int]) -> None:
        if not all(0 < new <= old for old, new in zip(source, target, strict=True)):
            raise ConfigError(f"an image of {list(source)} cannot be shrunk to {list(target)}")
        self._same = source == target
        self._down, self._across = (_taps(*sides) for sides in zip(source, target, strict=True))

    def __call__(self, image: Image) -> Image:
        """Returns a new image."""
        if self._same:
            return image.copy()
        rest = (1,) * (image.ndim - 2)
        across = _mean(image, *self._across, axis=1, shape=(1, -1, *rest))
        down = _mean(across, *self._down, axis=0, shape=(-1, 1, *rest))
        return np.rint(down).astype(np.uint8)


def _mean(
    image: npt.NDArray[np.generic],
    places: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32],
    *,
    axis: int,
    shape: tuple[int, ...],
) -> npt.NDArray[np.float32]:
    """Returns weighted sums of the pixels that each new one covers, in the order of the taps."""
    total: npt.NDArray[np.float32] = image.take(places[0], axis) * weights[0].reshape(shape)
    for place, weight in zip(places[1:], weights[1:], strict=True):
        total += image.take(place, axis) * weight.reshape(shape)
    return total


def _taps(source: int, target: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Returns the old pixels that each new one covers, and shares, both ``[taps, target]``."""
    scale = 1.0 / (target / source)
    covered = [_cover(new * scale, scale, source) for new in range(target)]
    taps = max(map(len, covered))
    padded = [each + [(each[-1][0], 0.0)] * (taps - len(each)) for each in covered]
    places = np.array([[place for place, _ in each] for each in padded], np.int64)
    weights = np.array([[weight for _, weight in each] for each in padded], np.float32)
    return places.T.copy(), weights.T.copy()


def _cover(begin: float, scale: float, source: int) -> list[tuple[int, float]]:
    """Returns the old pixels from ``begin`` on that one new pixel covers, and their shares."""
    end = begin + scale
    width = min(scale, source - begin)
    last = min(math.floor(end), source - 1)
    first = min(math.ceil(begin), last)
    found = [(place, 1.0 / width) for place in range(first, last)]
    if first - begin > _SLIVER:
        found.insert(0, (first - 1, (first - begin) / width))
    if end - last > _SLIVER:
        found.append((last, min(end - last, 1.0, width) / width))
    return found


_NO_OP = 0
_SCREENS_PER_SECOND = 60


@dataclass(frozen=True, kw_only=True)
class AtariSettings:
    """Preprocessing of a game (Mnih et al. 2015, Methods).

    Args:
        episodic_life: a lost life ends the episode for learning, but not the game: the next
            episode begins at that point, and returns are those of whole games. In evaluation
            this is off unless ``env_config.eval_mode`` sets it.
        frameskip: screens for which an action is repeated.
        maxpool: each pixel of a frame is the brighter one of the last two screens.
        noop_max: a game begins with a random number of screens without an action, below this.
        use_fire_reset: a game begins with the fire button, where there is one.
        grayscale: frames are ``[height, width]``, else ``[height, width, 3]``; uint8.
        img_height, img_width: img height and img width of a frame [pixels].
        repeat_action_probability: probability that a screen repeats the previous action.
        full_action_space: all 18 actions, also those that do nothing in this game.
        max_num_frames_per_episode: screens after which a game is truncated.
        num_threads: number threads of the vector code.
    """

    episodic_life: bool = True
    frameskip: int = 4
    maxpool: bool = True
    noop_max: int = 30
    use_fire_reset: bool = True
    grayscale: bool = True
    img_height: int = 84
    img_width: int = 84
    repeat_action_probability: float = 0.0
    full_action_space: bool = False
    max_num_frames_per_episode: int = 108_000
    num_threads: int = 1

    def __post_init__(self) -> None:
        least = {"noop_max": 0}
        for name in (
            *("frameskip", "noop_max", "img_height", "img_width"),
            *("max_num_frames_per_episode", "num_threads"),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least.get(name, 1):
                raise ConfigError(
                    f"env_config.env_args.{name} is {value!r}, expected a whole number of "
                    f"{least.get(name, 1)} or more"
                )
        if not 0.0 <= self.repeat_action_probability <= 1.0:
            raise ConfigError(
                "env_config.env_args.repeat_action_probability is "
                f"{self.repeat_action_probability!r}, expected 0 to 1"
            )

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Shape of one frame."""
        size = (self.img_height, self.img_width)
        return size if self.grayscale else (*size, 3)


def atari_settings(env_config: Mapping[str, Any], evaluation: bool = False) -> AtariSettings:
    """Makes settings of `env_args`; in evaluation lost lives end nothing, except by `eval_mode`.

    Raises:
        ConfigError: there is no such argument, or its value is wrong.
    """
    arguments = dict(env_config.get("env_args") or {})
    if evaluation:
        arguments |= {"episodic_life": False, **(env_config.get("eval_mode") or {})}
    known = [field.name for field in fields(AtariSettings)]
    for name in arguments:
        if name not in known:
            hint = did_you_mean(name, known, otherwise=f"there are {', '.join(known)}")
            raise ConfigError(f"env_config.env_args: an Atari game has no {name!r}; {hint}")
    return AtariSettings(**arguments)


class AtariEnv(Env):
    """One game, screen by screen.

    ``info`` has ``lives``, ``frame_number`` and ``episode_frame_number`` [screens] of the emulator.

    Args:
        game: such as ``Pong``.
        settings: preprocessing of the game.

    Raises:
        MissingExtra: the emulator is not installed.
        ConfigError: there is no such game.
    """

    def __init__(self, game: str, settings: AtariSettings | None = None) -> None:
        self.settings = settings = settings or AtariSettings()
        self._emulator = emulator = Emulator(
            game,
            noop_max=settings.noop_max,
            fires=settings.use_fire_reset,
            grayscale=settings.grayscale,
            full_action_space=settings.full_action_space,
            repeat_action_probability=settings.repeat_action_probability,
        )
        self.obs_spec = {"type": "uint8", "dim": list(settings.frame_shape)}
        self.action_spec = {"type": "discrete", "dim": [len(emulator.actions)]}
        self.metadata = {"render_fps": _SCREENS_PER_SECOND / settings.frameskip}
        self._validate_action = ActionValidator(self.action_spec)
        self._resize = AreaResize(emulator.size, (settings.img_height, settings.img_width))
        self._screens = np.zeros((2, *emulator.screen().shape), np.uint8)
        self._frame: Frame = np.zeros(settings.frame_shape, np.uint8)
        self._next_seed: int | None = None
        self._lives = self._elapsed = 0
        self._life_lost = False
        self._ended_at_first: tuple[bool, bool] | None = None

    def seed(self, seed: int) -> None:
        super().seed(seed)
        self._next_seed = seed

    def reset(self) -> tuple[Frame, Info]:
        """Starts a game; after a lost life continues it, by a step without an action."""
        going_on, self._life_lost, self._ended_at_first = self._life_lost, False, None
        if not going_on:
            self._begin_game()
            return self._frame, self._info()
        frame, reward, terminated, truncated, _ = self._play(_NO_OP)
        if terminated or truncated:
            # An episode cannot end with its first row: it ends with the next one.
            self._ended_at_first = terminated, truncated
        return frame, {**self._info(), "raw_reward": reward}

    def step(self, action: Any) -> Step:
        """Repeats an action for `frameskip` screens."""
        checked = int(self._validate_action(action))
        if self._ended_at_first is None:
            return self._play(checked)
        (terminated, truncated), self._ended_at_first = self._ended_at_first, None
        return self._frame, 0.0, terminated, truncated, self._lost(self._life_lost)

    def render(self) -> Frame:
        """The newest screen, uint8 [height, width, 3]."""
        return self._emulator.picture()

    def _begin_game(self) -> None:
        if self._next_seed is None and not self._emulator.seeded:
            self._next_seed = int(self.rng.integers(2**31))
        self._emulator.begin(self._next_seed)
        self._next_seed = None
        self._screens[0] = self._emulator.screen()
        self._screens[1] = 0
        self._make_frame()
        self._elapsed = 0
        self._lives = self._emulator.lives

    def _play(self, action: int) -> Step:
        settings, emulator = self.settings, self._emulator
        reward, over, most = 0, False, settings.max_num_frames_per_episode
        for left in range(settings.frameskip, 0, -1):
            reward += emulator.act(action)
            self._elapsed += 1
            over = emulator.over
            if over or self._elapsed >= most:
                break
            if left <= 2:
                self._screens[left - 1] = emulator.screen()
        self._make_frame()
        lost = 0 < emulator.lives < self._lives
        self._lives = emulator.lives
        self._life_lost = settings.episodic_life and lost and not over
        terminated = over or self._life_lost
        truncated = self._elapsed >= most and not terminated
        return self._frame, float(reward), terminated, truncated, self._lost(self._life_lost)

    def _make_frame(self) -> None:
        first, second = self._screens
        if self.settings.maxpool:
            np.maximum(first, second, out=first)
        self._frame = self._resize(first)

    def _lost(self, life_lost: bool) -> Info:
        info = self._info()
        if life_lost:
            info["life_lost"] = True
        return info

    def _info(self) -> Info:
        return self._emulator.counts()
