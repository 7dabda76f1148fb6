"""Large columns through memory that two sides share: as if they were sent, and nowhere else."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session.errors import DecodeError
from surreal_like.replay.shared_memory import LEAST_BYTES, Slab, Slabs, large_bytes
from tests.examples import examples

ROWS = st.integers(1, 3 * LEAST_BYTES // 16)
MADE = st.sampled_from(["by empty", "elsewhere", "a part", "big-endian"])


@pytest.fixture
def slab() -> Iterator[Slab]:
    slab = Slab(2, 1 << 20)
    yield slab
    slab.close()


def lent(slab: Slab) -> tuple[int, dict[str, Any]]:
    loan = slab.lend()
    assert loan is not None
    return loan


@given(st.lists(st.tuples(ROWS, MADE), max_size=6), st.integers(1, 1 << 19))
@settings(max_examples=examples(60))
def test_what_is_placed_and_what_is_sent_are_all(made: Any, slot_bytes: int) -> None:
    slab = Slab(1, slot_bytes)
    slot, fields = lent(slab)
    part = Slabs().part(fields)
    assert part is not None
    generator = np.random.default_rng(0)
    columns: dict[str, Any] = {}
    for number, (rows, how) in enumerate(made):
        shape, dtype = (rows, 4), np.dtype(">f4" if how == "big-endian" else "<f4")
        array = (np.empty if how == "elsewhere" else part.empty)(shape, dtype)
        array[...] = generator.random(shape)
        columns[f"c{number}"] = array[:, :3] if how == "a part" else array
    expected = {name: column.copy() for name, column in columns.items()}
    left, placed = part.place(columns)
    found = left | slab.columns(slot, placed)
    slab.close()
    assert found.keys() == expected.keys()
    for name, column in expected.items():
        np.testing.assert_array_equal(found[name], column)
        assert name in left or not found[name].flags.writeable


def test_large_columns_are_not_sent_and_small_ones_are(slab: Slab) -> None:
    slot, fields = lent(slab)
    part = Slabs().part(fields)
    assert part is not None
    large, small = np.zeros(LEAST_BYTES, np.uint8), np.zeros(LEAST_BYTES - 1, np.uint8)
    left, placed = part.place({"large": large, "small": small})
    assert list(left) == ["small"]
    assert list(slab.columns(slot, placed)) == ["large"]
    assert large_bytes({"large": large, "small": small}) == LEAST_BYTES


def test_a_slot_is_lent_once_until_it_comes_back(slab: Slab) -> None:
    slots = {lent(slab)[0], lent(slab)[0]}
    assert slots == {0, 1}
    assert slab.lend() is None
    slab.give_back(1)
    assert lent(slab)[0] == 1


def test_slots_do_not_touch_each_other(slab: Slab) -> None:
    server, found = Slabs(), []
    for value in (1, 2):
        slot, fields = lent(slab)
        part = server.part(fields)
        assert part is not None
        _, placed = part.place({"x": np.full(1 << 20, value, np.uint8)})
        found.append(slab.columns(slot, placed)["x"])
    assert [(each == value).all() for each, value in zip(found, (1, 2), strict=True)] == [True] * 2


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        lambda place: [place[0], place[1], b"another" + place[2][7:], *place[3:]],
        lambda place: [2**63, *place[1:]],
        lambda place: [True, *place[1:]],
        lambda place: [place[0], 10**6, *place[2:]],
        lambda place: [*place[:3], 0, place[4]],
        lambda place: [*place[:3], place[3], 1 << 40],
    ],
)
def test_a_place_that_is_none_is_not_written_to(slab: Slab, wrong: Any) -> None:
    _, fields = lent(slab)
    assert Slabs().part(fields) is not None
    place = wrong(fields["slab"]) if callable(wrong) else wrong
    assert Slabs().part({"slab": place}) is None


@pytest.mark.parametrize("what", ["file", "without seals", "another's name"])
def test_nothing_but_a_learners_memory_is_opened(slab: Slab, what: str) -> None:
    _, fields = lent(slab)
    process, _, token, begin, size = fields["slab"]
    content = token + bytes(begin + size)
    if what == "file":
        file = os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_RDWR)
    else:
        name = "other" if what == "another's name" else "surreal-like-batches"
        file = os.memfd_create(name, os.MFD_ALLOW_SEALING)
    os.write(file, content)
    if what == "another's name":
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
    try:
        assert Slabs().part({"slab": [process, file, token, begin, size]}) is None
        assert os.pread(file, len(content), 0) == content
    finally:
        os.close(file)


def test_what_a_learner_has_closed_is_let_go() -> None:
    server = Slabs()
    for _ in range(40):
        slab = Slab(1, 1)
        assert server.part(lent(slab)[1]) is not None
        slab.close()
    assert len(server._known) <= 2


@pytest.mark.parametrize("placed", [None, 7, [b"\xc1", []], [b"\x90", [1]], [b"\x90"]])
def test_an_answer_that_is_none_is_named(slab: Slab, placed: Any) -> None:
    slot, _ = lent(slab)
    with pytest.raises(DecodeError):
        slab.columns(slot, placed)


def test_a_column_beyond_its_slot_is_refused(slab: Slab) -> None:
    slot, fields = lent(slab)
    part = Slabs().part(fields)
    assert part is not None
    _, (packed, offsets) = part.place({"x": np.zeros(1 << 20, np.uint8)})
    for offset in (offsets[0] + 8, -8):
        with pytest.raises(DecodeError, match="not in their slot"):
            slab.columns(slot, [packed, [offset]])
