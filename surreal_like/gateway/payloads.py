"""Payloads of the protocol: a map in msgpack or in JSON, and arrays in it; no field is checked."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

import msgpack
import numpy as np

from session.nest import Array
from session.stream.protocols import Encoding
from surreal_like.gateway.messages import Fields, malformed

_ARRAY = 1
DTYPES = (
    "float32",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint16",
    "uint32",
    "bool",
    "float64",
)
_BOOL = np.dtype(np.bool_)
_BY_CODE = {code: np.dtype(name) for code, name in enumerate(DTYPES, 1)}
_CODES = {dtype: code for code, dtype in _BY_CODE.items()}
AXES = 8
_DEPTH, _ENTRIES, _TEXT_BYTES = 8, 256, 4096
_TEXT, _NESTED = frozenset((str,)), frozenset((dict, list))
_FLAT = frozenset((str, int, float, bool, bytes, type(None), np.ndarray))
# Layouts of arrays that are remembered; each client has few.
_LAYOUTS = 256


def decode(payload: bytes, encoding: Encoding | None) -> tuple[Fields, Encoding]:
    """Returns the map in a payload, and its encoding.

    Args:
        payload: as received.
        encoding: of the session; None: either.

    Raises:
        Refusal: it is no map in that encoding.
    """
    reader = _READERS.get(payload[:1])
    if reader is None:
        malformed("a message is a map in msgpack, or an object in JSON")
    found, read = reader
    if found is not encoding and encoding is not None:
        malformed(f"this session began in {encoding}, and a message came in {found}")
    fields = read(payload)
    # Most messages are one short map of numbers, short texts and arrays.
    if not (
        len(payload) <= _TEXT_BYTES
        and len(fields) <= _ENTRIES
        and _TEXT.issuperset(map(type, fields))
        and _FLAT.issuperset(map(type, fields.values()))
    ):
        _check_size(fields)
        # The decoder of msgpack has its own bound.
        if found is Encoding.json and len(payload) > _TEXT_BYTES:
            _check_texts(fields)
    return fields, found


def _from_msgpack(payload: bytes) -> Any:
    try:
        return msgpack.unpackb(
            payload,
            ext_hook=_decode_array,
            max_str_len=_TEXT_BYTES,
            max_bin_len=_TEXT_BYTES,
        )
    except (ValueError, TypeError, RecursionError, MemoryError, msgpack.UnpackException) as error:
        malformed(f"the message is not valid msgpack: {str(error)[:100] or type(error).__name__}")


def _from_json(payload: bytes) -> Any:
    try:
        # As bytes it might be UTF-16, too.
        text = payload.decode()
        fields = json.loads(text, parse_constant=_refuse_constant)
        if "\\u" in text:
            # Half of a surrogate pair is a text that nothing can encode.
            json.dumps(fields, ensure_ascii=False).encode()
    except (ValueError, RecursionError, MemoryError) as error:
        malformed(f"the message is not valid JSON: {str(error)[:100]}")
    return fields


# By the first byte of a payload.
_READERS: dict[bytes, tuple[Encoding, Callable[[bytes], Any]]] = {
    b"{": (Encoding.json, _from_json),
    **{
        bytes((first,)): (Encoding.msgpack, _from_msgpack)
        for first in (*range(0x80, 0x90), 0xDE, 0xDF)
    },
}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _check_size(fields: Any) -> None:
    """Refuses a map with too many entries, or with values that are nested too deeply."""
    level: list[Any] = [fields]
    for _ in range(_DEPTH):
        deeper: list[Any] = []
        for value in level:
            if type(value) is dict:
                if len(value) > _ENTRIES:
                    malformed(f"a map has {len(value)} entries, at most {_ENTRIES} are allowed")
                # Counted in C: every message passes here.
                if set(map(type, value)) - _TEXT:
                    malformed("a key of a map is no text")
                value = value.values()
            if _FLAT.issuperset(map(type, value)):
                continue
            if msgpack.Timestamp in map(type, value):
                # The decoder makes it of an extension type of its own.
                malformed("a timestamp given, arrays are the only extension type")
            deeper += [each for each in value if type(each) in _NESTED]
        if not deeper:
            return
        level = deeper
    malformed(f"values are nested more than {_DEPTH} deep")


def _check_texts(value: Any) -> None:
    """Refuses texts that are too long; the data of an array are none."""
    if type(value) is str:
        if len(value) > _TEXT_BYTES:
            malformed(f"a text has {len(value)} characters, at most {_TEXT_BYTES} are allowed")
    elif type(value) is dict:
        for key, each in value.items():
            _check_texts(key)
            if key != "data":
                _check_texts(each)
    elif type(value) is list:
        for each in [each for each in value if type(each) in (str, dict, list)]:
            _check_texts(each)


def _decode_array(code: int, data: bytes) -> Array:
    """Returns the array of a msgpack extension, read-only."""
    if code != _ARRAY:
        raise ValueError(f"extension type {code} is unknown, arrays have type {_ARRAY}")
    start = 2 + 4 * data[1] if len(data) > 1 else 0
    dtype, shape, wanted = _layout(data[:start])
    if len(data) - start != wanted:
        raise ValueError(
            f"an array of {dtype} {list(shape)} has {len(data) - start} bytes, not {wanted}"
        )
    if dtype is _BOOL and data[start:].strip(b"\0\1"):
        raise ValueError("an array of bool has bytes other than 0 and 1")
    return np.ndarray(shape, dtype, data, start)


@lru_cache(_LAYOUTS)
def _layout(head: bytes) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Returns dtype, shape and bytes of an array from the bytes before its data."""
    dtype = _BY_CODE.get(head[0]) if len(head) > 1 else None
    if dtype is None or head[1] > AXES:
        raise ValueError("an array begins with a code of a dtype and at most 8 axes")
    if len(head) < 2 + 4 * head[1]:
        raise ValueError("an array ends inside its shape")
    shape = struct.unpack_from(f"<{head[1]}I", head, 2)
    return dtype, shape, math.prod(shape) * dtype.itemsize


def _encode_array(value: Any) -> msgpack.ExtType:
    array = np.asarray(value)
    dtype = array.dtype.newbyteorder("<") if array.dtype.byteorder == ">" else array.dtype
    head = struct.pack(f"<BB{array.ndim}I", _CODES[dtype], array.ndim, *array.shape)
    return msgpack.ExtType(_ARRAY, head + array.astype(dtype, copy=False).tobytes())


def _to_json(value: Any) -> Any:
    return np.asarray(value).tolist()


def encode(fields: Fields, encoding: Encoding) -> bytes:
    """Returns the payload of a message; arrays become numbers and lists in JSON."""
    if encoding is Encoding.json:
        return json.dumps(fields, default=_to_json, separators=(",", ":"), allow_nan=False).encode()
    packed: bytes = _PACKER.pack(fields)
    return packed


# Used again, because to make one takes longer than to pack a message.
_PACKER = msgpack.Packer(default=_encode_array)
