"""The hash of parameters tells any two apart that a mix-up could give."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from surreal_like.data.parameters import (
    HALF,
    Parameters,
    make_manifest,
    manifest_size_bytes,
    parameter_hash,
)


def test_the_hash_is_of_all_bytes_and_the_same_everywhere() -> None:
    flat = np.arange(4, dtype="<u8").view(np.uint8)
    assert parameter_hash(flat) == f"{zlib.crc32(flat.tobytes()):08x}00000006"
    assert parameter_hash(np.zeros(0, np.uint8)) == "0" * 16


def test_one_changed_byte_and_two_exchanged_words_change_it() -> None:
    flat = np.random.default_rng(0).integers(0, 256, 83, dtype=np.uint8)
    first = parameter_hash(flat)
    assert len(first) == 16
    for place in (0, 41, 82):
        changed = flat.copy()
        changed[place] ^= 1
        assert parameter_hash(changed) != first
    exchanged = np.concatenate([flat[8:16], flat[:8], flat[16:]])
    assert parameter_hash(exchanged) != first


def test_a_view_that_is_not_aligned_has_the_hash_of_its_copy() -> None:
    flat = np.arange(65, dtype=np.uint8)[1:]
    assert parameter_hash(flat) == parameter_hash(flat.copy())


def made(**arrays: np.ndarray[Any, Any]) -> Parameters:
    """Parameters of these tensors."""
    manifest = make_manifest([(n, str(a.dtype), a.shape) for n, a in arrays.items()])
    flat = np.zeros(manifest_size_bytes(manifest), np.uint8)
    for entry, array in zip(manifest, arrays.values(), strict=True):
        place = slice(entry.offset_bytes, entry.offset_bytes + entry.size_bytes)
        flat[place] = array.reshape(-1).view(np.uint8)
    return Parameters(flat, manifest, 3, 2, 1, {"hash": "x"}, "left")


def tensors_of(parameters: Parameters) -> dict[str, np.ndarray[Any, Any]]:
    """Name -> its numbers."""
    return {
        each.name: parameters.flat[each.offset_bytes : each.offset_bytes + each.size_bytes]
        .view(each.dtype)
        .reshape(each.shape)
        for each in parameters.manifest
    }


def test_half_takes_half_the_bytes_and_its_error_is_bounded() -> None:
    numbers = np.random.default_rng(1).normal(size=(300, 70)).astype(np.float32)
    numbers *= np.logspace(-9, 4, 70, dtype=np.float32)
    whole = made(weight=numbers, count=np.array([5], np.int64), mask=np.array([True, False]))
    half = whole.encode_half({"weight", "count", "mask", "large", "small"})
    assert half.flat.nbytes - whole.flat.nbytes == -numbers.nbytes // 2
    message = half.to_message()
    found = Parameters.from_message(message).decode_half()
    assert (found.manifest, found.order, found.policy) == (whole.manifest, (2, 3), "left")
    decoded = tensors_of(found)
    error = np.abs(decoded["weight"] - numbers)
    assert (error <= np.maximum(2.0**-11 * np.abs(numbers), 2.0**-25)).all()
    assert error.max() > 0
    assert decoded["count"] == 5
    assert decoded["mask"].tolist() == [True, False]


@pytest.mark.parametrize("number", [70_000.0, -1e30, np.inf, np.nan])
def test_a_tensor_that_does_not_fit_into_half_stays_whole(number: float) -> None:
    large = np.array([1.0, number], np.float32)
    whole = made(large=large, small=np.ones(4, np.float32))
    half = whole.encode_half({"weight", "count", "mask", "large", "small"})
    assert [entry.dtype for entry in half.manifest] == ["float32", HALF]
    found = tensors_of(half.decode_half())
    np.testing.assert_array_equal(found["large"], large)
    np.testing.assert_array_equal(found["small"], 1.0)


def test_what_is_whole_is_not_copied() -> None:
    whole = made(weight=np.ones(3, np.float32), genuine=np.ones(3, np.float16))
    assert whole.decode_half() is whole
    assert [each.dtype for each in whole.encode_half({"weight", "genuine"}).manifest] == [
        HALF,
        "float16",
    ]
