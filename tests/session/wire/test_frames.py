"""Frames on a byte stream, beside a reader that is slow and plain."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session.errors import OversizeError
from session.wire.frames import FrameReader, pack_frame

LIMIT = 40


def naive(stream: bytes) -> tuple[list[bytes], bool]:
    """Payloads of a whole stream, and whether a frame above the limit follows them."""
    found: list[bytes] = []
    while len(stream) >= 4:
        length = struct.unpack("<I", stream[:4])[0]
        if length > LIMIT:
            return found, True
        if len(stream) < 4 + length:
            break
        found.append(stream[4 : 4 + length])
        stream = stream[4 + length :]
    return found, False


def read(parts: list[bytes]) -> tuple[list[bytes], bool]:
    reader = FrameReader(LIMIT)
    found: list[bytes] = []
    for part in parts:
        reader.feed(part)
        try:
            while (payload := reader.next()) is not None:
                found.append(payload)
        except OversizeError:
            assert not reader.begun
            return found, True
    return found, False


@given(
    st.lists(st.binary(max_size=LIMIT + 2), max_size=6),
    st.lists(st.integers(1, 30), min_size=1, max_size=20),
)
def test_frames_arrive_in_any_pieces(payloads: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(map(pack_frame, payloads))
    parts: list[bytes] = []
    at = 0
    while at < len(stream):
        size = sizes[len(parts) % len(sizes)]
        parts.append(stream[at : at + size])
        at += size
    assert read(parts) == naive(stream)


def test_a_length_above_the_limit_is_refused_before_its_bytes_come() -> None:
    reader = FrameReader(LIMIT)
    reader.feed(struct.pack("<I", LIMIT + 1))
    with pytest.raises(OversizeError, match="41 bytes, the limit is 40"):
        reader.next()


def test_a_begun_frame_is_seen() -> None:
    reader = FrameReader(LIMIT)
    reader.feed(pack_frame(b"abc")[:-1])
    assert reader.next() is None
    assert reader.begun
    reader.feed(b"c")
    assert reader.next() == b"abc"
    assert not reader.begun


def test_the_limit_can_be_raised_between_two_frames() -> None:
    reader = FrameReader(1)
    reader.feed(pack_frame(b"a") + pack_frame(b"bcd"))
    assert reader.next() == b"a"
    reader.limit_bytes = 3
    assert reader.next() == b"bcd"
