"""Arrays of clients: numbers in lists, or arrays, become arrays of a spec, or an error."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from session.nest import Array, Nest
from surreal_like.data.bounds import LARGEST, bounded
from surreal_like.data.spec import ArraySpec
from surreal_like.errors import DataError
from surreal_like.gateway.messages import short
from surreal_like.gateway.payloads import AXES, DTYPES

_BY_NAME = {name: np.dtype(name) for name in DTYPES}
FLOAT32_MOST = float(np.finfo(np.float32).max)


class ClientArray:
    """Field of messages that is an array of a spec.

    Args:
        spec: of one stream.
        name: for the errors.
        num_envs: N, streams of a session.
        limited: True: numbers without bounds of their own have those of :func:`bounded`.
    """

    def __init__(
        self, spec: ArraySpec, name: str, num_envs: int = 1, *, limited: bool = False
    ) -> None:
        self._spec = bounded(spec) if limited else spec
        self._name, self._dtype = name, spec.dtype
        # Compared at once where there are no other bounds.
        self._limit = LARGEST if limited and self._spec is not spec else math.inf
        self._shape = spec.dim if num_envs == 1 else (num_envs, *spec.dim)
        self._single = num_envs == 1
        self._is_float = spec.dtype.kind == "f"
        self._has_bounds = not (spec.num is spec.low is spec.high is None)

    def of(self, value: Any) -> Array:
        """Returns a value that a client sent as an array ``[N, ...]`` of the spec.

        Args:
            value: an array, or numbers in nested lists; of a single stream without the first axis.

        Raises:
            DataError: another dtype or shape, a number that the dtype cannot hold, or one that the
                spec does not allow.
        """
        # Most often it is an array already, as it should be.
        fits = isinstance(value, np.ndarray) and value.dtype == self._dtype
        array: Array = value if fits else self._converted(value)
        if array.shape != self._shape:
            raise self._misshapen(array.shape)
        if self._has_bounds or not self._is_usual(array):
            self._spec.check_values(self._name, array)
        return array[None] if self._single else array

    def _is_usual(self, array: Array) -> bool:
        """Returns True if no number can be wrong; for an array without bounds of its own."""
        if self._limit < math.inf and array.size:
            least, most = np.minimum.reduce(array, axis=None), np.maximum.reduce(array, axis=None)
            return bool(-self._limit <= least and most <= self._limit)
        return not self._is_float or np.count_nonzero(np.isfinite(array)) == array.size

    def _converted(self, value: Any) -> Array:
        """Returns an array of the dtype."""
        spec, name = self._spec, self._name
        if type(value) is dict:
            value = _from_object(value, name)
        if isinstance(value, np.ndarray):
            return value if value.dtype == spec.dtype else _to_dtype(spec, value, name)
        flat, shape = _flattened(value, name)
        if shape != self._shape:
            raise self._misshapen(shape)
        return _of_numbers(spec, flat, name).reshape(shape)

    def _misshapen(self, shape: tuple[int, ...]) -> DataError:
        wanted = list(self._shape)
        return DataError(f"{self._name}: shape {list(shape)} given, its spec says {wanted}")


class ClientNest:
    """Field of messages that is a nest of arrays: a map; a tuple has the keys "0", "1", ...

    Args:
        spec: nest of specs of one stream.
        path: of the nest, for the errors.
        num_envs: N, streams of a session.
        limited: as of :class:`ClientArray`.
    """

    def __init__(self, spec: Nest, path: str, num_envs: int, *, limited: bool = False) -> None:
        self._path = path
        self._is_tuple = isinstance(spec, tuple)
        children = enumerate(spec) if self._is_tuple else spec.items()
        self._parts = {
            str(key): client_field(child, f"{path}/{key}", num_envs, limited=limited)
            for key, child in children
        }

    def of(self, value: Any) -> Nest:
        """Returns a value that a client sent as a nest of arrays ``[N, ...]``.

        Raises:
            DataError: as of :class:`ClientArray`; keys are missing, or there are others.
        """
        if type(value) is not dict or value.keys() != self._parts.keys():
            given = ", ".join(sorted(value))[:100] if type(value) is dict else short(value)
            wanted = ", ".join(self._parts)
            raise DataError(f"{self._path}: {given} given, expected the keys {wanted}")
        parts = {key: part.of(value[key]) for key, part in self._parts.items()}
        return tuple(parts.values()) if self._is_tuple else parts


def client_field(
    spec: Nest, path: str, num_envs: int, *, limited: bool = False
) -> ClientArray | ClientNest:
    """Returns the field of messages for an array, or a nest of arrays."""
    kind = ClientArray if isinstance(spec, ArraySpec) else ClientNest
    return kind(spec, path, num_envs, limited=limited)


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


def _flattened(value: Any, name: str) -> tuple[list[Any], tuple[int, ...]]:
    """Returns the numbers of nested lists in C order, and their shape."""
    flat, shape = [value], []
    while flat and type(flat[0]) is list:
        size = len(flat[0])
        if not all(type(each) is list and len(each) == size for each in flat):
            raise DataError(f"{name}: lists of different lengths given")
        shape.append(size)
        flat = list(chain.from_iterable(flat))
    return flat, tuple(shape)


def _of_numbers(spec: ArraySpec, flat: list[Any], name: str) -> Array:
    kinds = set(map(type, flat))
    dtype = spec.dtype
    numbers = kinds <= {int, float}
    if dtype == np.bool_:
        if not kinds <= {bool, int} or not {*flat} <= {0, 1}:
            raise DataError(f"{name}: expected true, false, 0 or 1")
        return np.array(flat, np.bool_)
    if not numbers:
        wrong = next(each for each in flat if type(each) not in (int, float))
        raise DataError(f"{name}: {short(wrong)} given, expected numbers of {spec.type}")
    try:
        if dtype.kind == "f":
            return _to_float32(np.array(flat, np.float64), name)
        if float in kinds:
            flat = [_whole(each, name) for each in flat]
        wide = np.array(flat, np.int64)
    except OverflowError:
        raise DataError(f"{name}: a number that {spec.type} cannot hold") from None
    limits = np.iinfo(dtype)
    if wide.size and not (limits.min <= wide.min() and wide.max() <= limits.max):
        raise DataError(f"{name}: a number that {spec.type} cannot hold")
    return wide.astype(dtype)


def _whole(value: float, name: str) -> int:
    if value != value or value in (math.inf, -math.inf) or int(value) != value:
        raise DataError(f"{name}: {value} given, expected a whole number")
    return int(value)
