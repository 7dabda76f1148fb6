"""Means of areas, against exact fractions."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from session.errors import ConfigError
from surreal_like.addons.atari.atari import AreaResize


def covered(new: int, target: int, source: int) -> list[tuple[int, Fraction]]:
    """Old pixels that a new one covers, and how much of each."""
    scale = Fraction(source, target)
    begin, end = new * scale, (new + 1) * scale
    return [
        (old, min(end, Fraction(old + 1)) - max(begin, Fraction(old)))
        for old in range(floor(begin), ceil(end))
    ]


def naive(image: np.ndarray, target: tuple[int, int]) -> list[list[Fraction]]:
    height, width = image.shape
    area = Fraction(height * width, target[0] * target[1])
    return [
        [
            sum(
                (
                    down * across * int(image[y, x])
                    for y, down in covered(row, target[0], height)
                    for x, across in covered(column, target[1], width)
                ),
                Fraction(0),
            )
            / area
            for column in range(target[1])
        ]
        for row in range(target[0])
    ]


SIDES = st.tuples(st.integers(1, 9), st.integers(1, 9))


@given(source=SIDES, share=st.tuples(st.floats(0, 1), st.floats(0, 1)), seed=st.integers(0, 99))
def test_each_pixel_is_the_mean_of_its_area(
    source: tuple[int, int], share: tuple[float, float], seed: int
) -> None:
    height, width = (max(1, round(side * part)) for side, part in zip(source, share, strict=True))
    image = np.random.default_rng(seed).integers(0, 256, source).astype(np.uint8)
    shrunk = AreaResize(source, (height, width))(image)
    assert (shrunk.dtype, shrunk.shape) == (np.dtype(np.uint8), (height, width))
    for given_row, row in zip(shrunk.tolist(), naive(image, (height, width)), strict=True):
        for value, exact in zip(given_row, row, strict=True):
            assert abs(value - exact) <= Fraction(1, 2) + Fraction(1, 1000)


def test_colours_are_shrunk_each_by_itself() -> None:
    image = np.random.default_rng(0).integers(0, 256, (210, 160, 3)).astype(np.uint8)
    resize = AreaResize((210, 160), (84, 84))
    shrunk = resize(image)
    for channel in range(3):
        np.testing.assert_array_equal(shrunk[..., channel], resize(image[..., channel].copy()))


def test_what_is_given_is_new() -> None:
    image = np.zeros((4, 4), np.uint8)
    assert not np.shares_memory(AreaResize((4, 4), (4, 4))(image), image)


@pytest.mark.parametrize("target", [(5, 4), (0, 4)])
def test_it_only_shrinks(target: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match=r"an image of \[4, 4\] cannot be shrunk"):
        AreaResize((4, 4), target)
