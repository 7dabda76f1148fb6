"""Payloads and their arrays, beside a twin that is slow and plain."""

from __future__ import annotations

import base64
import json
import math
import struct
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from session.addons.gateway.protocols import Encoding
from session.wire.frames import FrameReader
from surreal_like.addons.gateway.payloads import FATAL, ClientArray, Refusal, decode, encode
from surreal_like.data.spec import OBS_TYPES, ArraySpec
from surreal_like.errors import DataError

GOLDEN = json.loads(Path(__file__).with_name("gateway_frames.json").read_text())


def payload(golden: dict[str, Any]) -> bytes:
    reader = FrameReader(1 << 20)
    reader.feed(bytes.fromhex(golden["hex"]))
    found = reader.next()
    assert found is not None
    return found


def plain(value: Any) -> Any:
    """Arrays in the form of the file."""
    if isinstance(value, np.ndarray):
        data = base64.b64encode(value.tobytes()).decode()
        return {"dtype": value.dtype.name, "shape": list(value.shape), "data": data}
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return value


def malformed(data: bytes, encoding: Encoding | None = None) -> str:
    with pytest.raises(Refusal) as caught:
        decode(data, encoding)
    assert caught.value.code == "malformed"
    assert caught.value.fatal
    return caught.value.text


@pytest.mark.parametrize("first", range(256))
def test_the_first_byte_tells_the_encoding(first: int) -> None:
    is_map = 0x80 <= first <= 0x8F or first in (0xDE, 0xDF, 0x7B)
    if first == 0x80:
        assert decode(b"\x80", None) == ({}, Encoding.msgpack)
    else:
        assert malformed(bytes([first])).startswith("a message is a map") != is_map


@pytest.mark.parametrize("value", [object(), "\ud800", 1 << 70, np.zeros(1, "c8")])
def test_a_message_that_cannot_be_encoded_leaves_nothing_for_the_next(value: Any) -> None:
    with pytest.raises((KeyError, UnicodeEncodeError)):
        encode({"kind": "action", "action": [1, value]}, Encoding.msgpack)
    assert decode(encode({"kind": "pong"}, Encoding.msgpack), None)[0] == {"kind": "pong"}


def test_a_session_keeps_its_encoding() -> None:
    assert "began in json" in malformed(b"\x80", Encoding.json)
    assert "began in msgpack" in malformed(b"{}", Encoding.msgpack)
    assert malformed(b"")


@pytest.mark.parametrize(
    "data",
    [
        b"\x81\xa1a",  # cut off
        b"\x80\x80",  # more than one value
        b"\x81\x01\x01",  # a key that is no text
        b"\x81\xa1a\xc1",
        b"\x81\xa1a" + msgpack.packb(msgpack.ExtType(2, b"")),
        b"\x81\xa1a" + msgpack.packb("x" * 4097),
        b"\x81\xa1a" + msgpack.packb(b"x" * 4097),
        b"\x81\xa1a\xa1\xff",  # no UTF-8
        msgpack.packb({str(i): 0 for i in range(257)}),
        b"\x81\xa1a" + b"\x91" * 8 + b"\x90",
        b"\x81\xa1a" + b"\x91" * 100_000 + b"\xc0",
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa1a\xdd\xff\xff\xff\xff",
        b"{",
        b"{}{}",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": ' + b"[" * 8 + b"]" * 8 + b"}",
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a": ' + b"1" * 5000 + b"}",
        b'{"a": "\xff"}',
        b'{"a": "\xed\xa0\x80"}',  # half of a surrogate pair
        b'{"a": "\\ud800"}',
        b'{"\\uDC00x": 1}',
        '{"a": 1}'.encode("utf-16-le"),
        b"\x81\xa1a" + msgpack.packb(msgpack.Timestamp(1)),
        b"\x81\xa1a\x91" + msgpack.packb(msgpack.Timestamp(1)),
        json.dumps({str(i): 0 for i in range(257)}).encode(),
        json.dumps({"a": "x" * 4097}).encode(),
        json.dumps({"a": [1, ["x" * 4097]]}).encode(),
        json.dumps({"a": [{"x" * 4097: 1}]}).encode(),
    ],
)
def test_what_does_not_decode_is_malformed(data: bytes) -> None:
    assert malformed(data)


def test_the_data_of_an_array_may_be_longer_than_a_text() -> None:
    data = base64.b64encode(bytes(8192)).decode()
    fields = {"a": {"dtype": "uint8", "shape": [8192], "data": data}, "b": "x" * 4096}
    assert decode(json.dumps(fields).encode(), None) == (fields, Encoding.json)


def ext(code: int, shape: tuple[int, ...], data: bytes) -> bytes:
    head = struct.pack(f"<BB{len(shape)}I", code, len(shape), *shape)
    return bytes(msgpack.packb({"a": msgpack.ExtType(1, head + data)}))


@pytest.mark.parametrize(
    "data",
    [
        ext(0, (), b"\0"),
        ext(11, (), b"\0"),
        ext(2, (2,), b"\0"),
        ext(2, (2,), b"\0\0\0"),
        ext(2, (1 << 31, 1 << 31), b""),
        ext(2, (1,) * 9, b"\0"),
        ext(9, (1,), b"\2"),
        msgpack.packb({"a": msgpack.ExtType(1, b"")}),
        msgpack.packb({"a": msgpack.ExtType(1, b"\2")}),
        msgpack.packb({"a": msgpack.ExtType(1, b"\2\2\0\0\0\0")}),
    ],
)
def test_a_malformed_array_is_refused(data: bytes) -> None:
    assert malformed(data)


@pytest.mark.parametrize("name", [*OBS_TYPES, "float64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (1, 2, 3, 1, 1, 1, 1, 2)])
def test_arrays_keep_dtype_and_shape(name: str, shape: tuple[int, ...]) -> None:
    array = np.arange(math.prod(shape)).reshape(shape).astype(name)
    found = decode(encode({"a": array}, Encoding.msgpack), None)[0]["a"]
    assert found.dtype == array.dtype
    assert found.shape == shape
    assert (found == array).all()
    assert not found.flags.writeable


def test_a_big_endian_array_is_sent_as_a_little_endian_one() -> None:
    array = np.array([1, 2], ">i4")
    assert decode(encode({"a": array}, Encoding.msgpack), None)[0]["a"].tolist() == [1, 2]


def test_arrays_are_numbers_and_lists_in_json() -> None:
    fields = {"a": np.array([[1, 2]]), "b": np.float32(0.5), "c": np.array(3)}
    assert json.loads(encode(fields, Encoding.json)) == {"a": [[1, 2]], "b": 0.5, "c": 3}


def shape_of(part: Any) -> tuple[int, ...] | None:
    """The shape of nested lists; None where they are ragged."""
    if not isinstance(part, list):
        return ()
    inner = [shape_of(each) for each in part]
    if not part:
        return (0,)
    first = inner[0]
    return None if first is None or any(each != first for each in inner) else (len(part), *first)


def fits(spec: ArraySpec, number: Any) -> bool:
    if spec.type == "bool":
        return type(number) is not float and number in (0, 1)
    if type(number) is bool or number != number:
        return False
    if spec.type == "float32":
        return bool(abs(number) <= float(np.finfo(np.float32).max))
    limits = np.iinfo(spec.dtype)
    whole = number not in (math.inf, -math.inf) and number == int(number)
    return whole and limits.min <= int(number) <= limits.max


def naive(spec: ArraySpec, value: Any) -> Any:
    """The array of nested lists, element by element; None where it is refused."""
    flat = np.array(value, object).reshape(-1).tolist() if shape_of(value) == spec.dim else None
    if flat is None or not all(fits(spec, each) for each in flat):
        return None
    return np.array([np.array(each).astype(spec.dtype) for each in flat], spec.dtype).reshape(
        spec.dim
    )


def to_array(spec: ArraySpec, value: Any, name: str) -> Any:
    return ClientArray(spec, name).read(value)[0, ...]


NUMBERS = st.one_of(
    st.booleans(),
    st.integers(-3, 300),
    st.integers(),
    st.floats(),
    st.sampled_from([0.0, 1.0, 1.5, 2.0**31, 1e39, 2**63, 10**400]),
)
VALUES = st.one_of(
    NUMBERS,
    st.lists(NUMBERS, min_size=2, max_size=2),
    st.lists(st.lists(NUMBERS, min_size=1, max_size=2), min_size=1, max_size=2),
)


@given(st.sampled_from(OBS_TYPES), st.sampled_from([(), (2,), (2, 1), (0,)]), VALUES)
def test_numbers_stand_for_an_array(name: str, dim: tuple[int, ...], value: Any) -> None:
    spec, expected = ArraySpec(name, dim), naive(ArraySpec(name, dim), value)
    if expected is None:
        with pytest.raises(DataError, match="x: "):
            to_array(spec, value, "x")
        return
    found = to_array(spec, value, "x")
    assert found.dtype == spec.dtype
    assert found.shape == dim
    assert (found == expected).all()


@pytest.mark.parametrize("given_", ["1", None, ["1"], {"a": 1}, [None], [[1], 2], [[1], [1, 2]]])
def test_what_is_no_number_is_refused(given_: Any) -> None:
    for dim in ((), (1,), (2, 1)):
        with pytest.raises(DataError, match="x: "):
            to_array(ArraySpec("float32", dim), given_, "x")


@pytest.mark.parametrize("name", [*OBS_TYPES, "float64"])
def test_an_array_has_the_dtype_of_the_spec(name: str) -> None:
    array = np.zeros(2, name)
    for wanted in OBS_TYPES:
        if name == wanted or (name, wanted) == ("float64", "float32"):
            assert to_array(ArraySpec(wanted, (2,)), array, "x").dtype == wanted
        else:
            with pytest.raises(DataError, match=f"x: {name} given, its spec says {wanted}"):
                to_array(ArraySpec(wanted, (2,)), array, "x")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e39])
def test_no_number_becomes_infinite(value: float) -> None:
    for given_ in (np.array([value, 0.0]), [value, 0.0]):
        with pytest.raises(DataError, match="too large for float32"):
            to_array(ArraySpec("float32", (2,)), given_, "x")
    if not math.isfinite(value):
        with pytest.raises(DataError, match="expected a finite number"):
            to_array(ArraySpec("float32", (2,)), np.array([value, 0.0], np.float32), "x")


def test_another_shape_is_refused() -> None:
    for given_ in (np.zeros((1, 2), np.float32), [[0, 0]], 0, np.float32(0)):
        with pytest.raises(DataError, match="x: "):
            to_array(ArraySpec("float32", (2,)), given_, "x")


def test_bounds_and_counts_are_those_of_the_spec() -> None:
    with pytest.raises(DataError, match=r"x: 5 at \[1\] of \[2\], expected 0 to below"):
        to_array(ArraySpec("int64", (2,), num=np.array([5, 5])), [4, 5], "x")
    low = ArraySpec("float32", (2,), low=np.array(-1.0), high=np.array(1.0))
    with pytest.raises(DataError, match=r"expected at most 1\.0"):
        to_array(low, [0, 2], "x")


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float16"},
        {"dtype": 1},
        {"dtype": None},
        {"shape": [5]},
        {"shape": [-2]},
        {"shape": [2.0]},
        {"shape": 2},
        {"shape": [True, 2]},
        {"data": "?"},
        {"data": 1},
        {"data": "AAAA"},
        {"more": 1},
    ],
)
def test_an_object_of_json_that_is_no_array_is_refused(changes: dict[str, Any]) -> None:
    data = base64.b64encode(np.zeros(2, np.float32).tobytes()).decode()
    value = {"dtype": "float32", "shape": [2], "data": data}
    assert to_array(ArraySpec("float32", (2,)), value, "x").tolist() == [0, 0]
    with pytest.raises(DataError, match="x: "):
        to_array(ArraySpec("float32", (2,)), {**value, **changes}, "x")


@pytest.mark.parametrize("value", [[1.0, 0], [0.0, 1], [2, 0], ["1", 0], [None, 0]])
def test_bool_is_true_false_0_or_1(value: Any) -> None:
    assert to_array(ArraySpec("bool", (2,)), [True, 0], "x").tolist() == [True, False]
    with pytest.raises(DataError, match="expected true, false, 0 or 1"):
        to_array(ArraySpec("bool", (2,)), value, "x")


def test_bool_data_are_0_and_1() -> None:
    value = {"dtype": "bool", "shape": [1], "data": base64.b64encode(b"\2").decode()}
    with pytest.raises(DataError, match="0 and 1"):
        to_array(ArraySpec("bool", (1,)), value, "x")


def test_an_error_says_whether_it_is_fatal() -> None:
    for code in FATAL:
        assert Refusal(code, "x").to_message()["fatal"]
    assert Refusal("bad_seq", "x", 3).to_message() == {
        "kind": "error",
        "code": "bad_seq",
        "message": "x",
        "fatal": False,
        "seq": 3,
    }


def test_white_space_may_stand_behind_json_and_not_before_it() -> None:
    assert decode(b'{"kind": "bye"} \r\n', None)[0] == {"kind": "bye"}
    assert malformed(b' {"kind": "bye"}').startswith("a message is a map")


def test_actions_in_json_are_numbers_and_nested_lists() -> None:
    for action, text in ((np.array([0.5, -0.25], np.float32), "[0.5,-0.25]"), (1, "1")):
        assert encode({"action": action}, Encoding.json).decode() == f'{{"action":{text}}}'
