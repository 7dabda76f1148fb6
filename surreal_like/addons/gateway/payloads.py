"""Payloads of the protocol: a map in msgpack or in JSON, and the arrays in it; their refusal.

Numbers in lists, or arrays, of clients become arrays of a spec, or an error.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, NoReturn

import msgpack
import numpy as np

from session.addons.gateway.protocols import Encoding
from session.nest import Array, Nest
from surreal_like.data.bounds import bound
from surreal_like.data.spec import ArraySpec
from surreal_like.errors import DataError

# Errors that close the connection.
FATAL = frozenset(
    (
        "malformed",
        "oversize",
        "bad_version",
        "bad_token",
        "bad_hello",
        "not_supported",
        "too_many_errors",
        "internal",
    )
)

Fields = Mapping[str, Any]


class Refusal(Exception):
    """A message that is refused; becomes an ``error`` for the client.

    Args:
        code: Code of the table of errors.
        text: Text of one line: what is wrong, where, what to do.
        seq: Number of the request that the refusal answers.
    """

    def __init__(self, code: str, text: str, seq: int | None = None) -> None:
        super().__init__(text)
        self.code, self.text, self.seq = code, text, seq

    @property
    def fatal(self) -> bool:
        """True if the connection is closed."""
        return self.code in FATAL

    def to_message(self) -> dict[str, Any]:
        """Returns the message for the client."""
        found = {"kind": "error", "code": self.code, "message": self.text, "fatal": self.fatal}
        return found if self.seq is None else {**found, "seq": self.seq}


def refuse(text: str) -> NoReturn:
    """Raises the refusal of a payload that cannot be read."""
    raise Refusal("malformed", text)


def shorten(value: Any) -> str:
    """Returns a value of a client as it is shown in an error."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} {list(value.shape)}"
    # An array inside a list or a map has line ends in its text.
    return " ".join(repr(value).split())[:40]


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
        payload: Bytes as they were received.
        encoding: Encoding of the session; None: either.

    Raises:
        Refusal: it is no map in that encoding.
    """
    reader = _READERS.get(payload[:1])
    if reader is None:
        refuse("a message is a map in msgpack, or an object in JSON")
    found, read = reader
    if found is not encoding and encoding is not None:
        refuse(f"this session began in {encoding}, and a message came in {found}")
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
        refuse(f"the message is not valid msgpack: {str(error)[:100] or type(error).__name__}")


def _from_json(payload: bytes) -> Any:
    try:
        # As bytes it might be UTF-16, too.
        text = payload.decode()
        fields = json.loads(text, parse_constant=_refuse_constant)
        if "\\u" in text:
            # Half of a surrogate pair is a text that nothing can encode.
            json.dumps(fields, ensure_ascii=False).encode()
    except (ValueError, RecursionError, MemoryError) as error:
        refuse(f"the message is not valid JSON: {str(error)[:100]}")
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
                    refuse(f"a map has {len(value)} entries, at most {_ENTRIES} are allowed")
                # Counted in C: every message passes here.
                if set(map(type, value)) - _TEXT:
                    refuse("a key of a map is no text")
                value = value.values()
            if _FLAT.issuperset(map(type, value)):
                continue
            if msgpack.Timestamp in map(type, value):
                # The decoder makes it of an extension type of its own.
                refuse("a timestamp given, arrays are the only extension type")
            deeper += [each for each in value if type(each) in _NESTED]
        if not deeper:
            return
        level = deeper
    refuse(f"values are nested more than {_DEPTH} deep")


def _check_texts(value: Any) -> None:
    """Refuses texts that are too long; the data of an array are none."""
    if type(value) is str:
        if len(value) > _TEXT_BYTES:
            refuse(f"a text has {len(value)} characters, at most {_TEXT_BYTES} are allowed")
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


_BY_NAME = {name: np.dtype(name) for name in DTYPES}
FLOAT32_MOST = float(np.finfo(np.float32).max)


class ClientArray:
    """Field of messages that is an array of a spec.

    Args:
        spec: Spec of one stream.
        name: Name of the field, for errors.
        num_envs: Number of streams of a session, N.
        largest: Largest magnitude of numbers without bounds of their own.
    """

    def __init__(
        self, spec: ArraySpec, name: str, num_envs: int = 1, *, largest: float = math.inf
    ) -> None:
        self._spec = bound(spec, largest) if largest < math.inf else spec
        self._name, self._dtype = name, spec.dtype
        # Compared at once where there are no other bounds.
        self._limit = largest if self._spec is not spec else math.inf
        self._shape = spec.dim if num_envs == 1 else (num_envs, *spec.dim)
        self._single = num_envs == 1
        self._is_float = spec.dtype.kind == "f"
        self._has_bounds = not (spec.num is spec.low is spec.high is None)

    def read(self, value: Any) -> Array:
        """Returns a value that a client sent as an array ``[N, ...]`` of the spec.

        Args:
            value: Array, or numbers in nested lists; of a single stream without the first axis.

        Raises:
            DataError: another dtype or shape, a number that the dtype cannot hold, or one that the
                spec does not allow.
        """
        # Most often it is an array already, as it should be.
        fits = isinstance(value, np.ndarray) and value.dtype == self._dtype
        array: Array = value if fits else self._convert(value)
        if array.shape != self._shape:
            raise self._shape_error(array.shape)
        if self._has_bounds or not self._is_usual(array):
            self._spec.check_values(self._name, array)
        return array[None] if self._single else array

    def _is_usual(self, array: Array) -> bool:
        """Returns True if no number can be wrong; for an array without bounds of its own."""
        if self._limit < math.inf and array.size:
            least, most = np.minimum.reduce(array, axis=None), np.maximum.reduce(array, axis=None)
            return bool(-self._limit <= least and most <= self._limit)
        return not self._is_float or np.count_nonzero(np.isfinite(array)) == array.size

    def _convert(self, value: Any) -> Array:
        """Returns an array of the dtype."""
        spec, name = self._spec, self._name
        if type(value) is dict:
            value = _from_object(value, name)
        if isinstance(value, np.ndarray):
            return value if value.dtype == spec.dtype else _to_dtype(spec, value, name)
        flat, shape = _flatten(value, name)
        if shape != self._shape:
            raise self._shape_error(shape)
        return _to_array(spec, flat, name).reshape(shape)

    def _shape_error(self, shape: tuple[int, ...]) -> DataError:
        wanted = list(self._shape)
        return DataError(f"{self._name}: shape {list(shape)} given, its spec says {wanted}")


class ClientNest:
    """Field of messages that is a nest of arrays: a map; a tuple has the keys "0", "1", ...

    Args:
        spec: Nest of specs of one stream.
        path: Path of the nest, for errors.
        num_envs: Number of streams of a session, N.
        largest: See :class:`ClientArray`.
    """

    def __init__(self, spec: Nest, path: str, num_envs: int, *, largest: float = math.inf) -> None:
        self._path = path
        self._is_tuple = isinstance(spec, tuple)
        children = enumerate(spec) if self._is_tuple else spec.items()
        self._parts = {
            str(key): make_field(child, f"{path}/{key}", num_envs, largest=largest)
            for key, child in children
        }

    def read(self, value: Any) -> Nest:
        """Returns a value that a client sent as a nest of arrays ``[N, ...]``.

        Raises:
            DataError: as of :class:`ClientArray`; keys are missing, or there are others.
        """
        if type(value) is not dict or value.keys() != self._parts.keys():
            given = ", ".join(sorted(value))[:100] if type(value) is dict else shorten(value)
            wanted = ", ".join(self._parts)
            raise DataError(f"{self._path}: {given} given, expected the keys {wanted}")
        parts = {key: part.read(value[key]) for key, part in self._parts.items()}
        return tuple(parts.values()) if self._is_tuple else parts


def make_field(
    spec: Nest, path: str, num_envs: int, *, largest: float = math.inf
) -> ClientArray | ClientNest:
    """Returns the field of messages for an array, or a nest of arrays."""
    kind = ClientArray if isinstance(spec, ArraySpec) else ClientNest
    return kind(spec, path, num_envs, largest=largest)


def _from_object(value: Mapping[str, Any], name: str) -> Array:
    """Returns the array of ``{"dtype", "shape", "data"}``, the form of JSON."""
    dtype = _BY_NAME.get(value.get("dtype", "")) if type(value.get("dtype")) is str else None
    shape, data = value.get("shape"), value.get("data")
    sizes = (
        type(shape) is list
        and len(shape) <= AXES
        and all(type(size) is int and 0 <= size < 1 << 32 for size in shape)
    )
    if dtype is None or not sizes or type(data) is not str or len(value) != 3:
        raise DataError(f"{name}: an object given, expected dtype, shape and data of an array")
    assert isinstance(shape, list)
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise DataError(f"{name}: its data are not base64") from None
    if len(raw) != math.prod(shape) * dtype.itemsize:
        raise DataError(f"{name}: {len(raw)} bytes of data do not make {dtype} {shape}")
    if dtype == np.bool_ and raw.strip(b"\0\1"):
        raise DataError(f"{name}: bool data have bytes other than 0 and 1")
    try:
        return np.frombuffer(raw, dtype).reshape(shape)
    except ValueError:
        # Of no elements, with axes that are too large together.
        raise DataError(f"{name}: {dtype} {shape} is no shape of an array") from None


def _to_dtype(spec: ArraySpec, array: Array, name: str) -> Array:
    if spec.dtype == np.float32 and array.dtype == np.float64:
        return _to_float32(array, name)
    raise DataError(f"{name}: {array.dtype} given, its spec says {spec.type}")


def _to_float32(array: Array, name: str) -> Array:
    if array.size and not np.abs(array).max() <= FLOAT32_MOST:
        raise DataError(f"{name}: a number that is infinite, NaN or too large for float32")
    return array.astype(np.float32)


def _flatten(value: Any, name: str) -> tuple[list[Any], tuple[int, ...]]:
    """Returns the numbers of nested lists in C order, and their shape."""
    flat, shape = [value], []
    while flat and type(flat[0]) is list:
        size = len(flat[0])
        if not all(type(each) is list and len(each) == size for each in flat):
            raise DataError(f"{name}: lists of different lengths given")
        shape.append(size)
        flat = list(chain.from_iterable(flat))
    return flat, tuple(shape)


def _to_array(spec: ArraySpec, flat: list[Any], name: str) -> Array:
    kinds = set(map(type, flat))
    dtype = spec.dtype
    numbers = kinds <= {int, float}
    if dtype == np.bool_:
        if not kinds <= {bool, int} or not {*flat} <= {0, 1}:
            raise DataError(f"{name}: expected true, false, 0 or 1")
        return np.array(flat, np.bool_)
    if not numbers:
        wrong = next(each for each in flat if type(each) not in (int, float))
        raise DataError(f"{name}: {shorten(wrong)} given, expected numbers of {spec.type}")
    try:
        if dtype.kind == "f":
            return _to_float32(np.array(flat, np.float64), name)
        if float in kinds:
            flat = [_to_whole(each, name) for each in flat]
        wide = np.array(flat, np.int64)
    except OverflowError:
        raise DataError(f"{name}: a number that {spec.type} cannot hold") from None
    limits = np.iinfo(dtype)
    if wide.size and not (limits.min <= wide.min() and wide.max() <= limits.max):
        raise DataError(f"{name}: a number that {spec.type} cannot hold")
    return wide.astype(dtype)


def _to_whole(value: float, name: str) -> int:
    if value != value or value in (math.inf, -math.inf) or int(value) != value:
        raise DataError(f"{name}: {value} given, expected a whole number")
    return int(value)
