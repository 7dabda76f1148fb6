"""A conversion is exact, or refused by name."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from surreal_like.data.casts import cast
from surreal_like.errors import DataError

TYPES = ["bool", "int8", "uint8", "int16", "uint32", "int64", "uint64", "float32", "float64"]
EDGES = [0, 1, -1, 2, 0.5, 127, 128, 255, 256, -129, 2**24, 2**24 + 1, 2**31, 2**53 + 1, 2**63 - 1]
EDGES += [2**64 - 1, 1e39, -1e300, math.nan, math.inf]


def holds(dtype: np.dtype[Any], number: Any, source: np.dtype[Any]) -> bool:
    """Whether a type has this number, in exact arithmetic; the slow twin of `cast`."""
    if isinstance(number, float) and not math.isfinite(number):
        return dtype.kind == "f"
    if dtype.kind == "f" and source.kind == "f":
        return bool(abs(number) <= float(np.finfo(dtype).max))
    exact = Fraction(number)
    if dtype.kind == "f":
        return Fraction(float(dtype.type(number))) == exact
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return exact.denominator == 1 and int(low) <= exact <= int(high)


@pytest.mark.parametrize("target", TYPES)
@pytest.mark.parametrize("source", TYPES)
def test_every_number_stays_what_it_is_or_is_refused(source: str, target: str) -> None:
    before, after = np.dtype(source), np.dtype(target)
    for edge in (edge for edge in EDGES if holds(before, edge, np.dtype("float64"))):
        # Numpy converts long arrays with other instructions.
        for numbers in (np.array(edge, before), np.full((2, 33), edge, before)):
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # numpy's would reach the terminal
                if holds(after, numbers.ravel()[0].item(), before):
                    found = cast("obs/x", numbers, target)
                    assert found.dtype == after
                    rounded = numbers.astype(target) if after.kind == before.kind else numbers
                    assert np.array_equal(found, rounded, equal_nan=after.kind == "f")
                elif source != target:
                    with pytest.raises(DataError, match=rf"^obs/x: .* does not fit into {target}:"):
                        cast("obs/x", numbers, target)


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        ([[1, 2], [3, 0.25]], "uint8", r"a: 0\.25 at \[1, 1\] of \[2, 2\] .* from 0 to 255"),
        (1e39, "float32", r"a: 1e\+39 does not fit into float32: give numbers up to 3\.4e\+38"),
        (16777217, "float32", r"a: 16777217 does not fit into float32: it would lose digits"),
        (2, "bool", "a: 2 does not fit into bool: give True, False, 0 or 1"),
        (math.nan, "int64", "a: NaN does not fit into int64"),
        ("3", "float32", "a: <U1 given, expected numbers of float32"),
        ([[1], [2, 3]], "float32", "a: a list given, expected numbers of float32: "),
        (None, "bool", "a: object given, expected numbers of bool"),
        (2**70, "int64", "a: object given"),
        (1j, "float32", "a: complex128 given"),
    ],
)
def test_the_error_names_value_place_and_remedy(value: Any, dtype: str, message: str) -> None:
    with pytest.raises(DataError, match=f"^{message}"):
        cast("a", value, dtype)


def test_an_array_of_the_type_is_not_touched_unless_a_copy_is_wanted() -> None:
    given_array = np.ones((2, 3), np.float32).T
    assert cast("a", given_array, "float32") is given_array
    copy = cast("a", given_array, "float32", copy=True)
    assert copy.flags.c_contiguous
    assert not np.shares_memory(copy, given_array)
    assert cast("a", given_array.astype(np.float64), "float32").flags.c_contiguous
