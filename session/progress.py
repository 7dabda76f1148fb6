"""The numbers that a run reports over time, as curves: ``progress.jsonl``, read bit by bit."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from session.default_configs import CHOICES
from session.tail import Tail

# What a curve can be drawn over -> the number of a line that says where on that axis it stands.
AXES: Mapping[str, str] = {
    "env_steps": "env_steps",
    "seconds": "wall_seconds",
    "iterations": "iterations",
}
# Of evaluators.
MODES = CHOICES["session_config.evaluator.mode"]
# An evaluation belongs to the parameters that were played, not to the line in which it stands.
_EVALUATIONS = ("eval", "best_eval", *MODES)
_EVALUATION_AXES = {"env_steps": "env_steps", "seconds": "wall_seconds", "iterations": "iteration"}


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one number, in the order of ``x``.

    Args:
        x: where they stand on the axis that was asked for.
        y: their values, all finite.
    """

    x: list[float]
    y: list[float]


class Progress:
    """The lines of a run's progress, kept as columns of numbers.

    Args:
        path: ``progress.jsonl``; it need not exist yet, and may grow.
        wanted: the dotted names that are kept, those of the axes aside; None: all.
    """

    def __init__(self, path: Path, wanted: Collection[str] | None = None) -> None:
        self._tail = Tail(path, catch_up_bytes=None)
        self._wanted = None if wanted is None else set(wanted) | _axis_names()
        self._columns: dict[str, array[float]] = {}
        self._length = 0
        self.line: dict[str, Any] = {}

    def read(self) -> bool:
        """Takes the lines that have come since the last call; True if there were any."""
        lines = self._tail.objects()
        for line in lines:
            self.add(line)
        return bool(lines)

    def add(self, line: Mapping[str, Any]) -> None:
        """Takes one line that came another way; one that was taken already changes nothing."""
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
        """Dotted names of all numbers that were kept, the axes included."""
        return sorted(self._columns)

    def curve(self, name: str, axis: str = "env_steps") -> Curve:
        """One number over an axis; without points where the run never reported it.

        Args:
            name: dotted, such as ``train.mean_return_100``.
            axis: one of AXES.
        """
        xs, ys = self._columns.get(axis_of(name, axis)), self._columns.get(name)
        if xs is None or ys is None:
            return Curve([], [])
        found: dict[tuple[float, float], None] = {}
        for x, y in zip(xs, ys, strict=True):
            if math.isfinite(x) and math.isfinite(y):
                # An evaluation stands in every line until the next one has ended.
                found[x, y] = None
        points = sorted(found, key=lambda point: point[0])
        return Curve([x for x, _ in points], [y for _, y in points])


def axis_of(name: str, axis: str) -> str:
    """The dotted name of the number that says where a point of ``name`` stands on an axis."""
    section = name.partition(".")[0]
    return f"{section}.{_EVALUATION_AXES[axis]}" if section in _EVALUATIONS else AXES[axis]


def mode_name(mode: str) -> str:
    """The name of an evaluation mode in tags and tables, such as ``stochastic``."""
    return mode.removeprefix("eval_")


def shown_evaluations(line: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The newest evaluations of the modes that do not judge, by the name of the mode.

    An evaluation is empty before the first; nothing is there where evaluators have one mode.
    """
    return {mode_name(mode): line[mode] or {} for mode in MODES if mode in line}


def numbers(line: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a line of progress with its dotted name."""
    for key, value in line.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{prefix}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{key}", float(value)


def _axis_names() -> set[str]:
    evaluations = {f"{each}.{name}" for each in _EVALUATIONS for name in _EVALUATION_AXES.values()}
    return evaluations | set(AXES.values())
