"""The files of a recording: what comes back of them, and what is left out of damaged ones."""

from __future__ import annotations

import errno
import os
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session.wire import Message
from session.wire.codec import decode, encode
from surreal_like.addons.recording.segments import (
    FORMAT,
    Damage,
    Kind,
    Record,
    Segment,
    SegmentError,
    SegmentWriter,
    list_segments,
    name_segment,
)
from tests.addons.recording.recorded import as_bytes
from tests.examples import examples
from tests.runs.small_disk import small_disk

BEGIN_BYTES, HEAD_BYTES = 8, 32
# Arrays above this size are frames of their own.
LARGE = 1 << 16


def message(number: int = 0, *, size: int = 3, arrays: int = 2) -> Message:
    columns = {f"c{each}": np.arange(size, dtype=np.float64) + number for each in range(arrays)}
    return Message("chunk", {"number": number}, columns)


def write(path: Path, messages: Sequence[Message], kind: Kind = Kind.CHUNK) -> list[int]:
    """Writes a segment; returns where its records end."""
    writer = SegmentWriter(path)
    ends = []
    for number, each in enumerate(messages):
        writer.append([Record(kind, 10 * number, 0.5 * number, encode(each))])
        ends.append(writer.size_bytes)
    writer.close()
    assert path.stat().st_size == writer.size_bytes
    return ends


def numbers(segment: Segment) -> list[int]:
    """Numbers of the messages that can be read."""
    read = map(segment.read, segment.heads)
    return [each.fields["number"] for each in read if isinstance(each, Message)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "000000.seg"


frames = st.lists(st.binary(max_size=5000), min_size=1, max_size=6)


@settings(max_examples=examples(60))
@given(st.lists(frames, min_size=1, max_size=5))
def test_any_frames_come_back(
    tmp_path_factory: pytest.TempPathFactory, records: list[list[bytes]]
) -> None:
    path = tmp_path_factory.mktemp("frames") / "000000.seg"
    writer = SegmentWriter(path)
    sent = []
    for number, each in enumerate(records):
        columns = {str(i): np.frombuffer(each[i], np.uint8) for i in range(len(each))}
        sent.append(Message("chunk", {"number": number}, columns))
        writer.append([Record(Kind.CHUNK, number, 1.5, encode(sent[-1]))])
    writer.close()
    segment = Segment(path)
    assert segment.damage is None
    assert [(head.number, head.kind) for head in segment.heads] == [
        (number, Kind.CHUNK) for number in range(len(records))
    ]
    for head, expected in zip(segment.heads, sent, strict=True):
        found = segment.read(head)
        assert isinstance(found, Message)
        assert found.fields == expected.fields
        assert {name: each.tobytes() for name, each in found.arrays.items()} == {
            name: each.tobytes() for name, each in expected.arrays.items()
        }


def test_numbers_time_and_sender_come_back(path: Path) -> None:
    writer = SegmentWriter(path)
    frames = encode(message())
    for kind in Kind:
        writer.append([Record(kind, 1 << 40, 1.7e9, frames)])
    writer.close()
    heads = Segment(path).heads
    assert [head.kind for head in heads] == list(Kind)
    assert {(head.number, head.time, head.frames) for head in heads} == {(1 << 40, 1.7e9, 2)}


@pytest.mark.parametrize(("size", "arrays"), [(1, 1), (7, 3), (1, 700), (LARGE, 3)])
def test_arrays_of_the_mapped_file_are_aligned_and_read_only(
    path: Path, size: int, arrays: int
) -> None:
    write(path, [message(size=size, arrays=arrays)] * 2)
    segment = Segment(path)
    for head in segment.heads:
        found = segment.read(head)
        assert isinstance(found, Message)
        assert len(found.arrays) == arrays
        assert all(each.flags.aligned for each in found.arrays.values())
        assert not any(each.flags.writeable for each in found.arrays.values())
        assert all(each.ctypes.data % 8 == 0 for each in found.arrays.values())


def test_more_frames_than_one_call_of_the_system_takes(path: Path) -> None:
    writer = SegmentWriter(path)
    writer.append([Record(Kind.CHUNK, 0, 0.0, [*encode(message(arrays=0)), *[b"abc"] * 3000])])
    writer.close()
    (head,) = Segment(path).heads
    assert head.frames == 3001


def test_arrays_outlive_their_segment(path: Path) -> None:
    write(path, [message(5)])
    segment = Segment(path)
    found = segment.read(segment.heads[0])
    assert isinstance(found, Message)
    path.unlink()
    del segment
    np.testing.assert_array_equal(found.arrays["c0"], [5.0, 6.0, 7.0])


def test_a_cut_last_record_is_left_out_at_every_length(path: Path) -> None:
    ends = write(path, [message(n) for n in range(3)])
    whole = path.read_bytes()
    for length in range(ends[1] + 1, ends[2]):
        path.write_bytes(whole[:length])
        segment = Segment(path)
        assert numbers(segment) == [0, 1], length
        assert segment.damage == Damage(
            path, f"record 3 at byte {ends[1]:,} is cut: it and what follows is left out"
        )
    path.write_bytes(whole[: ends[1]])
    assert Segment(path).damage is None


def test_a_flipped_bit_anywhere_in_a_record_is_seen_and_the_others_are_read(path: Path) -> None:
    ends = write(path, [message(n) for n in range(3)])
    whole = path.read_bytes()
    head_end = ends[0] + HEAD_BYTES
    for place in range(ends[0], ends[1]):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            segment = Segment(path)
            found = [each for each in map(segment.read, segment.heads) if isinstance(each, Damage)]
            found += [segment.damage] if segment.damage else []
            assert len(found) == 1, (place, bit)
            assert f"record 2 at byte {ends[0]:,}" in str(found[0])
            # Where its numbers are wrong, nothing says where the next record begins.
            of_numbers = ends[0] + 4 <= place < head_end
            assert numbers(segment) == ([0] if of_numbers else [0, 2]), (place, bit)
            assert [head.kind for head in segment.heads] == [Kind.CHUNK] * len(segment.heads)


@pytest.mark.parametrize("length", [0, 8, 32, 1 << 20, (1 << 32) - 1])
def test_a_wrong_length_of_a_record_ends_the_segment_there(path: Path, length: int) -> None:
    ends = write(path, [message(n, size=500) for n in range(3)])
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, ends[0] + 4, length)
    path.write_bytes(data)
    segment = Segment(path)
    assert numbers(segment) == [0]
    assert segment.damage is not None
    assert f"record 2 at byte {ends[0]:,}" in segment.damage.reason


@pytest.mark.parametrize(
    "content",
    [b"", b"SLREC", bytes(7), bytes(4096), b"PK\3\4" + bytes(100)],
    ids=["empty", "short", "short zeros", "zeros", "foreign"],
)
def test_a_file_that_is_no_segment_is_left_out(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    segment = Segment(path)
    assert segment.heads == []
    assert str(segment.damage) == f"{path}: is no segment of a recording: it is left out"


def test_a_segment_of_another_format_is_refused(path: Path) -> None:
    path.write_bytes(b"SLREC\7\0\0" + bytes(100))
    said = f"{path} has format 7 of recordings, this version reads {FORMAT}"
    with pytest.raises(SegmentError, match=re.escape(said)):
        Segment(path)


def test_a_file_that_exists_is_never_written_to(path: Path) -> None:
    write(path, [message(1)])
    with pytest.raises(FileExistsError):
        SegmentWriter(path)
    assert numbers(Segment(path)) == [1]


def test_segments_are_listed_in_their_order(tmp_path: Path) -> None:
    for number in (0, 2, 1, 1_000_000 - 1):
        name_segment(tmp_path, number).touch()
    for other in ("000003.tmp", "notes.seg", "x"):
        (tmp_path / other).touch()
    assert [path.stem for path in list_segments(tmp_path)] == [
        "000000",
        "000001",
        "000002",
        "999999",
    ]


@pytest.fixture
def short_writes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Bytes that may still be written; each call takes at most a third of what it is given."""
    room, write_one = [0], os.write

    def take(data: bytes) -> bytes:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        part = data[: min(room[0], len(data) // 3 + 1)]
        room[0] -= len(part)
        return part

    def all_of(file: int, buffers: Sequence[Any]) -> int:
        return write_one(file, take(b"".join(map(bytes, buffers))))

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", all_of)
        patch.setattr(os, "write", lambda file, data: write_one(file, take(bytes(data))))
        yield room


def test_a_write_that_is_cut_short_goes_on(path: Path, short_writes: list[int]) -> None:
    short_writes[0] = 1 << 20
    write(path, [message(n) for n in range(3)])
    assert numbers(Segment(path)) == [0, 1, 2]


def test_after_a_failed_write_the_file_ends_with_the_record_before(
    path: Path, short_writes: list[int]
) -> None:
    short_writes[0] = 1 << 20
    (end,) = write(path, [message(0)])
    for room in range(end - BEGIN_BYTES):
        path.unlink()
        short_writes[0] = end
        writer = SegmentWriter(path)
        writer.append([Record(Kind.CHUNK, 0, 0.0, encode(message(0)))])
        short_writes[0] = room
        with pytest.raises(OSError, match="No space"):
            writer.append([Record(Kind.CHUNK, 1, 0.0, encode(message(1)))])
        assert path.stat().st_size == end
        # There is room again.
        short_writes[0] = 1 << 20
        writer.append([Record(Kind.CHUNK, 2, 0.0, encode(message(2)))])
        writer.close()
        segment = Segment(path)
        assert segment.damage is None
        assert numbers(segment) == [0, 2], room


def test_a_segment_that_cannot_begin_leaves_no_open_file(
    path: Path, short_writes: list[int]
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="No space"):
        SegmentWriter(path)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.root
def test_a_full_disk_leaves_the_records_before(tmp_path: Path) -> None:
    with ExitStack() as stack:
        stack.enter_context(small_disk(tmp_path, 1))
        path = tmp_path / "000000.seg"
        writer = SegmentWriter(path)
        written = 0

        def write_on() -> None:
            nonlocal written
            for written in range(100):
                writer.append(
                    [Record(Kind.CHUNK, written, 0.0, encode(message(written, size=5000)))]
                )

        with pytest.raises(OSError, match="No space"):
            write_on()
        assert path.stat().st_size == writer.size_bytes
        writer.close()
        segment = Segment(path)
        assert segment.damage is None
        assert numbers(segment) == list(range(written))
        del segment


def test_the_message_of_a_record_knows_its_frames(path: Path) -> None:
    write(path, [message(3)])
    segment = Segment(path)
    found = segment.read(segment.heads[0])
    assert isinstance(found, Message)
    assert as_bytes(found.frames) == as_bytes(encode(message(3)))
    assert decode(list(found.frames), 1 << 20).fields == {"number": 3}
