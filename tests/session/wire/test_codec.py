"""Messages survive the way to bytes and back; bytes that are no message raise one named error."""

import math

import hypothesis.extra.numpy as arrays_of
import msgpack
import numpy as np
import numpy.typing as npt
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from session.errors import DecodeError, OversizeError, WireError
from session.wire import PROTOCOL_VERSION, Identity, Message, codec, decode, encode
from session.wire.codec import Buffer, size_bytes
from tests.examples import examples

LIMIT = 1 << 20
DTYPES = "?bBhHiIqQefd"

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
identities = st.builds(
    Identity,
    st.text(max_size=63),
    st.integers(0, 2**53 - 1),
    st.binary(max_size=8),
    st.integers(0, 2**31 - 1),
)
shapes = arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
arrays = st.sampled_from(DTYPES).flatmap(lambda code: arrays_of.arrays(np.dtype(code), shapes))
messages = st.builds(
    Message,
    st.text(max_size=20),
    st.dictionaries(st.text(), plain, max_size=4),
    st.dictionaries(st.text(), arrays, max_size=4),
    identities,
)


def as_bytes(frames: list[Buffer]) -> list[bytes]:
    return [frame.bytes if isinstance(frame, zmq.Frame) else bytes(frame) for frame in frames]


def header(**changes: object) -> bytes:
    """A good header with some of its parts replaced."""
    parts: dict[str, object] = {
        "version": PROTOCOL_VERSION,
        "kind": "chunk",
        "name": "agent-0",
        "incarnation": 1,
        "fingerprint": b"",
        "generation": 0,
        "fields": {},
        "manifest": [],
    }
    packed: bytes = msgpack.packb(list({**parts, **changes}.values()))
    return packed


@given(messages)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    back = decode(as_bytes(encode(message)), LIMIT)
    assert (back.kind, back.fields, back.sender) == (message.kind, message.fields, message.sender)
    assert list(back.arrays) == list(message.arrays)
    for name, array in message.arrays.items():
        assert back.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(back.arrays[name], array, strict=True)


@pytest.mark.parametrize("code", [">f4", ">i8", ">u2"])
def test_other_byte_orders_arrive_as_little_endian(code: str) -> None:
    array = np.arange(6, dtype=code).reshape(2, 3)
    back = decode(as_bytes(encode(Message("x", arrays={"a": array}))), LIMIT).arrays["a"]
    assert back.dtype.str == code.replace(">", "<")
    np.testing.assert_array_equal(back, array)


def test_views_that_are_not_contiguous_arrive_whole() -> None:
    array = np.arange(24.0).reshape(4, 6)[::2, ::-3]
    back = decode(as_bytes(encode(Message("x", arrays={"a": array}))), LIMIT).arrays["a"]
    np.testing.assert_array_equal(back, array)


def test_large_arrays_are_not_copied_on_either_side() -> None:
    array = np.arange(1000.0)
    frames = encode(Message("x", arrays={"a": array}))
    assert isinstance(frames[1], memoryview)
    assert np.shares_memory(np.frombuffer(frames[1], np.uint8), array)
    back = decode([zmq.Frame(frames[0]), zmq.Frame(frames[1], copy=False)], LIMIT).arrays["a"]
    assert np.shares_memory(back, array)


def test_decoded_arrays_are_read_only() -> None:
    frames = as_bytes(encode(Message("x", arrays={"a": np.zeros(3)})))
    back = decode([frames[0], memoryview(bytearray(frames[1]))], LIMIT).arrays["a"]
    with pytest.raises(ValueError, match="read-only"):
        back[0] = 1.0


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a"]),
        np.array([object()]),
        np.zeros(2, np.complex64),
        np.zeros(2, "M8[s]"),
        np.zeros(2, [("x", "f4")]),
        np.zeros(2, np.longdouble),
    ],
    ids=lambda array: str(array.dtype),
)
def test_dtypes_that_cannot_be_carried_are_named(array: npt.NDArray[np.generic]) -> None:
    with pytest.raises(TypeError, match=r"array 'picture' has dtype .*cannot carry"):
        encode(Message("x", arrays={"picture": array}))


def test_fields_that_are_no_plain_data_are_refused_at_the_sender() -> None:
    with pytest.raises(TypeError):
        encode(Message("x", {"f": print}))


@given(messages, st.data())
def test_truncated_messages_raise_the_named_error(message: Message, data: st.DataObject) -> None:
    frames = as_bytes(encode(message))
    index = data.draw(st.integers(0, len(frames) - 1))
    if not frames[index]:
        frames = frames[:index]
    else:
        frames[index] = frames[index][: data.draw(st.integers(0, len(frames[index]) - 1))]
    with pytest.raises(DecodeError):
        decode(frames, LIMIT)


@given(messages, st.data())
def test_damaged_messages_decode_or_raise_the_named_error(
    message: Message, data: st.DataObject
) -> None:
    frames = [bytearray(frame) for frame in as_bytes(encode(message))]
    for _ in range(data.draw(st.integers(1, 4))):
        frame = data.draw(st.sampled_from(frames))
        if frame:
            frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    decodes_or_raises([bytes(frame) for frame in frames])


@settings(max_examples=examples(300))
@given(st.lists(st.binary(max_size=64), max_size=4))
def test_arbitrary_bytes_decode_or_raise_the_named_error(frames: list[bytes]) -> None:
    decodes_or_raises(frames)


@given(st.lists(plain, min_size=8, max_size=8), st.lists(st.binary(max_size=16), max_size=3))
def test_headers_of_other_types_decode_or_raise_the_named_error(
    parts: list[object], rest: list[bytes]
) -> None:
    decodes_or_raises([msgpack.packb(parts), *rest])


@given(st.lists(plain, max_size=3), st.binary(max_size=16))
def test_manifests_of_other_types_decode_or_raise_the_named_error(
    manifest: list[object], buffer: bytes
) -> None:
    decodes_or_raises([header(manifest=manifest), *[buffer] * len(manifest)])


def decodes_or_raises(frames: list[bytes]) -> None:
    try:
        message = decode(frames, LIMIT)
    except WireError:
        return
    assert type(message.kind) is str
    assert type(message.fields) is dict
    assert sum(array.nbytes for array in message.arrays.values()) <= size_bytes(frames)


DEEP = b"\x91" * 990 + b"\xc0"
HOSTILE: dict[str, list[bytes]] = {
    "no frame": [],
    "empty header": [b""],
    "never used byte": [b"\xc1"],
    "text": [b"GET / HTTP/1.1\r\n\r\n"],
    "bytes behind the header": [header() + b"x"],
    "header nested too deep": [b"\x91" * 2000 + b"\xc0"],
    "lists that reserve much memory": [b"\xdd\x00\x0f\xff\xff" * 1000 + bytes(1 << 20)],
    "maps that reserve much memory": [b"\xdf\x00\x0f\xff\xff" * 1000 + bytes(1 << 20)],
    "list as a key": [header(fields={})[:-2] + b"\x81\x90\x00\x90"],
    "text that is no text": [header(kind=b"\xff\xfe")],
    "kind is a number": [header(kind=3)],
    "incarnation is true": [header(incarnation=True)],
    "buffer missing": [header(manifest=[["a", "<f4", [1]]])],
    "buffer too many": [header(), b""],
    "buffer too short": [header(manifest=[["a", "<f4", [2]]]), b"1234"],
    "buffer too long": [header(manifest=[["a", "<f4", [2]]]), b"123456789"],
    "buffer for two too short": [header(manifest=[["a", "<f4", [1]]] * 2), bytes(8)],
    "buffer for two too long": [header(manifest=[["a", "<f4", [1]]] * 2), bytes(24)],
    "buffer for two without gaps": [header(manifest=[["a", "|u1", [4]]] * 2), bytes(9)],
    "two buffers for three": [header(manifest=[["a", "<f8", [1]]] * 3), bytes(8), bytes(8)],
    "objects": [header(manifest=[["a", "|O8", [1]]]), bytes(8)],
    "dtype is a list": [header(manifest=[["a", ["<f4"], [1]]]), b"1234"],
    "dtype is a record": [header(manifest=[["a", "<f4,<f4", [1]]]), bytes(8)],
    "length below zero": [header(manifest=[["a", "<f4", [-1, -1]]]), b"1234"],
    "length is a fraction": [header(manifest=[["a", "<f4", [1.0]]]), b"1234"],
    "length is true": [header(manifest=[["a", "<f4", [True]]]), b"1234"],
    "shape is a text": [header(manifest=[["a", "<f4", "11"]]), b"1234"],
    "shape is a number": [header(manifest=[["a", "<f4", 1]]), b"1234"],
    "too many dimensions": [header(manifest=[["a", "<f4", [1] * 65]]), b"1234"],
    "empty, with a length beyond memory": [header(manifest=[["a", "<f8", [0, 2**62]]]), b""],
    "empty, with a length beyond integers": [header(manifest=[["a", "<f8", [0, 2**64 - 1]]]), b""],
    "product wraps around to the size": [header(manifest=[["a", "|u1", [2**32, 2**32]]]), b""],
    "name is a list": [header(manifest=[[["a"], "<f4", [1]]]), b"1234"],
    "entry nested deep": [header()[:-1] + b"\x91" + DEEP, b""],
    "name nested deep": [header()[:-1] + b"\x91\x93" + DEEP + b"\xa3<f8\x90", bytes(8)],
    "bad time": [header(fields={})[:-2] + b"\x81\xa1t\xc7\x00\xff\x90"],
}


@pytest.mark.parametrize("frames", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_raise_the_named_error(frames: list[bytes]) -> None:
    with pytest.raises(DecodeError):
        decode(frames, LIMIT << 4)


def test_another_protocol_version_is_named() -> None:
    with pytest.raises(DecodeError, match="'agent-0' speaks protocol 9, this is protocol 4"):
        decode([header(version=9)], LIMIT)


def test_messages_above_the_limit_raise_the_named_error() -> None:
    frames = encode(Message("x", arrays={"a": np.zeros(1000)}))
    total = size_bytes(frames)
    decode(as_bytes(frames), total)
    with pytest.raises(OversizeError, match=f"message of {total} bytes, the limit is {total - 1}"):
        decode(as_bytes(frames), total - 1)


def test_a_header_has_a_bound_of_its_own() -> None:
    frames = encode(Message("x", {"text": "x" * (17 << 20)}))
    with pytest.raises(OversizeError):
        decode(as_bytes(frames), 1 << 30)


@given(st.lists(arrays, max_size=4))
def test_size_is_what_goes_over_the_wire(held: list[npt.NDArray[np.generic]]) -> None:
    frames = encode(Message("x", arrays={str(i): array for i, array in enumerate(held)}))
    assert size_bytes(frames) == sum(map(len, as_bytes(frames)))
    sizes = [math.prod(a.shape) * a.itemsize for a in held]
    # Several together are filled up to multiples of eight.
    whole = sizes if len(held) == 1 else [-(-size // 8) * 8 for size in sizes]
    assert size_bytes(frames[1:]) == sum(whole)


def test_small_arrays_share_a_frame_and_large_ones_do_not() -> None:
    small = {"a": np.arange(3, dtype=np.uint8), "b": np.arange(2.0), "c": np.zeros((0, 4))}
    frames = encode(Message("x", arrays=small))
    assert [len(frame) for frame in frames[1:]] == [8 + 16]
    back = decode(as_bytes(frames), LIMIT).arrays
    assert {name: array.tolist() for name, array in back.items()} == {
        "a": [0, 1, 2],
        "b": [0.0, 1.0],
        "c": [],
    }
    assert not any(array.flags.writeable for array in back.values())
    large = {**small, "d": np.zeros(1 << 18, np.uint8)}
    assert [len(frame) for frame in encode(Message("x", arrays=large))[1:]] == [3, 16, 0, 1 << 18]


def test_layouts_are_kept_unless_they_are_long() -> None:
    kept = codec._unpack_kept
    short = Message("x", {}, {"kept or not": np.zeros(3)})
    decode(encode(short), LIMIT)
    hits = kept.cache_info().hits
    decode(encode(short), LIMIT)
    assert kept.cache_info().hits == hits + 1
    long = Message("x", {}, {"n" * 5000: np.zeros(3)})
    before = kept.cache_info()
    decode(encode(long), LIMIT)
    assert kept.cache_info() == before
