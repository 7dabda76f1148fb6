"""Messages between a gateway and its clients, version 1; no socket, no session.

A payload is a map in msgpack or in JSON. Every field is checked here: what comes out of
:meth:`Protocol.parse` fits the specs.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
import sys
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, NamedTuple, NoReturn

import msgpack
import numpy as np
import numpy.typing as npt

from session import nest
from session.nest import Array, Nest
from session.stream.door import Encoding
from surreal_like.data.spec import ArraySpec, parse_action_spec, parse_obs_spec, plain
from surreal_like.errors import DataError

VERSION = 1
MODES = ("train", "evaluate", "act")
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
_ARRAY = 1
_DTYPES = (
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
_BY_CODE = {code: np.dtype(name) for code, name in enumerate(_DTYPES, 1)}
_CODES = {dtype: code for code, dtype in _BY_CODE.items()}
_BY_NAME = {name: np.dtype(name) for name in _DTYPES}
_AXES, _DEPTH, _ENTRIES, _TEXT_BYTES, _PING_BYTES = 8, 8, 256, 4096, 64
_SEQUENCES = 1 << 53
METRIC_NAMES = 64
_FLOAT32_MOST = float(np.finfo(np.float32).max)
_FLOAT_MOST = sys.float_info.max
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_METRIC = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)*", re.ASCII)
_METRIC_CHARACTERS = 200
_TOKEN_CHARACTERS = 256
_BASE_BYTES = 1 << 16
_JSON_ELEMENT_BYTES = 32

Fields = Mapping[str, Any]


class Refusal(Exception):
    """A message that is refused; becomes an ``error`` for the client.

    Args:
        code: of the table of errors.
        text: one line: what is wrong, where, what to do.
        seq: number of the request that it answers.
    """

    def __init__(self, code: str, text: str, seq: int | None = None) -> None:
        super().__init__(text)
        self.code, self.text, self.seq = code, text, seq

    @property
    def fatal(self) -> bool:
        """True if the connection is closed."""
        return self.code in FATAL

    def fields(self) -> dict[str, Any]:
        """Returns the message for the client."""
        found = {"kind": "error", "code": self.code, "message": self.text, "fatal": self.fatal}
        return found if self.seq is None else {**found, "seq": self.seq}


class Hello(NamedTuple):
    """The first message of a connection, see :meth:`Protocol.parse`."""

    version: int
    token: str
    mode: str
    name: str
    num_envs: int
    client: str
    resume: str


class Request(NamedTuple):
    """A message with a number, which is answered.

    Args:
        kind: ``reset``, ``step`` or ``end``.
        seq: its number.
        obs: nest of arrays ``[N, ...]``; None at an ``end`` without one.
        reward: of the last action, float32 ``[N]``; 0 at a ``reset``.
        terminated, truncated: bool ``[N]``; of a ``step`` of one stream False.
        action: ``[N, ...]``, what was done instead of what was advised; None: as advised.
        metrics: of one stream's episode, by name.
    """

    kind: str
    seq: int
    obs: Nest
    reward: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    action: Array | None = None
    metrics: Mapping[str, float] | None = None


class Metrics(NamedTuple):
    """Numbers for curves of their own."""

    values: Mapping[str, float]


class Ping(NamedTuple):
    """A question that is answered at once."""

    token: Any


class Bye(NamedTuple):
    """The end of a session."""


Incoming = Hello | Request | Metrics | Ping | Bye


def malformed(text: str) -> NoReturn:
    """Raises the refusal of a payload that cannot be read."""
    raise Refusal("malformed", text)


# -- payloads


def decode(payload: bytes, encoding: Encoding | None) -> tuple[Fields, Encoding]:
    """Returns the map in a payload, and its encoding.

    Args:
        payload: as received.
        encoding: of the session; None: either.

    Raises:
        Refusal: it is no map in that encoding.
    """
    first = payload[0] if payload else 0
    if first == 0x7B:
        found = Encoding.json
    elif 0x80 <= first <= 0x8F or first in (0xDE, 0xDF):
        found = Encoding.msgpack
    else:
        malformed("a message is a map in msgpack, or an object in JSON")
    if encoding is not None and found is not encoding:
        malformed(f"this session began in {encoding}, and a message came in {found}")
    fields = _from_json(payload) if found is Encoding.json else _from_msgpack(payload)
    _check_size(fields)
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
        return json.loads(payload, parse_constant=_refuse_constant)
    except (ValueError, RecursionError, MemoryError) as error:
        malformed(f"the message is not valid JSON: {str(error)[:100]}")


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
                if not all(type(key) is str for key in value):
                    malformed("a key of a map is no text")
                deeper += [each for each in value.values() if type(each) in (dict, list)]
            else:
                deeper += [each for each in value if type(each) in (dict, list)]
        if not deeper:
            return
        level = deeper
    malformed(f"values are nested more than {_DEPTH} deep")


def _decode_array(code: int, data: bytes) -> Array:
    """Returns the array of a msgpack extension, read-only."""
    if code != _ARRAY:
        raise ValueError(f"extension type {code} is unknown, arrays have type {_ARRAY}")
    dtype = _BY_CODE.get(data[0]) if len(data) > 1 else None
    if dtype is None or data[1] > _AXES:
        raise ValueError("an array begins with a code of a dtype and at most 8 axes")
    start = 2 + 4 * data[1]
    if len(data) < start:
        raise ValueError("an array ends inside its shape")
    shape = struct.unpack_from(f"<{data[1]}I", data, 2)
    wanted = math.prod(shape) * dtype.itemsize
    if len(data) - start != wanted:
        raise ValueError(
            f"an array of {dtype} {list(shape)} has {len(data) - start} bytes, not {wanted}"
        )
    if dtype == np.bool_ and data[start:].strip(b"\0\1"):
        raise ValueError("an array of bool has bytes other than 0 and 1")
    return np.frombuffer(data, dtype, offset=start).reshape(shape)


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
    packed: bytes = msgpack.packb(fields, default=_encode_array)
    return packed


# -- arrays


def to_array(spec: ArraySpec, value: Any, name: str, leading: tuple[int, ...] = ()) -> Array:
    """Returns a value that a client sent as an array of a spec.

    Args:
        spec: of one stream.
        value: an array, or numbers in nested lists.
        name: for the error.
        leading: axes before those of the spec.

    Raises:
        DataError: another dtype or shape, a number that the dtype cannot hold, or one that the
            spec does not allow.
    """
    shape = (*leading, *spec.dim)
    if type(value) is dict:
        value = _from_object(value, name)
    if isinstance(value, np.ndarray):
        array = _matching(spec, value, name)
    else:
        flat, given = _flattened(value, name)
        if given != shape:
            raise DataError(f"{name}: shape {list(given)} given, its spec says {list(shape)}")
        array = _of_numbers(spec, flat, name).reshape(shape)
    if array.shape != shape:
        raise DataError(f"{name}: shape {list(array.shape)} given, its spec says {list(shape)}")
    spec.validate(name, array)
    return array


def _from_object(value: Mapping[str, Any], name: str) -> Array:
    """Returns the array of ``{"dtype", "shape", "data"}``, the form of JSON."""
    dtype = _BY_NAME.get(value.get("dtype", "")) if type(value.get("dtype")) is str else None
    shape, data = value.get("shape"), value.get("data")
    sizes = (
        type(shape) is list
        and len(shape) <= _AXES
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
    return np.frombuffer(raw, dtype).reshape(shape)


def _matching(spec: ArraySpec, array: Array, name: str) -> Array:
    if array.dtype == spec.dtype:
        return array
    if spec.dtype == np.float32 and array.dtype == np.float64:
        return _to_float32(array, name)
    raise DataError(f"{name}: {array.dtype} given, its spec says {spec.type}")


def _to_float32(array: Array, name: str) -> Array:
    if array.size and not np.max(np.abs(array)) <= _FLOAT32_MOST:
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
        raise DataError(f"{name}: {_shown(wrong)} given, expected numbers of {spec.type}")
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


def _shown(value: Any) -> str:
    return repr(value)[:40]


# -- messages


class Protocol:
    """Checks the messages of clients against the specs of an experiment.

    Args:
        obs_spec: of one frame.
        action_spec: of one stream.
        num_envs: N, streams of a session.
    """

    def __init__(
        self, obs_spec: Mapping[str, Any], action_spec: Mapping[str, Any], num_envs: int = 1
    ) -> None:
        self.num_envs = num_envs
        self._obs: Nest = parse_obs_spec(obs_spec)
        self._single = self._obs if isinstance(self._obs, ArraySpec) else None
        self._paths: dict[str, ArraySpec] = nest.flatten(self._obs, "observation")
        action = parse_action_spec(action_spec)
        self._action = action.array
        self.is_discrete = action.type == "discrete" and not action.array.dim
        self._leading = () if num_envs == 1 else (num_envs,)
        self._no = np.zeros(num_envs, np.bool_)
        self._yes = np.ones(num_envs, np.bool_)
        self._no_reward = np.zeros(num_envs, np.float32)
        for constant in (self._no, self._yes, self._no_reward):
            constant.flags.writeable = False
        self._parsers: dict[str, Callable[[Fields], Incoming]] = {
            "reset": self._reset,
            "step": self._step,
            "end": self._end,
            "metrics": self._metrics_message,
            "ping": self._ping,
            "bye": lambda fields: Bye(),
            "hello": self._hello,
        }

    @property
    def max_message_bytes(self) -> int:
        """Largest payload of a client."""
        specs = self._paths.values()
        size = sum(spec.zeros().nbytes for spec in specs) * self.num_envs
        elements = sum(math.prod(spec.dim) for spec in specs) * self.num_envs
        return _BASE_BYTES + 2 * size + _JSON_ELEMENT_BYTES * elements

    def parse(self, fields: Fields) -> Incoming:
        """Returns the message of a decoded payload.

        Raises:
            Refusal: a field is missing or wrong.
        """
        kind = fields.get("kind")
        parser = self._parsers.get(kind) if type(kind) is str else None
        if parser is None:
            raise Refusal(
                "unknown_kind",
                f"kind is {_shown(kind)}, expected one of {', '.join(self._parsers)}",
            )
        return parser(fields)

    # -- each kind

    def _hello(self, fields: Fields) -> Hello:
        version = fields.get("v")
        if type(version) is not int or version < 1:
            raise Refusal(
                "bad_version",
                f"v is {_shown(version)}, expected a whole number from 1; here it is {VERSION}",
            )
        token = _text(fields, "token", _TOKEN_CHARACTERS)
        mode = fields.get("mode", "")
        if mode not in ("", *MODES):
            raise Refusal("bad_hello", f"mode is {_shown(mode)}, expected {', '.join(MODES)}")
        name = fields.get("name", "")
        if name != "" and not (type(name) is str and _NAME.fullmatch(name)):
            raise Refusal(
                "bad_hello",
                f"name is {_shown(name)}, expected at most 64 characters of A-Za-z0-9._-",
            )
        num_envs = fields.get("num_envs", 1)
        if type(num_envs) is not int or num_envs != self.num_envs:
            raise Refusal(
                "bad_hello",
                f"num_envs is {_shown(num_envs)}, this gateway has sessions of {self.num_envs}",
            )
        client = _text(fields, "client", _TOKEN_CHARACTERS)
        return Hello(
            version, token, mode, name, num_envs, client, _text(fields, "resume", _TOKEN_CHARACTERS)
        )

    def _reset(self, fields: Fields) -> Request:
        seq = _seq(fields)
        try:
            obs = self._observation(fields)
        except DataError as error:
            raise Refusal("bad_observation", str(error), seq) from None
        return Request("reset", seq, obs, self._no_reward, self._no, self._no)

    def _step(self, fields: Fields) -> Request:
        seq = _seq(fields)
        reward = self._reward(fields, seq)
        terminated = truncated = self._no
        if self._leading:
            terminated, truncated = (
                self._flags(fields, name, seq) for name in ("terminated", "truncated")
            )
        try:
            obs = self._observation(fields)
        except DataError as error:
            raise Refusal("bad_observation", str(error), seq) from None
        action, metrics = self._optional(fields, seq) if len(fields) > 4 else (None, None)
        return Request("step", seq, obs, reward, terminated, truncated, action, metrics)

    def _end(self, fields: Fields) -> Request:
        seq = _seq(fields)
        if self._leading:
            raise Refusal("wrong_state", "sessions of several environments have no end", seq)
        reward = self._reward(fields, seq)
        truncated = fields.get("truncated", False)
        if type(truncated) is not bool:
            raise Refusal(
                "bad_observation", f"truncated is {_shown(truncated)}, expected true or false", seq
            )
        obs = None
        if truncated or fields.get("observation") is not None:
            try:
                obs = self._observation(fields)
            except DataError as error:
                raise Refusal("bad_observation", str(error), seq) from None
        flags = (self._no, self._yes) if truncated else (self._yes, self._no)
        return Request("end", seq, obs, reward, *flags, *self._optional(fields, seq))

    def _metrics_message(self, fields: Fields) -> Metrics:
        return Metrics(_metrics(fields.get("values"), "values", None))

    def _ping(self, fields: Fields) -> Ping:
        token = fields.get("t")
        if isinstance(token, np.ndarray) or len(msgpack.packb(token, default=str)) > _PING_BYTES:
            raise Refusal("malformed", f"t of a ping has more than {_PING_BYTES} bytes")
        return Ping(token)

    # -- fields

    def _observation(self, fields: Fields) -> Nest:
        value = fields.get("observation")
        if self._single is not None:
            array = to_array(self._single, value, "observation", self._leading)
            return array if self._leading else array[None]
        return self._nested(self._obs, value, "observation")

    def _nested(self, spec: Nest, value: Any, path: str) -> Nest:
        if isinstance(spec, ArraySpec):
            array = to_array(spec, value, path, self._leading)
            return array if self._leading else array[None]
        children = dict(enumerate_keys(spec))
        if type(value) is not dict or set(value) != set(children):
            given = ", ".join(sorted(value))[:100] if type(value) is dict else _shown(value)
            raise DataError(f"{path}: {given} given, expected the keys {', '.join(children)}")
        parts = {
            key: self._nested(child, value[key], f"{path}/{key}") for key, child in children.items()
        }
        return tuple(parts.values()) if isinstance(spec, tuple) else parts

    def _reward(self, fields: Fields, seq: int) -> npt.NDArray[np.float32]:
        value: Any = fields.get("reward")
        if not self._leading:
            kind: type[Any] = type(value)
            if (
                kind is not float and kind is not int
            ) or not -_FLOAT32_MOST <= value <= _FLOAT32_MOST:
                raise Refusal("bad_reward", f"reward is {_shown(value)}, expected a number", seq)
            return np.array([value], np.float32)
        try:
            return to_array(_REWARD, value, "reward", self._leading)
        except DataError as error:
            raise Refusal("bad_reward", str(error), seq) from None

    def _flags(self, fields: Fields, name: str, seq: int) -> npt.NDArray[np.bool_]:
        try:
            return to_array(_FLAG, fields.get(name), name, self._leading)
        except DataError as error:
            raise Refusal("bad_observation", str(error), seq) from None

    def _optional(
        self, fields: Fields, seq: int
    ) -> tuple[Array | None, Mapping[str, float] | None]:
        action = metrics = None
        if fields.get("action") is not None:
            try:
                action = to_array(self._action, fields["action"], "action", self._leading)
            except DataError as error:
                raise Refusal("bad_action", str(error), seq) from None
            action = action if self._leading else action[None]
        if fields.get("metrics") is not None:
            metrics = _metrics(fields["metrics"], "metrics", seq)
        return action, metrics


_REWARD = ArraySpec("float32", ())
_FLAG = ArraySpec("bool", ())


def enumerate_keys(spec: Nest) -> list[tuple[str, Nest]]:
    """Returns key -> child of a nest; a tuple has the keys "0", "1", ..."""
    if isinstance(spec, tuple):
        return [(str(index), child) for index, child in enumerate(spec)]
    return list(spec.items())


def _seq(fields: Fields) -> int:
    seq = fields.get("seq")
    if type(seq) is not int or not 0 < seq < _SEQUENCES:
        raise Refusal("bad_seq", f"seq is {_shown(seq)}, expected a whole number from 1")
    return seq


def _text(fields: Fields, key: str, most: int) -> str:
    value = fields.get(key, "")
    if value is None:
        return ""
    if type(value) is not str or len(value) > most:
        raise Refusal("bad_hello", f"{key} is no text of at most {most} characters")
    return value


def _metrics(value: Any, where: str, seq: int | None) -> dict[str, float]:
    if type(value) is not dict or len(value) > METRIC_NAMES:
        raise Refusal(
            "bad_metric", f"{where}: expected at most {METRIC_NAMES} names and numbers", seq
        )
    for name, number in value.items():
        if len(name) > _METRIC_CHARACTERS or not _METRIC.fullmatch(name):
            raise Refusal(
                "bad_metric",
                f"{where}: {_shown(name)} is no name of letters, digits, '_', '-', '.' and '/'",
                seq,
            )
        # The comparison holds for NaN, and for whole numbers that no float can hold.
        if type(number) not in (int, float) or not -_FLOAT_MOST <= number <= _FLOAT_MOST:
            raise Refusal(
                "bad_metric", f"{where}: {name} is {_shown(number)}, expected a number", seq
            )
    return {name: float(number) for name, number in value.items()}


def shown_spec(spec: Mapping[str, Any]) -> Any:
    """Returns a spec as it is sent: infinite bounds are None."""
    return _finite(plain(spec))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
