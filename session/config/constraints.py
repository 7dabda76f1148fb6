"""Checks the values of a config against its keys: kinds of optional values, texts and ranges.

A wrong value is refused before anything is started, with the full key in the message. The
component that uses it starts much later and could name only an argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from session.config.config import Config
from session.config.key import Key, Range, range_of
from session.config.merge import leaves, quote
from session.config.placeholder import expectation
from session.did_you_mean import did_you_mean
from session.errors import ConfigError

# Whole numbers are sent and stored as int64.
_TOO_LARGE = 1 << 63


def check_values(config: Config, keys: Mapping[str, Key]) -> None:
    """Raises ConfigError for the first value in `config` that its Key does not allow.

    No number may be infinite or NaN, nor a whole number too large for 64 bits; with a Key or not.

    Args:
        config: a whole experiment, or sections of one.
        keys: dotted key -> Key.
    """
    for path, value in leaves(config).items():
        key = keys.get(path) or Key(None)
        _check_kind(path, value, key)
        _check_texts(path, value, key)
        limits = range_of(path, keys)
        for number in _numbers(value):
            _check_size(path, value, number, limits)
        if isinstance(value, list):
            for place, entry in enumerate(value):
                _check_range(f"{path}[{place}]", entry, key.within or Range())
        else:
            _check_range(path, value, limits)


def _check_kind(path: str, value: Any, key: Key) -> None:
    if value is None or not key.optional:
        return
    wanted = expectation(key.optional, path)
    if not wanted.accepts(value):
        raise ConfigError(f"{path} is {quote(value)}, expected {wanted.expected}, or null")


def _check_texts(path: str, value: Any, key: Key) -> None:
    if not key.one_of:
        return
    for each in value if isinstance(value, list) else [value]:
        if each not in key.one_of:
            hint = did_you_mean(f"{each}", key.one_of, lead="; ")
            expected = f"expected one of {', '.join(key.one_of)}{hint}"
            raise ConfigError(f"{path} is {each!r}, {expected}")


def _check_size(path: str, value: Any, number: float, limits: Range) -> None:
    if not -_TOO_LARGE < number < _TOO_LARGE and not isinstance(number, float):
        raise ConfigError(f"{path} is {quote(value)}, expected less than 2**63")
    if isinstance(number, float) and not isfinite(number):
        words = f"{limits}, a finite number" if f"{limits}" else "a finite number"
        raise ConfigError(f"{path} is {quote(value)}, expected {words}")


def _check_range(path: str, value: Any, limits: Range) -> None:
    if _is_number(value) and value not in limits:
        raise ConfigError(f"{path} is {quote(value)}, expected {limits}")


def _numbers(value: object) -> Iterator[int | float]:
    """Yields a number, or the numbers in a list of lists."""
    if isinstance(value, list):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
