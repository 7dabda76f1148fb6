"""Opens files of a folder; reads JSON files, and checks the type of each field that is used.

Disks, crashes and people change such files, so nothing of their content is believed. A reader has
one of three answers to damage: it repairs from what is left, sets the file aside with an event, or
ends with one line that names the file. The wanted content is described by a *shape*, as plain data:

| shape | fits |
|---|---|
| `COUNT`, `AMOUNT`, `NUMBER`, `FLAG`, `TEXT` | one value |
| `ANY` | everything |
| `Nullable(shape)` | also None |
| `Maybe(shape)` | also None, and the key may be missing |
| `MapOf(shape)` | a mapping from any names to values of that shape |
| `[shape]` | a list of values of that shape |
| `{"key": shape}` | a mapping with that key; further keys are not looked at |
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from session.errors import ConfigError

# A double represents every whole number up to this one.
_LIMIT = 1 << 53
_SHOWN_CHARACTERS = 40
_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value.

    Args:
        expected: description, for messages.
        fits: returns True for a valid value; never raises, for any value.
    """

    expected: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Nullable:
    """A value of that shape, or None."""

    of: Shape


@dataclass(frozen=True, slots=True)
class Maybe:
    """A value of that shape, or None, or a missing key."""

    of: Shape


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping from names to values of that shape."""

    of: Shape


Shape = Leaf | Nullable | Maybe | MapOf | list[Any] | Mapping[str, Any]


def _is_number(value: Any) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    return type(value) is int and abs(value) <= _LIMIT


FLAG = Leaf("true or false", lambda value: type(value) is bool)
TEXT = Leaf("a text", lambda value: type(value) is str)
NUMBER = Leaf("a finite number", _is_number)
COUNT = Leaf("a whole number, not negative", lambda v: type(v) is int and 0 <= v <= _LIMIT)
AMOUNT = Leaf("a number from 0 to 2^53", lambda value: _is_number(value) and 0 <= value <= _LIMIT)
# A return or another measured number, which may be infinite or none.
VALUE = Leaf("a number", lambda value: type(value) is float or _is_number(value))
OBJECT: Shape = {}
ANY = Leaf("plain data", lambda value: True)


def fault(value: Any, shape: Shape, name: str = "") -> str:
    """Returns the first place at which a value does not have a shape; empty if it has it.

    Args:
        value: decoded from JSON.
        shape: as the table of this module says.
        name: name of the value, for the text.
    """
    if isinstance(shape, Maybe | Nullable):
        if value is None or (value is _MISSING and isinstance(shape, Maybe)):
            return ""
        return fault(value, shape.of, name)
    if isinstance(shape, Leaf):
        return "" if shape.fits(value) else _wrong(value, shape.expected, name)
    if isinstance(shape, list):
        if type(value) is not list:
            return _wrong(value, "a list", name)
        inner = [(each, shape[0], f"{name}[{number}]") for number, each in enumerate(value)]
    elif type(value) is not dict:
        return _wrong(value, "a mapping", name)
    elif isinstance(shape, MapOf):
        inner = [(each, shape.of, _below(name, key)) for key, each in value.items()]
    else:
        inner = [(value.get(key, _MISSING), of, _below(name, key)) for key, of in shape.items()]
    return next(filter(None, (fault(*each) for each in inner)), "")


def _below(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key[:_SHOWN_CHARACTERS]


def _wrong(value: Any, expected: str, name: str) -> str:
    if value is _MISSING:
        return f"{name or 'it'} is missing, expected {expected}"
    plain = value is None or isinstance(value, str | int | float)
    # Python formats no integer of very many digits.
    huge = type(value) is int and abs(value) > _LIMIT
    text = "a huge number" if huge else repr(value) if plain else f"a {type(value).__name__}"
    if len(text) > _SHOWN_CHARACTERS:
        text = f"{text[:_SHOWN_CHARACTERS]}..."
    return f"{name or 'it'} is {text}, expected {expected}"


def parse_object(text: str | bytes, shape: Shape = OBJECT) -> dict[str, Any]:
    """Parses a JSON object of a shape.

    Raises:
        ValueError: it is none; the message says why, in one line.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON, line {error.lineno}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"no UTF-8 text at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from None
    if wrong := fault(value, shape):
        raise ValueError(wrong)
    found: dict[str, Any] = value
    return found


def open_file(path: str | Path) -> BufferedReader:
    """Opens a file of a folder for reading; never waits, as for the writer of a named pipe.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    kind = os.fstat(number).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(number, "rb")
    os.close(number)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is no regular file", str(path))


def read_file(path: str | Path) -> bytes:
    """Returns the content of a file, with the errors of :func:`open_file`."""
    with open_file(path) as file:
        return file.read()


def read_object(path: Path, shape: Shape = OBJECT) -> dict[str, Any]:
    """Reads a file that holds one JSON object.

    Args:
        path: the file.
        shape: shape of its content.

    Raises:
        ConfigError: it cannot be read, or is damaged: one line that names it.
    """
    try:
        return parse_object(read_file(path), shape)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is damaged: {error}") from None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Reads a file of JSON lines of which none may be left out; a last one may be cut short.

    Args:
        path: the file; if there is none, the result is empty.

    Raises:
        ConfigError: it cannot be read, or a line is damaged: names the file and the line.
    """
    try:
        lines = read_file(path).split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(parse_object(line, OBJECT))
        except ValueError as error:
            raise ConfigError(f"{path}:{number} is damaged: {error}") from None
    return found
