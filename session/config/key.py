"""Key: one setting, with its default value and everything else that is known about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

from session.config.merge import join


class Range(NamedTuple):
    """Numbers from a minimum to a maximum, both inclusive.

    Args:
        least: minimum.
        most: maximum.
        above: excludes the minimum itself.
    """

    least: float = -inf
    most: float = inf
    above: bool = False

    def __contains__(self, number: object) -> bool:
        """Returns True for a number within the range; False for NaN."""
        if not isinstance(number, int | float) or not self.least <= number <= self.most:
            return False
        return not self.above or number > self.least

    def __str__(self) -> str:
        """Formats the range: ``1 or more``, ``0 to 1``; empty without a minimum and maximum."""
        if self.above:
            limited = f"above {self.least:g}, at most {self.most:g}"
            return limited if self.most < inf else f"more than {self.least:g}"
        if self.most < inf:
            return f"{self.least:g} to {self.most:g}"
        return f"{self.least:g} or more" if self.least > -inf else ""


ANY_NUMBER = Range()
FROM_0 = Range(0)
FROM_1 = Range(1)
ABOVE_0 = Range(0, above=True)
SHARE = Range(0, 1)
SHARE_ABOVE_0 = Range(0, 1, above=True)
PORT = Range(0, 65_535)
# One millisecond, the resolution of the counted clock, is the shortest time.
SOME_TIME = Range(1e-3)


class Idle(NamedTuple):
    """Condition under which a setting has no effect: another one has one of these values.

    Args:
        key: the other setting: beside it, or a dotted key from the top.
        values: those values.
    """

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Key:
    """One setting or section of a default config.

    A Config stores the default as the plain value of the key, and the rest beside it.

    Args:
        default: value that users need not write; a placeholder if they must; the entries of a
            section.
        text: description, in sentences.
        unit: unit of the value.
        within: range of the number, or of each number in a list. That of a section holds for all
            numbers in it which have none of their own.
        one_of: allowed texts, of the value or of each entry of a list.
        optional: placeholder of the values that are allowed beside the default None.
        idle: condition under which it, or the whole section, has no effect; None: there is none.
    """

    default: Any
    text: str = ""
    unit: str = ""
    within: Range | None = None
    one_of: tuple[str, ...] = ()
    optional: str = ""
    idle: Idle | None = None

    def over(self, base: Key) -> Key:
        """Returns this key with the facts of `base` where it has none of its own."""
        return replace(
            self,
            text=self.text or base.text,
            unit=self.unit if self.text else base.unit,
            within=base.within if self.within is None else self.within,
            one_of=self.one_of or base.one_of,
            optional=self.optional or base.optional,
            idle=self.idle or base.idle,
        )


def section(
    text: str, entries: Mapping[str, Any], *, within: Range | None = None, idle: Idle | None = None
) -> Key:
    """Returns the Key of a section, with its description in front of its entries."""
    return Key(entries, text, within=within, idle=idle)


def is_idle(path: str, keys: Mapping[str, Key], values: Mapping[str, Any]) -> bool:
    """Returns True if a setting, by itself or with a section around it, has no effect.

    Args:
        path: dotted key of the setting.
        keys: dotted key -> Key.
        values: dotted key -> value, of all settings.
    """
    while path:
        around, _, _ = path.rpartition(".")
        if (key := keys.get(path)) is not None and key.idle is not None:
            other = join(around, key.idle.key)
            if values.get(other if other in values else key.idle.key) in key.idle.values:
                return True
        path = around
    return False


def range_of(path: str, keys: Mapping[str, Key]) -> Range:
    """Returns the range of a number: its own, else that of the nearest enclosing section.

    Args:
        path: dotted key of the number.
        keys: dotted key -> Key.
    """
    while path:
        key = keys.get(path)
        if key is not None and key.within is not None:
            return key.within
        path = path.rpartition(".")[0]
    return ANY_NUMBER
