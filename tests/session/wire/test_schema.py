"""Schemas: what fits, what does not, and what a socket does with a message that does not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.errors import AdmissionError, RefusedError
from session.json_file import ANY, NUMBER, TEXT, Maybe
from session.wire import AddressBook, Message
from session.wire.schema import (
    COUNT_LIMIT,
    ArrayOf,
    Bytes,
    Count,
    Counts,
    Fields,
    Flag,
    Kinds,
    ListOf,
    MapOf,
    Name,
    Nullable,
    Number,
    OneOf,
    Optional,
    Plain,
    Row,
    Schema,
    Text,
    Type,
)
from tests.session.wire.rig import ENDPOINTS, Wires, until

NEVER: list[Any] = [object(), b"bytes", [[]], {"a": {}}, "x" * 100_000]
NO_NUMBERS: list[Any] = [*NEVER, None, "1", True]

CASES: list[tuple[Type, list[Any], list[Any]]] = [
    (Count(), [0, COUNT_LIMIT], [*NO_NUMBERS, -1, COUNT_LIMIT + 1, 10**24, 1.0, math.nan]),
    (Count(1, 3), [1, 3], [0, 4]),
    (Number(), [0, -1.5, 1e150], [*NO_NUMBERS, math.nan, math.inf, -math.inf, 1e200, 10**200]),
    (Number(finite=False), [math.nan, math.inf, 2.0], [*NO_NUMBERS, 1e200, 10**200]),
    (Flag(), [True, False], [*NEVER, None, 0, 1]),
    (Text(3), ["", "abc"], [*NEVER, None, 1, "abcd"]),
    (Bytes(3), [b"", b"abc"], [None, 1, "abc", b"abcd", []]),
    (Name(), ["agent-0", "a"], [*NEVER, None, "", "-a", "a-", "A", "a/b", "a" * 64, "a\n"]),
    (OneOf("a", 2), ["a", 2], [*NEVER, None, "b", 2.0, True]),
    (Nullable(Count()), [None, 1], [*NEVER, True]),
    (Counts(2), [[], [1, 2]], [*NEVER, None, [1, 2, 3], [True], [-1], [2**64], [1.0]]),
    (ListOf(Count(), 2), [[], [1], [1, 2]], [*NEVER, None, [1, 2, 3], ["1"], (1,)]),
    (Row(Count(), Flag()), [[1, True]], [*NEVER, None, [], [1], [1, 1], [1, True, 1]]),
    (MapOf(Name(), Count(), 1), [{}, {"a": 1}], [None, [], {1: 1}, {"a": "1"}, {"a": 1, "b": 2}]),
    (
        Fields({"a": Count(), "b": Optional(Flag())}),
        [{"a": 1}, {"a": 1, "b": True}],
        [*NEVER, None, {}, {"b": True}, {"a": 1, "b": 1}, {"a": 1, "c": 1}, {"a": True}],
    ),
    (
        Plain(ANY, 3),
        [None, "abc", 1, math.nan, [{"a": [True]}], {}],
        [b"", "abcd", 2**64, {"abcd": 1}, {1: 1}, {(): 1}, [0] * 70_000, {"a": {"b": 2**70}}],
    ),
    (
        Plain({"a": NUMBER, "b": Maybe([TEXT])}),
        [{"a": 1}, {"a": 2.5, "b": ["c"], "d": [{}]}],
        [*NEVER, None, {}, {"b": []}, {"a": math.nan}, {"a": 1, "b": [1]}, {"a": 1, 2: 3}],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].expected[:40])
def test_a_type_says_what_fits(case: tuple[Type, list[Any], list[Any]]) -> None:
    of, good, bad = case
    assert [value for value in good if not of.fits(value)] == []
    assert [value for value in bad if of.fits(value)] == []


def test_plain_data_is_bounded_in_depth() -> None:
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    assert not Plain(ANY).fits(deep)


def test_an_array_has_one_of_the_dtypes_and_the_shape() -> None:
    of = ArrayOf("uint8", shape=(None, 2))
    assert of.fits(np.zeros((5, 2), np.uint8))
    for wrong in (np.zeros((5, 2)), np.zeros((5, 3), np.uint8), np.zeros(2, np.uint8)):
        assert not of.fits(wrong)


SCHEMA = Schema(
    {"count": Count(), "flag": Optional(Flag())},
    {"flat": ArrayOf("uint8", shape=(2,)), "more": ArrayOf("int64", shape=(1,), optional=True)},
)
FLAT = np.zeros(2, np.uint8)


@pytest.mark.parametrize(
    ("fields", "arrays", "complaint"),
    [
        ({"count": 1}, {"flat": FLAT}, None),
        ({"count": 1, "flag": True, "id": 3}, {"flat": FLAT, "more": np.zeros(1, int)}, None),
        ({}, {"flat": FLAT}, "'count' is missing, expected a whole number"),
        ({"count": "x" * 500}, {"flat": FLAT}, "'count' is 'xxxxx"),
        ({"count": 1, "flag": 0}, {"flat": FLAT}, "'flag' is 0, expected true or false"),
        ({"count": 1, "other": 0}, {"flat": FLAT}, "field 'other' is unknown"),
        ({"count": 1, 7: 0}, {"flat": FLAT}, "field 7 is unknown"),
        ({"count": 1}, {}, "'flat' is missing, expected uint8 [2]"),
        ({"count": 1}, {"flat": np.zeros(3)}, "'flat' is float64 [3], expected uint8 [2]"),
        ({"count": 1}, {"flat": FLAT, "x": FLAT}, "array 'x' is unknown"),
        ({"count": 1}, {"flat": FLAT, "more": FLAT}, "'more' is uint8 [2]"),
    ],
)
def test_a_complaint_names_the_field_and_what_was_expected(
    fields: dict[str, Any], arrays: dict[str, Any], complaint: str | None
) -> None:
    found = SCHEMA.complaint(Message("kind", fields, arrays))
    if complaint is None:
        assert found is None
    else:
        assert found is not None
        assert found.startswith(complaint)
        assert len(found) < 300


KINDS: Kinds = {"good": Schema({"seq": Count()}), "any": Schema(any_run=True)}


def test_what_does_not_fit_is_dropped_counted_and_reported_once_per_sender_and_kind(
    wires: Wires, book: AddressBook
) -> None:
    complaints: list[tuple[str, ...]] = []

    def on_reject(*complaint: str) -> None:
        complaints.append(complaint)

    server = wires.make(book, "replay-0", on_reject=on_reject)
    server.knows = lambda name: name.startswith("agent-")
    pull = server.pull(ENDPOINTS[0], KINDS)
    pushes = [
        wires.make(book, name, **more).push(ENDPOINTS[0], high_water_mark=100)
        for name, more in (("agent-0", {}), ("stranger", {}), ("agent-1", {"fingerprint": b"x"}))
    ]
    for push in pushes:
        until(push.writable)
    for seq in range(3):
        assert pushes[0].send(Message("good", {"seq": str(seq)}))
        assert pushes[0].send(Message(f"kind-{seq}", {"seq": seq}))
        assert pushes[1].send(Message("good", {"seq": seq}))
        assert pushes[2].send(Message("good", {"seq": seq}))
    for push in pushes:
        assert push.send(Message("any"))

    def came() -> bool:
        message = pull.receive()
        assert message is None or message.kind == "any"
        return pull.counters.received == 3

    until(came)
    assert pull.counters.rejected == 12
    assert sorted(complaints) == [
        (ENDPOINTS[0], "agent-0", "'good': 'seq' is '0', expected a whole number from 0 to "
         f"{COUNT_LIMIT}"),
        (ENDPOINTS[0], "agent-0", f"{ENDPOINTS[0]} knows no 'kind-0'"),
        (ENDPOINTS[0], "agent-1", "'agent-1' has fingerprint 78, this run has 3132333435363738"),
        (ENDPOINTS[0], "stranger", "no component of this run is called 'stranger'"),
    ]  # fmt: skip


def test_random_names_leave_one_line_and_no_memory(wires: Wires, book: AddressBook) -> None:
    lines: list[str] = []
    wire = wires.make(book, on_reject=lambda endpoint, sender, reason: lines.append(reason))
    wire.knows = lambda name: name == "agent-0"
    for number in range(5_000):
        wire.reject(ENDPOINTS[0], f"random-{number}", "wrong")
    assert lines == ["wrong"]
    assert len(wire._complaints) == 1


@pytest.mark.parametrize("header_bytes", [100, 10_000])
def test_a_header_is_bounded_by_its_kind(
    wires: Wires, book: AddressBook, header_bytes: int
) -> None:
    kinds = {"big": Schema({"text": Text(5000)}, header_bytes=header_bytes)}
    pull = wires.make(book, "replay-0").pull(ENDPOINTS[0], {**kinds, "small": Schema()})
    push = wires.make(book).push(ENDPOINTS[0])
    until(push.writable)
    push.send(Message("big", {"text": "x" * 5000}))
    until(lambda: pull.receive() or pull.counters.rejected)
    assert pull.counters.rejected == (header_bytes == 100)


def test_a_request_that_does_not_fit_is_refused_with_the_reason(
    wires: Wires, book: AddressBook, tmp_path: Path
) -> None:
    router = wires.make(book, "ps").router(ENDPOINTS[2], KINDS)

    def serve(*_: Any) -> None:
        while (request := router.receive()) is not None:
            router.reply(request, "answer")

    answers = {"answer": Schema()}
    dealer = wires.make(book, pause=serve).dealer(ENDPOINTS[2], answers)
    other = wires.make(book, fingerprint=b"x", pause=serve).dealer(ENDPOINTS[2], answers)
    with pytest.raises(RefusedError, match="'good': 'seq' is True, expected a whole number"):
        dealer.request("good", {"seq": True}, timeout_seconds=5.0)
    with pytest.raises(RefusedError, match="knows no 'unheard'"):
        dealer.request("unheard", timeout_seconds=5.0)
    with pytest.raises(AdmissionError, match="has fingerprint 78, this run has"):
        other.request("good", {"seq": 1}, timeout_seconds=5.0)
    assert router.counters.rejected == 3
    assert dealer.request("good", {"seq": 1}, timeout_seconds=5.0).kind == "answer"


def test_an_answer_that_does_not_fit_is_not_taken(wires: Wires, book: AddressBook) -> None:
    router = wires.make(book, "ps").router(ENDPOINTS[2])
    dealer = wires.make(book).dealer(ENDPOINTS[2], {"answer": Schema({"seq": Count()})})
    until(lambda: dealer.send("ask"))
    request = until(router.receive)
    router.reply(request, "answer", {"seq": -1})
    router.reply(request, "answer", {"seq": 1})
    assert until(dealer.receive).fields == {"seq": 1, "id": 1}
    assert dealer.counters.rejected == 1
