"""Curves of a run's reported numbers, read incrementally from ``progress.jsonl``."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from session.config.session_defaults import EVALUATION_MODES
from session.folder import PROGRESS
from session.tail import Tail

# Axis of a curve -> key of a line's number that is the position on this axis.
AXES: Mapping[str, str] = {
    "env_steps": "env_steps",
    "seconds": "wall_seconds",
    "iterations": "iterations",
}
# Name of a goal: the mean return of the last 100 training episodes, once there are so many.
TRAINING_RETURN = "return/train"
# An evaluation's position is that of the parameters it played, not that of its line.
_EVALUATIONS = ("eval", "best_eval", *EVALUATION_MODES)
_EVALUATION_AXES = {"env_steps": "env_steps", "seconds": "wall_seconds", "iterations": "iteration"}


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one number, sorted by ``x``.

    Args:
        x: positions on the chosen axis.
        y: values, all finite.
    """

    x: list[float]
    y: list[float]


class Progress:
    """The lines of a run's progress, kept as columns of numbers.

    Args:
        path: ``progress.jsonl``; it need not exist yet, and may grow.
        wanted: dotted names to keep, besides those of the axes; None: all; empty: no history, so
            that only the end of a long file is read.
    """

    def __init__(self, path: Path, wanted: Collection[str] | None = None) -> None:
        end_only = {} if wanted == () else {"catch_up_bytes": None}
        self._tail = Tail(path, shape=PROGRESS, **end_only)
        self._wanted = None if wanted is None else _axis_names().union(*map(_names_of, wanted))
        self._columns: dict[str, array[float]] = {}
        self._length = 0
        self.line: dict[str, Any] = {}

    def read(self) -> bool:
        """Reads the lines added since the last call; True if there were any."""
        lines = self._tail.objects()
        for line in lines:
            self.add(line)
        return bool(lines)

    def add(self, line: Mapping[str, Any]) -> None:
        """Adds one line from another source; a repeated line changes nothing."""
        if not line or line == self.line:
            return
        self.line = dict(line)
        for name, value in dict(numbers(line)).items():
            if self._wanted is not None and name not in self._wanted:
                continue
            if name not in self._columns:
                self._columns[name] = array("d", [math.nan]) * self._length
            self._columns[name].append(value)
        self._length += 1
        for column in self._columns.values():
            if len(column) < self._length:
                column.append(math.nan)

    def names(self) -> list[str]:
        """Dotted names of all stored numbers, the axes included."""
        return sorted(self._columns)

    def curve(self, name: str, axis: str = "env_steps") -> Curve:
        """Returns one number over an axis; the curve is empty if the run never reported it.

        Args:
            name: dotted name, such as ``train.mean_return_100``.
            axis: one of AXES.
        """
        found: dict[tuple[float, float], None] = {}
        for each in _names_of(name):
            xs, ys = self._columns.get(axis_of(each, axis)), self._columns.get(each)
            if xs is None or ys is None:
                continue
            for x, y in zip(xs, ys, strict=True):
                if math.isfinite(x) and math.isfinite(y):
                    # An evaluation is repeated in every line until the next one has ended.
                    found[x, y] = None
        points = sorted(found, key=lambda point: point[0])
        return Curve([x for x, _ in points], [y for _, y in points])


def axis_of(name: str, axis: str) -> str:
    """Returns the dotted name of the number that is the position of ``name`` on an axis."""
    section = name.partition(".")[0]
    return f"{section}.{_EVALUATION_AXES[axis]}" if section in _EVALUATIONS else AXES[axis]


def _names_of(name: str) -> tuple[str, ...]:
    """Returns the names of the numbers that are points of a curve.

    A line has the newest evaluation and the best one, which may have ended between two lines.
    """
    return (name, f"best_{name}") if name.startswith("eval.") else (name,)


def mode_name(mode: str) -> str:
    """Returns the name of an evaluation mode in tags and tables, such as ``stochastic``."""
    return mode.removeprefix("eval_")


def shown_evaluations(line: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Newest evaluations of all modes but the first, which decides the stop rule; by mode name.

    An evaluation is empty before the first; the result is empty if evaluators have one mode.
    """
    return {mode_name(mode): line[mode] or {} for mode in EVALUATION_MODES if mode in line}


def numbers(line: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yields dotted name and value of every number in a line of progress."""
    for key, value in line.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{prefix}{key}.")
        # An integer may be larger than any float.
        elif type(value) in (int, float) and abs(value) <= sys.float_info.max:
            yield f"{prefix}{key}", float(value)


def _axis_names() -> set[str]:
    evaluations = {f"{each}.{name}" for each in _EVALUATIONS for name in _EVALUATION_AXES.values()}
    return evaluations | set(AXES.values())
