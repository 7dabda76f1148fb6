"""Compares sides that do the same work in turn, round by round, and writes the results.

All sides of a group are measured in alternation: each round runs every side once, in reversed order
every second round, so that all see the same state of the machine. Ratios are taken within a round.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from machine import machine, spread, write_result
from tables import tables

Found = dict[str, Any]


@dataclass(frozen=True)
class Side:
    """One contender of a comparison.

    Args:
        key: short name.
        label: for the table.
        did: work done for each item, with the settings.
        run: does one round; returns the rate, or the time, in the group's unit. If several things
            are measured at once: name -> number; the keys are then ``key name``, as in ``key in``,
            ``key out``.
    """

    key: str
    label: str
    did: str
    run: Callable[[], float | Mapping[str, float]]


@dataclass(frozen=True)
class Line:
    """One line of the table.

    Args:
        what: quantity that was measured.
        side: key of the side whose number is shown.
        against: keys of the sides that it is compared with.
        wanted: target ratio or number; empty if none was set.
    """

    what: str
    side: str
    against: tuple[str, ...] = ()
    wanted: str = ""


@dataclass(frozen=True)
class Group:
    """Sides and lines that are measured together.

    Args:
        name: heading.
        unit: of all its numbers.
        better: ``more`` or ``less``.
        about: shape of chunks, payload and so on.
        sides: the contenders.
        lines: lines of the table.
    """

    name: str
    unit: str
    better: str
    about: str
    sides: list[Side]
    lines: list[Line]


def seconds_per_call(call: Callable[[], object], seconds: float, *, at_once: int = 1) -> float:
    """Returns the processor time of a call [s], which excludes other load of the machine.

    Args:
        call: is called at least once.
        seconds: processor time to spend.
        at_once: calls between two looks at the clock.
    """
    calls, begin = 0, time.process_time()
    while (used := time.process_time() - begin) < seconds or not calls:
        for _ in range(at_once):
            call()
        calls += at_once
    return used / calls


def measure(group: Group, rounds: int) -> Found:
    """Runs all sides in turn; returns their numbers and the ratios of the lines."""
    values: dict[str, list[float]] = {}
    owners: dict[str, Side] = {}
    for number in range(rounds):
        for side in group.sides if number % 2 == 0 else reversed(group.sides):
            found = side.run()
            parts = found if isinstance(found, Mapping) else {"": found}
            for part, value in parts.items():
                key = f"{side.key} {part}".strip()
                owners[key] = side
                values.setdefault(key, []).append(value)
                print(f"{group.name}: {key} {value:.4g}", file=sys.stderr)
    sides = {
        key: {
            "label": owners[key].label,
            "did": owners[key].did,
            "value": rounded(spread(numbers)),
        }
        for key, numbers in sorted(values.items())
    }
    return {
        "name": group.name,
        "unit": group.unit,
        "better": group.better,
        "about": group.about,
        "rounds": rounds,
        "sides": sides,
        "lines": [_line(line, values) for line in group.lines],
    }


def _line(line: Line, values: Mapping[str, list[float]]) -> Found:
    ratios = {
        peer: rounded(spread([a / b for a, b in zip(values[line.side], values[peer], strict=True)]))
        for peer in line.against
        if peer in values
    }
    return {"what": line.what, "side": line.side, "ratios": ratios, "wanted": line.wanted}


def rounded(values: Mapping[str, float]) -> dict[str, float]:
    """Rounds to four significant digits: further digits are not reproducible."""
    return {name: float(f"{value:.4g}") for name, value in values.items()}


def keep(
    name: str, groups: Iterable[Found], versions: Mapping[str, str], left_out: Mapping[str, str]
) -> None:
    """Prints the tables and the JSON, and writes the JSON to ``results/<name>.json``."""
    found = {
        "machine": machine(),
        "peers": dict(versions),
        "left_out": dict(left_out),
        "groups": list(groups),
    }
    print(tables(found), file=sys.stderr)
    print(write_result(name, found))
