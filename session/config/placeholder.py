"""Placeholders of a default config: texts such as `_int_` that describe required values.

| placeholder | accepts |
|---|---|
| `_object_` | anything |
| `_singleton_` | one value: no list, no mapping |
| `_dict_` | a mapping with any keys |
| `_list_`, `[_int_]` | a list; a list of integers, of any length |
| `_int_` | an integer, also one written as `1e8` |
| `_float_` | a number; an integer becomes a float |
| `_num_` | an integer or a float, kept as it is |
| `_bool_`, `_str_` | true or false; a text |
| `_enum[a, b]_` | one of these, exactly; `_enum[1, true]_` accepts a number and a bool |

A plain default accepts values of its own kind, so it corresponds to a placeholder: 0.99 to
`_float_`. A backslash before a placeholder makes it an ordinary text: `\\_int_`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from session.config.file import plain_value
from session.did_you_mean import did_you_mean
from session.errors import ConfigError

_EXPECTED = {
    "object": "anything",
    "singleton": "one value (no list, no mapping)",
    "dict": "a mapping",
    "list": "a list",
    "int": "an integer",
    "float": "a number",
    "num": "a number",
    "bool": "true or false",
    "str": "a text",
    "enum": "one of ",
}
_NARROWER = {
    "object": frozenset(_EXPECTED),
    "singleton": frozenset({"int", "float", "num", "bool", "str", "enum"}),
    "num": frozenset({"int", "float"}),
    "str": frozenset({"enum"}),
}
# Common wrong names; the error names the right placeholder.
_MEANT = {
    "string": "str",
    "text": "str",
    "integer": "int",
    "double": "float",
    "number": "num",
    "boolean": "bool",
    "mapping": "dict",
    "any": "object",
}
# Underscores, a word, optional brackets with content, underscores.
_SHAPE = re.compile(r"(_*)([A-Za-z]+)([\[({].*?)?(_*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Constraint of a value. `options` are those of an enum, `item` is the kind of list items."""

    kind: str
    options: tuple[str, ...] = ()
    item: Placeholder | None = None

    def __str__(self) -> str:
        if self.item:
            return f"[{self.item}]"
        return f"_enum[{', '.join(self.options)}]_" if self.options else f"_{self.kind}_"

    @property
    def expected(self) -> str:
        """Description of the expected value."""
        if self.item:
            return f"a list, each item {self.item.expected}"
        return _EXPECTED[self.kind] + ", ".join(self.options)

    def accepts(self, value: Any) -> bool:
        """True if `value` is of this kind. Only `_object_` accepts None; a bool is no number."""
        match self.kind:
            case "object":
                return True
            case "singleton":
                return value is not None and not isinstance(value, (list, dict))
            case "dict":
                return isinstance(value, dict)
            case "list":
                each = self.item or Placeholder("object")
                return isinstance(value, list) and all(map(each.accepts, value))
            case "bool":
                return isinstance(value, bool)
            case "str":
                return isinstance(value, str)
            case "enum":
                return any(_is_option(value, option) for option in self.options)
        if isinstance(value, float):
            return self.kind != "int" or value.is_integer()
        return isinstance(value, int) and not isinstance(value, bool)

    def convert(self, value: Any) -> Any:
        """Converts an accepted value: 1 becomes 1.0 for a float, 1e8 an integer for an int."""
        if self.item:
            return [self.item.convert(each) for each in value]
        if self.kind == "enum":
            return next(plain_value(each) for each in self.options if _is_option(value, each))
        kinds = {"int": int, "float": float}
        return kinds[self.kind](value) if self.kind in kinds else value

    def narrows(self, other: Placeholder) -> bool:
        """True if `other` accepts all values that this one accepts."""
        if self.kind != other.kind:
            return self.kind in _NARROWER.get(other.kind, ())
        if other.item:
            return self.item is not None and self.item.narrows(other.item)
        return set(self.options) <= set(other.options)


class Verbatim(str):
    """An ordinary text that looks like a placeholder; a file has a backslash before it."""

    __slots__ = ()


def unescape(text: str) -> str:
    """Decodes a text of a file: a placeholder after a backslash becomes Verbatim."""
    shape = _SHAPE.fullmatch(text.lstrip("\\"))
    if text.startswith("\\") and shape and _looks_alike(shape):
        return Verbatim(text[1:])
    return text


def escape(text: str) -> str:
    """Encodes a text for a file; the inverse of `unescaped`."""
    return f"\\{text}" if isinstance(text, Verbatim) else text


def placeholder(text: str) -> Placeholder | None:
    """Parses a placeholder; None for any other text."""
    shape = None if isinstance(text, Verbatim) else _SHAPE.fullmatch(text)
    if shape is None:
        return None
    left, word, brackets, right = shape.groups()
    if not left == right == "_":
        return None
    if not brackets:
        return Placeholder(word) if word in _EXPECTED and word != "enum" else None
    options = tuple(option.strip() for option in brackets[1:-1].split(","))
    good = _is_enum(word, brackets) and all(options) and not re.search(r"[\"'\[\]]", brackets[1:-1])
    return Placeholder("enum", options) if good else None


def parse(text: str, path: str) -> Placeholder | None:
    """Parses a text of a default config; None for an ordinary text.

    Raises ConfigError, naming the key `path`, for an invalid placeholder.
    """
    found = placeholder(text)
    shape = None if isinstance(text, Verbatim) else _SHAPE.fullmatch(text)
    if found or shape is None or not _looks_alike(shape):
        return found
    left, word, brackets, right = shape.groups()
    if left == right == "_" and _is_enum(word, brackets or ""):
        raise ConfigError(
            f"{path} is {text!r}: an enum lists its options without quotes: _enum[a, b]_"
        )
    raise ConfigError(
        f"{path} is {text!r}, no placeholder; {_hint(word.lower())} "
        f"For the text itself write {escape(Verbatim(text))}"
    )


def check_default(default: Any, path: str) -> None:
    """Checks a default config for mistakes, at any depth.

    Raises ConfigError for an invalid placeholder, a list with other items beside a placeholder, and
    a Python type in place of a placeholder.
    """
    if isinstance(default, type):
        raise ConfigError(f"{path} is the type {default.__name__}; {_hint(default.__name__)}")
    if isinstance(default, dict):
        for key, value in default.items():
            check_default(value, f"{path}.{key}" if path else key)
        return
    if isinstance(default, list):
        for index, value in enumerate(default):
            check_default(value, f"{path}[{index}]")
    expectation(default, path)


def _looks_alike(shape: re.Match[str]) -> bool:
    """True if a text of this shape is a placeholder or was probably meant as one."""
    left, word, _, right = shape.groups()
    return left == right == "_" or (bool(left or right) and word.lower() in _EXPECTED)


def _is_enum(word: str, brackets: str) -> bool:
    return word == "enum" and brackets[:1] + brackets[-1:] == "[]"


def _is_option(value: Any, option: str) -> bool:
    """True if a value is this option of an enum, as a text or as parsed by YAML."""
    if isinstance(value, str):
        return value == option
    plain = plain_value(option)
    return isinstance(value, bool) == isinstance(plain, bool) and bool(value == plain)


def _hint(word: str) -> str:
    forms = {kind: "_enum[a, b]_" if kind == "enum" else f"_{kind}_" for kind in _EXPECTED}
    meant = forms | {word: forms[kind] for word, kind in _MEANT.items()}
    otherwise = f"there are {', '.join(forms.values())}"
    return did_you_mean(word, meant, shown=meant.__getitem__, otherwise=otherwise)


def expectation(default: Any, path: str) -> Placeholder:
    """Returns the constraint of values for `default`: its placeholder, or its own kind.

    Raises ConfigError, naming the key `path`, for an invalid placeholder.
    """
    if isinstance(default, str):
        return parse(default, path) or Placeholder("str")
    if isinstance(default, list):
        if not any(map(is_unresolved, default)):
            return Placeholder("list")
        if len(default) > 1:
            raise ConfigError(
                f"{path} is {default!r}: a list with a placeholder holds nothing else"
            )
        return Placeholder("list", item=expectation(default[0], path))
    for kind in (bool, int, float, dict):
        if isinstance(default, kind):
            return Placeholder(kind.__name__)
    return Placeholder("object")


def is_unresolved(value: Any) -> bool:
    """True if `value` contains a placeholder, at any depth."""
    if isinstance(value, dict):
        return any(map(is_unresolved, value.values()))
    if isinstance(value, list):
        return any(map(is_unresolved, value))
    return isinstance(value, str) and placeholder(value) is not None
