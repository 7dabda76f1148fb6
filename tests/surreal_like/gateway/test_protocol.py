"""Messages of clients: golden frames, every field, arrays beside a twin that is slow and plain."""

from __future__ import annotations

import base64
import json
import math
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from session.stream.protocols import Encoding
from session.wire.frames import FrameReader
from surreal_like.data.spec import OBS_TYPES, ArraySpec
from surreal_like.errors import DataError
from surreal_like.gateway.messages import (
    Bye,
    Hello,
    Metrics,
    Ping,
    Protocol,
    Request,
    encode_spec,
)
from surreal_like.gateway.payloads import FATAL, ClientArray, Refusal, decode, encode

GOLDEN = json.loads(
    (Path(__file__).resolve().parents[2] / "golden" / "gateway_frames.json").read_text()
)
OBS = {"type": "float32", "dim": [4]}
DISCRETE = {"type": "discrete", "dim": [2]}
CONTINUOUS = {"type": "continuous", "dim": [2], "low": -1.0, "high": 1.0}
ONE = Protocol(OBS, DISCRETE)
FOUR = Protocol({"type": "float32", "dim": []}, DISCRETE, num_envs=4)
NESTED = Protocol({"image": {"type": "uint8", "dim": [2, 2]}, "goal": OBS}, CONTINUOUS)
PAIR = Protocol({"0": OBS, "1": {"type": "int64", "dim": [], "num": 5}}, DISCRETE)
HELLO = {"kind": "hello", "v": 1}
STEP = {"kind": "step", "seq": 2, "reward": 1.0, "observation": [1, 2, 3, 4]}
END = {"kind": "end", "seq": 2, "reward": 1.0}


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


def refused(protocol: Protocol, fields: dict[str, Any]) -> Refusal:
    with pytest.raises(Refusal) as caught:
        protocol.parse(fields)
    return caught.value


def malformed(data: bytes, encoding: Encoding | None = None) -> str:
    with pytest.raises(Refusal) as caught:
        decode(data, encoding)
    assert caught.value.code == "malformed"
    assert caught.value.fatal
    return caught.value.text


# -- payloads


@pytest.mark.parametrize("golden", GOLDEN, ids=[each["name"] for each in GOLDEN])
def test_P10_golden_frames(golden: dict[str, Any]) -> None:
    fields, encoding = decode(payload(golden), None)
    assert plain(fields) == golden["json"]
    assert encoding is (Encoding.json if "JSON" in golden["name"] else Encoding.msgpack)
    if golden["from"] == "client":
        assert ONE.parse(fields) is not None
    else:
        assert encode(fields, Encoding.msgpack) == payload(golden)


@pytest.mark.parametrize("golden", GOLDEN, ids=[each["name"] for each in GOLDEN])
def test_P2_the_same_message_in_json(golden: dict[str, Any]) -> None:
    fields, encoding = decode(json.dumps(golden["json"]).encode(), None)
    assert encoding is Encoding.json
    if golden["from"] == "client":
        first, second = ONE.parse(fields), ONE.parse(decode(payload(golden), None)[0])
        assert repr(first) == repr(second)


@pytest.mark.parametrize("first", range(256))
def test_P2_the_first_byte_tells_the_encoding(first: int) -> None:
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


def test_P2_a_session_keeps_its_encoding() -> None:
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
def test_P2_what_does_not_decode_is_malformed(data: bytes) -> None:
    assert malformed(data)


def test_A4_the_data_of_an_array_may_be_longer_than_a_text() -> None:
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
def test_P4_a_malformed_array(data: bytes) -> None:
    assert malformed(data)


@pytest.mark.parametrize("name", [*OBS_TYPES, "float64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (1, 2, 3, 1, 1, 1, 1, 2)])
def test_P4_arrays_keep_dtype_and_shape(name: str, shape: tuple[int, ...]) -> None:
    array = np.arange(math.prod(shape)).reshape(shape).astype(name)
    found = decode(encode({"a": array}, Encoding.msgpack), None)[0]["a"]
    assert found.dtype == array.dtype
    assert found.shape == shape
    assert (found == array).all()
    assert not found.flags.writeable


def test_P4_a_big_endian_array_is_sent_as_a_little_endian_one() -> None:
    array = np.array([1, 2], ">i4")
    assert decode(encode({"a": array}, Encoding.msgpack), None)[0]["a"].tolist() == [1, 2]


def test_arrays_are_numbers_and_lists_in_json() -> None:
    fields = {"a": np.array([[1, 2]]), "b": np.float32(0.5), "c": np.array(3)}
    assert json.loads(encode(fields, Encoding.json)) == {"a": [[1, 2]], "b": 0.5, "c": 3}


# -- arrays


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
def test_P5_numbers_stand_for_an_array(name: str, dim: tuple[int, ...], value: Any) -> None:
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
def test_P5_what_is_no_number_is_refused(given_: Any) -> None:
    for dim in ((), (1,), (2, 1)):
        with pytest.raises(DataError, match="x: "):
            to_array(ArraySpec("float32", dim), given_, "x")


@pytest.mark.parametrize("name", [*OBS_TYPES, "float64"])
def test_P5_an_array_has_the_dtype_of_the_spec(name: str) -> None:
    array = np.zeros(2, name)
    for wanted in OBS_TYPES:
        if name == wanted or (name, wanted) == ("float64", "float32"):
            assert to_array(ArraySpec(wanted, (2,)), array, "x").dtype == wanted
        else:
            with pytest.raises(DataError, match=f"x: {name} given, its spec says {wanted}"):
                to_array(ArraySpec(wanted, (2,)), array, "x")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e39])
def test_P5_no_number_becomes_infinite(value: float) -> None:
    for given_ in (np.array([value, 0.0]), [value, 0.0]):
        with pytest.raises(DataError, match="too large for float32"):
            to_array(ArraySpec("float32", (2,)), given_, "x")
    if not math.isfinite(value):
        with pytest.raises(DataError, match="expected a finite number"):
            to_array(ArraySpec("float32", (2,)), np.array([value, 0.0], np.float32), "x")


def test_P5_another_shape_is_refused() -> None:
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
def test_P4_an_object_of_json_that_is_no_array(changes: dict[str, Any]) -> None:
    data = base64.b64encode(np.zeros(2, np.float32).tobytes()).decode()
    value = {"dtype": "float32", "shape": [2], "data": data}
    assert to_array(ArraySpec("float32", (2,)), value, "x").tolist() == [0, 0]
    with pytest.raises(DataError, match="x: "):
        to_array(ArraySpec("float32", (2,)), {**value, **changes}, "x")


@pytest.mark.parametrize("value", [[1.0, 0], [0.0, 1], [2, 0], ["1", 0], [None, 0]])
def test_P5_bool_is_true_false_0_or_1(value: Any) -> None:
    assert to_array(ArraySpec("bool", (2,)), [True, 0], "x").tolist() == [True, False]
    with pytest.raises(DataError, match="expected true, false, 0 or 1"):
        to_array(ArraySpec("bool", (2,)), value, "x")


def test_P4_bool_data_are_0_and_1() -> None:
    value = {"dtype": "bool", "shape": [1], "data": base64.b64encode(b"\2").decode()}
    with pytest.raises(DataError, match="0 and 1"):
        to_array(ArraySpec("bool", (1,)), value, "x")


# -- hello


def test_P6_hello() -> None:
    fields = {
        "token": "t",
        "mode": "act",
        "name": "a.B_c-9",
        "num_envs": 1,
        "client": "mine 1",
        "resume": "1.00ff",
        "unknown": [1],
    }
    assert ONE.parse({**HELLO, **fields}) == Hello(1, "t", "act", "a.B_c-9", 1, "mine 1", "1.00ff")
    assert ONE.parse({**HELLO, "v": 9}) == Hello(9, "", "", "", 1, "", "")


@pytest.mark.parametrize("version", [None, 0, -1, 1.0, True, "1", [1]])
def test_P9_bad_version(version: Any) -> None:
    refusal = refused(ONE, {"kind": "hello", "v": version})
    assert refusal.code == "bad_version"
    assert "here it is 1" in refusal.text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mode", "learn"),
        ("mode", 1),
        ("mode", ["train"]),
        ("name", "a b"),
        ("name", "a" * 65),
        ("name", 1),
        ("name", "../x"),
        ("num_envs", 0),
        ("num_envs", 1.0),
        ("num_envs", True),
        ("num_envs", "1"),
        ("token", 1),
        ("token", "a" * 257),
        ("client", {}),
        ("client", "a" * 257),
        ("resume", b"a"),
        ("resume", "a" * 257),
    ],
)
def test_P9_bad_hello(key: str, value: Any) -> None:
    refusal = refused(ONE, {**HELLO, key: value})
    assert refusal.code == "bad_hello"
    assert refusal.fatal
    assert key in refusal.text


# -- requests


def test_P6_reset_and_step() -> None:
    reset = ONE.parse({"kind": "reset", "seq": 1, "observation": [1, 2, 3, 4]})
    assert isinstance(reset, Request)
    assert reset.obs.tolist() == [[1, 2, 3, 4]]
    assert reset.reward.tolist() == [0]
    step = ONE.parse({**STEP, "action": 1, "metrics": {"my/x": 2}})
    assert isinstance(step, Request)
    assert (step.kind, step.seq, step.reward.tolist()) == ("step", 2, [1.0])
    assert not step.terminated.any()
    assert not step.truncated.any()
    assert step.action is not None
    assert step.action.tolist() == [1]
    assert step.info == {"metrics": [{"my/x": 2.0}]}


def test_P6_the_three_ends() -> None:
    lost, last, limit = (
        ONE.parse({**END, **more})
        for more in ({}, {"observation": [0] * 4}, {"observation": [0] * 4, "truncated": True})
    )
    assert isinstance(lost, Request)
    assert isinstance(last, Request)
    assert isinstance(limit, Request)
    assert lost.obs is None
    assert [each.terminated.tolist() for each in (lost, last, limit)] == [[True], [True], [False]]
    assert [each.truncated.tolist() for each in (lost, last, limit)] == [[False], [False], [True]]


def test_P6_the_other_kinds() -> None:
    assert ONE.parse({"kind": "metrics", "values": {"a": 1}}) == Metrics({"a": 1.0})
    assert ONE.parse({"kind": "ping", "t": [1, "a"]}) == Ping([1, "a"])
    assert ONE.parse({"kind": "ping"}) == Ping(None)
    assert ONE.parse({"kind": "bye"}) == Bye()


@pytest.mark.parametrize("fields", [{}, {"kind": None}, {"kind": 1}, {"kind": ["step"]}])
def test_a_message_without_a_kind_is_none(fields: dict[str, Any]) -> None:
    refusal = refused(ONE, fields)
    assert (refusal.code, refusal.fatal) == ("malformed", True)
    assert refusal.text.endswith("expected a text: each message has one")


@pytest.mark.parametrize("kind", ["", "goodbye", "action", "__class__"])
def test_P9_unknown_kind(kind: Any) -> None:
    refusal = refused(ONE, {"kind": kind})
    assert refusal.code == "unknown_kind"
    assert not refusal.fatal
    assert "reset, step, end" in refusal.text


@pytest.mark.parametrize("seq", [None, 0, -1, 1.0, True, "1", 2**53, 10**400])
@pytest.mark.parametrize("kind", ["reset", "step", "end"])
def test_P9_bad_seq(kind: str, seq: Any) -> None:
    assert refused(ONE, {**STEP, "kind": kind, "seq": seq}).code == "bad_seq"


@pytest.mark.parametrize(
    "reward", [None, True, "1", [1.0], math.nan, math.inf, -math.inf, 1e39, 10**400, {}]
)
@pytest.mark.parametrize("kind", ["step", "end"])
def test_P9_bad_reward(kind: str, reward: Any) -> None:
    refusal = refused(ONE, {**STEP, "kind": kind, "reward": reward})
    assert refusal.code == "bad_reward"
    assert refusal.seq == 2


@pytest.mark.parametrize("value", [None, [1, 2, 3], "x", [1, 2, 3, math.nan], {"a": 1}])
@pytest.mark.parametrize("kind", ["reset", "step", "end"])
def test_P9_bad_observation(kind: str, value: Any) -> None:
    fields = {**STEP, "kind": kind, "observation": value, "truncated": True}
    refusal = refused(ONE, fields)
    assert refusal.code == "bad_observation"
    assert refusal.seq == 2
    assert refusal.text.startswith("observation: ")


@pytest.mark.parametrize("value", [None, 1, "true", 0.0])
def test_P9_truncated_is_true_or_false(value: Any) -> None:
    assert "truncated is" in refused(ONE, {**END, "truncated": value}).text


@pytest.mark.parametrize("value", [2, -1, 0.5, True, [1], "1", np.array(1.0)])
@pytest.mark.parametrize("kind", ["step", "end"])
def test_P9_bad_action(kind: str, value: Any) -> None:
    assert refused(ONE, {**STEP, "kind": kind, "action": value}).code == "bad_action"


def test_P9_an_action_outside_of_its_bounds() -> None:
    fields = {**END, "truncated": False, "action": [0.0, 1.5]}
    assert "expected at most" in refused(NESTED, fields).text


@pytest.mark.parametrize(
    "values",
    [
        None,
        1,
        [],
        {str(i): 1 for i in range(65)},
        {"": 1},
        {"a b": 1},
        {"../a": 1},
        {"/a": 1},
        {"a//b": 1},
        {"a" * 201: 1},
        {"a": "1"},
        {"a": True},
        {"a": math.nan},
        {"a": math.inf},
        {"a": 10**400},
        {"a": [1]},
    ],
)
def test_P9_bad_metric(values: Any) -> None:
    assert refused(ONE, {"kind": "metrics", "values": values}).code == "bad_metric"
    if values is not None:
        assert refused(ONE, {**STEP, "metrics": values}).code == "bad_metric"


@pytest.mark.parametrize(
    "token",
    ["a" * 64, list(range(70)), {"a": "b" * 64}, np.zeros(99), math.inf, [{"a": math.nan}]],
)
def test_a_ping_is_short(token: Any) -> None:
    assert refused(ONE, {"kind": "ping", "t": token}).code == "malformed"


# -- nests and several environments


def test_P5_a_nested_observation_has_all_keys_and_no_others() -> None:
    obs = {"image": [[1, 2], [3, 4]], "goal": [0, 0, 0, 0]}
    request = NESTED.parse({"kind": "reset", "seq": 1, "observation": obs})
    assert isinstance(request, Request)
    assert request.obs["image"].tolist() == [[[1, 2], [3, 4]]]
    for wrong in ({"image": obs["image"]}, {**obs, "more": 1}, [obs], None):
        refusal = refused(NESTED, {"kind": "reset", "seq": 1, "observation": wrong})
        assert "expected the keys image, goal" in refusal.text
    refusal = refused(
        NESTED, {"kind": "reset", "seq": 1, "observation": {**obs, "image": [[1, 2], [3, 256]]}}
    )
    assert refusal.text == "observation/image: a number that uint8 cannot hold"


def test_P5_a_tuple_has_the_keys_0_and_1() -> None:
    request = PAIR.parse(
        {"kind": "reset", "seq": 1, "observation": {"1": 4, "0": np.zeros(4, np.float32)}}
    )
    assert isinstance(request, Request)
    assert isinstance(request.obs, tuple)
    assert request.obs[1].tolist() == [4]


def test_P8_several_environments_in_one_message() -> None:
    fields = {
        "kind": "step",
        "seq": 2,
        "observation": [1, 2, 3, 4],
        "reward": [0, 0.5, 1, 0],
        "terminated": [0, 1, 0, 0],
        "truncated": [False, False, True, False],
    }
    request = FOUR.parse(fields)
    assert isinstance(request, Request)
    assert request.obs.tolist() == [1, 2, 3, 4]
    assert request.reward.tolist() == [0, 0.5, 1, 0]
    assert request.terminated.tolist() == [False, True, False, False]
    assert refused(FOUR, {**fields, "reward": 1.0}).code == "bad_reward"
    assert refused(FOUR, {**fields, "terminated": None}).code == "bad_observation"
    assert refused(FOUR, {**fields, "observation": [1]}).code == "bad_observation"
    assert refused(FOUR, {**fields, "kind": "end"}).code == "wrong_state"


# -- what is sent


def test_the_limit_of_a_message_covers_an_observation_in_any_form() -> None:
    pixels = np.full((84, 84, 4), 255, np.uint8)
    protocol = Protocol({"type": "uint8", "dim": [84, 84, 4]}, DISCRETE)
    assert protocol.max_message_bytes == (1 << 16) + 2 * pixels.nbytes + 32 * pixels.size
    for value in (pixels, pixels.tolist(), plain(pixels)):
        data = json.dumps({**STEP, "observation": plain(value)}).encode()
        assert len(data) <= protocol.max_message_bytes


def test_P7_infinite_bounds_are_null() -> None:
    spec = {"a": {"type": "float32", "dim": [2], "low": [-math.inf, 0.0], "high": math.inf}}
    assert encode_spec(spec) == {
        "a": {"type": "float32", "dim": [2], "low": [None, 0.0], "high": None}
    }


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


@given(
    st.dictionaries(
        st.sampled_from([*STEP, *HELLO, "t", "values", "truncated"]),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**63), 2**63)
            | st.floats()
            | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
            max_leaves=8,
        ),
    ),
    st.sampled_from(["hello", "reset", "step", "end", "metrics", "ping", "bye"]),
)
def test_A4_any_message_is_parsed_or_refused(fields: dict[str, Any], kind: str) -> None:
    for protocol in (ONE, FOUR, NESTED, PAIR):
        with suppress(Refusal):
            protocol.parse(decode(encode({**fields, "kind": kind}, Encoding.msgpack), None)[0])


@given(st.binary(max_size=200), st.sampled_from([b"", b"{", b"\x81\xa1a", b"\x82\xa4kind\xa4step"]))
def test_A4_any_bytes_are_decoded_or_malformed(data: bytes, start: bytes) -> None:
    with suppress(Refusal):
        ONE.parse(decode(start + data, None)[0])


# -- bounds of what a learner gets

PARTS = {"small": {"type": "float32", "dim": [2]}, "whole": {"type": "int64", "dim": []}}
BOX = {"type": "float32", "dim": [2], "low": -3e7, "high": [1.0, math.inf]}
FREE = {"type": "continuous", "dim": [1]}
LIMITED = Protocol({"parts": PARTS, "box": BOX}, FREE, rewards=(-1e6, 1e6))
LIMITED_FOUR = Protocol({"type": "float32", "dim": []}, DISCRETE, 4, rewards=(-1.0, 2e9))
INSIDE = {"parts": {"small": [1e6, -1e6], "whole": 1_000_000}, "box": [1.0, 1e6]}


def limited_step(where: str, value: Any) -> dict[str, Any]:
    """A step with another value at one place of its observation, or in another field."""
    fields = {**json.loads(json.dumps(STEP)), "observation": json.loads(json.dumps(INSIDE))}
    fields["action"] = [0.5]
    *path, last = where.split(".")
    holder = fields
    for key in path:
        holder = holder[key]
    holder[last] = value
    return fields


@pytest.mark.parametrize(
    ("where", "value", "code"),
    [
        ("observation.parts.small", [0.0, 1.1e6], "bad_observation"),
        ("observation.parts.small", np.array([0.0, -1e30], np.float32), "bad_observation"),
        ("observation.parts.whole", 1_000_001, "bad_observation"),
        ("observation.parts.whole", np.array(-(2**63), np.int64), "bad_observation"),
        ("observation.box", [1.5, 0.0], "bad_observation"),
        ("observation.box", [0.0, 2e6], "bad_observation"),
        ("reward", 1e12, "bad_reward"),
        ("reward", -1_000_001, "bad_reward"),
        ("action", [-2e6], "bad_action"),
    ],
)
def test_numbers_beyond_their_bounds_are_refused(where: str, value: Any, code: str) -> None:
    refusal = refused(LIMITED, limited_step(where, value))
    assert (refusal.code, refusal.fatal) == (code, False)
    assert "expected" in refusal.text


def test_numbers_within_their_bounds_are_not() -> None:
    for where, value in (("reward", -1e6), ("action", [1e6]), ("observation.box", [-3e7, -5e5])):
        assert isinstance(LIMITED.parse(limited_step(where, value)), Request)
    rewards = {**STEP, "reward": [-1.0, 0.0, 1.0, 2e9], "terminated": [0] * 4, "truncated": [0] * 4}
    assert isinstance(LIMITED_FOUR.parse(rewards), Request)
    assert refused(LIMITED_FOUR, {**rewards, "reward": [0.0, 0.0, -1.5, 0.0]}).code == "bad_reward"


def test_where_nothing_is_learned_numbers_need_only_be_finite() -> None:
    assert isinstance(ONE.parse({**STEP, "reward": 1e30, "observation": [1e30] * 4}), Request)


def test_white_space_may_stand_behind_json_and_not_before_it() -> None:
    assert decode(b'{"kind": "bye"} \r\n', None)[0] == {"kind": "bye"}
    assert malformed(b' {"kind": "bye"}').startswith("a message is a map")


def test_actions_in_json_are_numbers_and_nested_lists() -> None:
    for action, text in ((np.array([0.5, -0.25], np.float32), "[0.5,-0.25]"), (1, "1")):
        assert encode({"action": action}, Encoding.json).decode() == f'{{"action":{text}}}'
