"""Schemas of the messages that a socket accepts; each field is checked once, on reception.

A schema is defined beside the code that owns its kind of message and is passed to the receiving
socket. A field that is missing, unknown, of another type or out of range makes the whole message
invalid: the socket drops it, counts it and reports it once per sender and kind. So code behind a
socket reads fields without checking them again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import call
from types import MappingProxyType
from typing import Any

from session.json_file import Shape, fault
from session.nest import Array
from session.wire.codec import INCARNATION_LIMIT, NAME_LIMIT, Message

# A double, and so JSON in any language, represents every integer up to this one.
COUNT_LIMIT = 1 << 53
# Steps of one sender; the sum over all senders of a run still fits into 64 bits.
STEPS_LIMIT = 1 << 44
# Sums and squares of numbers up to this size are finite.
NUMBER_LIMIT = 1e150
# Seconds since 1970, until the year 5138.
TIME_LIMIT = 1e11
# Maximum sender incarnations of one run that a service keeps records of.
SENDERS_LIMIT = 10_000
# Header limit of messages with a few entries per sender incarnation.
LARGE_HEADER_BYTES = 8 << 20

_TEXT_LIMIT = 4096
_HEADER_BYTES = 1 << 16
_SHOWN_CHARACTERS = 60
_SENDER_LIMIT = NAME_LIMIT + 1 + 16
_PLAIN_DEPTH = 8
_PLAIN_LIMIT = 1 << 16
_PLAIN_WHOLE = 1 << 63
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SENDER = re.compile(rf"{_NAME.pattern}(:{_NAME.pattern})?/(?P<incarnation>[0-9]{{1,16}})")
_MISSING: Any = object()
# Field with the number of a request; optional here, required by sockets for requests.
_ID = "id"

Fits = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Type:
    """Constraint of one value.

    Args:
        expected: description for the reason of a refusal.
        fits: returns True for a valid value; never raises, for any value.
        optional: True if the field may be missing.
        parts: types of the named values inside it, also of those of each entry.
    """

    expected: str
    fits: Fits
    optional: bool = False
    parts: Mapping[str, Type] = field(default_factory=dict)


def Optional(of: Type) -> Type:
    """Makes the field optional."""
    return replace(of, optional=True)


def Nullable(of: Type) -> Type:
    """Allows None or a value of that type."""
    fits = of.fits
    return replace(
        of, expected=f"{of.expected}, or None", fits=lambda value: value is None or fits(value)
    )


def Count(least: int = 0, most: int = COUNT_LIMIT) -> Type:
    """An integer from ``least`` to ``most``; not a bool."""

    def fits(value: Any) -> bool:
        return type(value) is int and least <= value <= most

    return Type(f"a whole number from {least} to {most}", fits)


def Counts(length: int) -> Type:
    """A list of at most ``length`` counts, checked faster than :func:`ListOf`."""

    def fits(value: Any) -> bool:
        if type(value) is not list or len(value) > length:
            return False
        return not value or (
            set(map(type, value)) == {int} and min(value) >= 0 and max(value) <= COUNT_LIMIT
        )

    return Type(f"a list of at most {length} counts", fits)


def Incarnation(most: int = INCARNATION_LIMIT - 1) -> Type:
    """Wall clock at a component's start [ms]."""
    return Count(most=most)


def Time() -> Type:
    """Seconds since 1970, or of another clock that starts at 0."""
    return Number(0.0, TIME_LIMIT)


def Number(
    least: float = -NUMBER_LIMIT, most: float = NUMBER_LIMIT, *, finite: bool = True
) -> Type:
    """An integer or float; with ``finite=False`` also NaN and infinity."""

    def fits(value: Any) -> bool:
        kind = type(value)
        return (kind is float or kind is int) and least <= value <= most

    def any_fits(value: Any) -> bool:
        return fits(value) or (type(value) is float and not math.isfinite(value))

    words = f"a number from {least:g} to {most:g}"
    return Type(words if finite else f"{words}, or none", fits if finite else any_fits)


def Flag() -> Type:
    """True or False."""
    return Type("true or false", lambda value: type(value) is bool)


def Text(length: int = _TEXT_LIMIT) -> Type:
    """A text of at most ``length`` characters."""
    return Type(
        f"a text of at most {length} characters",
        lambda value: type(value) is str and len(value) <= length,
    )


def Bytes(length: int) -> Type:
    """At most ``length`` bytes."""
    return Type(
        f"at most {length} bytes", lambda value: type(value) is bytes and len(value) <= length
    )


def OneOf(*values: str | int) -> Type:
    """One of a few texts or numbers."""
    kinds = {type(value) for value in values}
    known = frozenset(values)
    return Type(
        f"one of {', '.join(map(str, values))}",
        lambda value: type(value) in kinds and value in known,
    )


@lru_cache(maxsize=1024)
def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def Name() -> Type:
    """A name of a component or policy: lower case, digits and hyphens."""
    return Type(
        f"a name of lower case letters, digits and hyphens, at most {NAME_LIMIT} characters",
        lambda value: type(value) is str and len(value) <= NAME_LIMIT and _is_name(value),
    )


@lru_cache(maxsize=1024)
def _is_sender(text: str) -> bool:
    found = _SENDER.fullmatch(text)
    return found is not None and int(found["incarnation"]) < INCARNATION_LIMIT


def SenderKey() -> Type:
    """``name/incarnation`` of a component; ``name:policy/incarnation`` of one of its policies."""
    return Type(
        "name/incarnation",
        lambda value: type(value) is str and len(value) <= _SENDER_LIMIT and _is_sender(value),
    )


def ListOf(of: Type, most: int) -> Type:
    """A list of values of one type."""
    each = of.fits

    def fits(value: Any) -> bool:
        return type(value) is list and len(value) <= most and all(map(each, value))

    return Type(f"a list of 0 to {most}, each {of.expected}", fits, parts=of.parts)


def Row(*types: Type) -> Type:
    """A list with one value of each type, in this order."""
    checks = tuple(each.fits for each in types)

    def fits(value: Any) -> bool:
        if type(value) is not list or len(value) != len(checks):
            return False
        return all(map(call, checks, value))

    return Type(f"a list of {len(types)}: {'; '.join(each.expected for each in types)}", fits)


def MapOf(key: Type, value: Type, most: int) -> Type:
    """A mapping whose keys are of one type and whose values are of another."""
    key_fits, value_fits = key.fits, value.fits

    def fits(given: Any) -> bool:
        return (
            type(given) is dict
            and len(given) <= most
            and all(map(key_fits, given))
            and all(map(value_fits, given.values()))
        )

    expected = f"a mapping of at most {most}: {key.expected} to {value.expected}"
    return Type(expected, fits, parts=value.parts)


def _find_needed(types: Mapping[str, Type]) -> tuple[tuple[str, Fits], ...]:
    return tuple((name, each.fits) for name, each in types.items() if not each.optional)


def Fields(types: Mapping[str, Type]) -> Type:
    """A mapping with these keys and no others."""
    needed = _find_needed(types)
    others = {name: each.fits for name, each in types.items() if each.optional}

    def fits(value: Any) -> bool:
        if type(value) is not dict:
            return False
        for name, check in needed:
            if not check(value.get(name, _MISSING)):
                return False
        return len(value) == len(needed) or _others_fit(value, needed, others)

    return Type(f"a mapping of {', '.join(types)}", fits, parts=types)


def _others_fit(
    value: dict[Any, Any], needed: tuple[tuple[str, Fits], ...], others: Mapping[str, Fits]
) -> bool:
    """True if all other entries of the mapping are known optional fields and fit."""
    found = len(needed)
    for name, check in others.items():
        if name in value:
            found += 1
            if not check(value[name]):
                return False
    return found == len(value)


def Plain(shape: Shape, length: int = _TEXT_LIMIT) -> Type:
    """Plain data of a shape, bounded in size.

    Args:
        shape: shape of what the receiver reads, as of a file; further keys are not looked at.
            ``ANY`` is for what only the run's own processes send, or what is never read.
        length: maximum characters of each text in it.
    """

    def fits(value: Any) -> bool:
        return _plain_left(value, length, _PLAIN_DEPTH, _PLAIN_LIMIT) > 0 and not fault(
            value, shape
        )

    return Type(f"plain data of the expected shape, at most {_PLAIN_DEPTH} deep", fits)


def _plain_left(value: Any, length: int, depth: int, left: int) -> int:
    """Returns the number of values still allowed after this one; 0 if it does not fit."""
    kind = type(value)
    if kind is str:
        return left - 1 if len(value) <= length else 0
    if kind is int:
        return left - 1 if -_PLAIN_WHOLE <= value < _PLAIN_WHOLE else 0
    if value is None or kind is bool or kind is float:
        return left - 1
    if kind not in (list, dict) or not depth or len(value) >= left:
        return 0
    left -= 1
    for each in value:
        if kind is dict:
            named = type(each) is str and len(each) <= length
            left = _plain_left(value[each], length, depth - 1, left - 1) if named else 0
        else:
            left = _plain_left(each, length, depth - 1, left)
        if left <= 0:
            return 0
    return left


def ArrayOf(*dtypes: str, shape: tuple[int | None, ...], optional: bool = False) -> Type:
    """An array of one of the dtypes; None in ``shape`` means any length."""

    def fits(value: Array) -> bool:
        if value is _MISSING or value.dtype.name not in dtypes or value.ndim != len(shape):
            return False
        return all(
            wanted is None or wanted == length
            for wanted, length in zip(shape, value.shape, strict=True)
        )

    shown = ["any" if length is None else length for length in shape]
    return Type(f"{' or '.join(dtypes)} {shown}", fits, optional)


_NO_TYPES: Mapping[str, Type] = MappingProxyType({})
_NUMBER = Optional(Count())


class Schema:
    """Schema of one kind of message.

    Args:
        fields: name -> type of each field.
        arrays: name -> type of each array, see :func:`ArrayOf`; None: any arrays, checked by the
            code that reads them.
        others: type of additional fields; None: they are not allowed.
        any_run: True accepts messages of other runs and any sender name; the code behind the socket
            replies with a refusal.
        header_bytes: maximum size of the message without its arrays.
    """

    def __init__(
        self,
        fields: Mapping[str, Type] = _NO_TYPES,
        arrays: Mapping[str, Type] | None = _NO_TYPES,
        *,
        others: Type | None = None,
        any_run: bool = False,
        header_bytes: int = _HEADER_BYTES,
    ) -> None:
        self.any_run = any_run
        self.header_bytes = header_bytes
        self._types = {_ID: _NUMBER, **fields}
        self._arrays = arrays
        self._others = others
        self._needed = _find_needed(fields)
        self._needed_names = frozenset(name for name, _ in self._needed)

    def paths(self) -> list[str]:
        """Returns the names of all fields and arrays, those inside a field as ``field.name``."""
        given = {name: each for name, each in self._types.items() if each is not _NUMBER}
        arrays = ["arrays"] if self._arrays is None else list(self._arrays)
        return [*_paths(given), *arrays]

    def complaint(self, message: Message) -> str | None:
        """Returns the first fault of a message of this kind, None if it is valid.

        Args:
            message: the message with its arrays.
        """
        fields = message.fields
        for name, fits in self._needed:
            if not fits(fields.get(name, _MISSING)):
                return self._wrong(name, fields.get(name, _MISSING), self._types[name])
        if len(fields) != len(self._needed):
            wrong = self._complaint_of_others(fields)
            if wrong is not None:
                return wrong
        if self._arrays is None or (not self._arrays and not message.arrays):
            return None
        return self._complaint_of_arrays(self._arrays, message.arrays)

    def _complaint_of_others(self, fields: Mapping[Any, Any]) -> str | None:
        for name, value in fields.items():
            if name in self._needed_names:
                continue
            known = self._types.get(name, self._others) if type(name) is str else None
            if known is None:
                return f"field {quote(name)} is unknown"
            if not known.fits(value):
                return self._wrong(name, value, known)
        return None

    def _complaint_of_arrays(
        self, types: Mapping[str, Type], arrays: Mapping[str, Array]
    ) -> str | None:
        for name, each in types.items():
            array = arrays.get(name, _MISSING)
            if array is _MISSING and each.optional:
                continue
            if not each.fits(array):
                return self._wrong(name, array, each)
        unknown = next((name for name in arrays if name not in types), None)
        return None if unknown is None else f"array {quote(unknown)} is unknown"

    def _wrong(self, name: str, value: Any, expected: Type) -> str:
        if value is _MISSING:
            return f"'{name}' is missing, expected {expected.expected}"
        return f"'{name}' is {quote(value)}, expected {expected.expected}"


def _paths(types: Mapping[str, Type]) -> list[str]:
    found = []
    for name, each in types.items():
        found += [f"{name}.{inner}" for inner in _paths(each.parts)] or [name]
    return found


Kinds = Mapping[str, Schema]

REFUSED = Schema({"reason": Text(), "stranger": Optional(Flag())}, any_run=True)


def cut(text: str) -> str:
    """Shortens a text to the limit of a field of type :func:`Text`."""
    return text if len(text) <= _TEXT_LIMIT else f"{text[: _TEXT_LIMIT - 3]}..."


def one_line(value: object) -> str:
    """Returns a text of another machine as one line of limited length, without control characters.

    A terminal would obey them.
    """
    text = str(value)[:_TEXT_LIMIT]
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def quote(value: Any) -> str:
    """Describes a received value in a few words; its size may be unlimited."""
    if isinstance(value, str | bytes):
        whole = len(value) <= _SHOWN_CHARACTERS
        return repr(value[:_SHOWN_CHARACTERS]) + ("" if whole else f"... ({len(value)} long)")
    if value is None or isinstance(value, int | float):
        return repr(value)
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if shape is not None:
        return f"{dtype} {list(shape)}"
    return f"a {type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else "another"
