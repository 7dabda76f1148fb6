"""Shrinking of images: each new pixel is the mean of the area that it covers."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from session.errors import ConfigError

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
    covered = [_covered(new * scale, scale, source) for new in range(target)]
    taps = max(map(len, covered))
    padded = [each + [(each[-1][0], 0.0)] * (taps - len(each)) for each in covered]
    places = np.array([[place for place, _ in each] for each in padded], np.int64)
    weights = np.array([[weight for _, weight in each] for each in padded], np.float32)
    return places.T.copy(), weights.T.copy()


def _covered(begin: float, scale: float, source: int) -> list[tuple[int, float]]:
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
