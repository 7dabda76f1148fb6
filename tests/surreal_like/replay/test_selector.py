"""Uniform draws from sampleable rows only."""

from __future__ import annotations

import numpy as np
import pytest

from surreal_like.replay.select.selector import UniformSelector

# 0.999 quantile of chi-square with so many degrees of freedom (tables of the distribution).
CHI_SQUARE = {9: 27.88, 49: 85.35, 99: 148.23}


def chi_square(selector: UniformSelector, ready: list[int], draws: int, batch: int) -> float:
    batches = [selector.sample(batch).numbers for _ in range(draws // batch)]
    numbers = np.concatenate(batches)
    counts = np.array([np.count_nonzero(numbers == number) for number in ready])
    assert counts.sum() == draws  # nothing else was drawn
    expected = draws / len(ready)
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize(
    ("rows", "every", "batch"),
    [
        (100, 1, 20),  # drawn again where the bit is off
        (100, 2, 10),
        (1000, 10, 20),
        (1000, 10, 200),  # few rows for so large a batch: listed first
        (5000, 100, 100),
    ],
)
def test_every_sampleable_row_is_as_likely(rows: int, every: int, batch: int) -> None:
    selector = UniformSelector(rows, seed=1)
    selector.mark(0, np.arange(rows) % every == 0)
    ready = list(range(0, rows, every))
    assert chi_square(selector, ready, 20_000, batch) < CHI_SQUARE[len(ready) - 1]


def test_the_wrapped_ring_is_as_uniform() -> None:
    selector = UniformSelector(20, seed=2)
    for first in range(0, 70, 7):
        selector.evict(first + 7 - 20)
        selector.mark(first, np.arange(first, first + 7) % 2 == 0)
    ready = list(range(50, 70, 2))
    assert len(selector) == 10
    assert chi_square(selector, ready, 10_000, 5) < CHI_SQUARE[9]


def test_chi_square_sees_a_row_that_is_twice_as_likely() -> None:
    class Crooked(UniformSelector):
        def _integers(self, end: int, rows: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
            return (self._generator.random(rows) * (end + 1)).astype(np.int64) % end

    selector = Crooked(10, seed=1)
    selector.mark(0, np.ones(10, np.bool_))
    assert chi_square(selector, list(range(10)), 20_000, 100) > CHI_SQUARE[9]


def test_seeds() -> None:
    draws = []
    for seed in (1, 1, 2):
        selector = UniformSelector(50, seed=seed)
        selector.mark(0, np.ones(50, np.bool_))
        draws.append(selector.sample(64).numbers.tolist())
    assert draws[0] == draws[1] != draws[2]
    selector.reseed(1)
    assert selector.sample(64).numbers.tolist() == draws[0]
