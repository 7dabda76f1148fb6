"""The hash of parameters tells any two apart that a mix-up could give."""

from __future__ import annotations

import zlib

import numpy as np

from surreal_like.data.parameters import parameter_hash


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
