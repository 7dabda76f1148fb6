"""Enumerations whose values are the names of their members."""

from __future__ import annotations

from enum import EnumMeta, StrEnum
from typing import Any


class _OwnNames(EnumMeta):
    """Replaces the value `()` of a member by its name."""

    def __new__(
        metacls, name: str, bases: tuple[type, ...], namespace: Any, **keywords: Any
    ) -> _OwnNames:
        for member, value in list(namespace.items()):
            if value == () and not member.startswith("_"):
                # The namespace's own __setitem__ refuses a second value for a member.
                dict.__setitem__(namespace, member, member)
        return super().__new__(metacls, name, bases, namespace, **keywords)


class StringEnum(StrEnum, metaclass=_OwnNames):
    """An enumeration of texts, declared with empty tuples: a member equals its own name.

    Example::

        class Color(StringEnum):
            red = ()
            green = ()

        Color.red == "red" and Color("red") is Color.red and f"{Color.red}" == "red"
    """

    # Declared so that type checkers accept `()` as the value of a member.
    _value_: Any
