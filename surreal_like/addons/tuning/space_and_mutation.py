"""The space of a tuning: settings that differ between trials, drawn, mutated and as texts.

All draws are uniform numbers in [0, 1), so equal draws give equal settings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from session.config import Config
from session.config.config import keys_of
from session.config.defaults import BASE_CONFIG
from session.config.key import range_of
from session.config.merge import join, nearest, paths, quote
from session.config.placeholder import expectation
from session.did_you_mean import did_you_mean
from session.errors import ConfigError

LISTS = ("grid", "choice", "ordered")
WHOLE = ("randint", "lograndint")
NUMBERS = ("uniform", "loguniform", *WHOLE)
_STEPPED = ("uniform", "randint")
_MODIFIERS = ("step", "mutate")
# Keys of an entry of a space.
KEYS = (*LISTS, *NUMBERS, *_MODIFIERS)

Dimension: TypeAlias = "Options | Interval"


@dataclass(frozen=True, slots=True)
class Options:
    """A list of values.

    Args:
        kind: ``grid``, ``choice`` (without an order) or ``ordered`` (with neighbours).
        values: the values, at least one.
        mutable: False keeps the key out of mutations.
    """

    kind: str
    values: Sequence[Any]
    mutable: bool = True

    def sample(self, draw: float) -> Any:
        """Returns the element at a uniform number in [0, 1)."""
        return self.values[math.floor(draw * len(self.values))]

    def mutate(self, value: Any, draw: float, factors: Sequence[float], *, resamples: bool) -> Any:
        """Returns another element, a neighbour in an ordered list, or the same value."""
        if resamples or (self.kind == "ordered" and value not in self.values):
            return self.sample(draw)
        if self.kind != "ordered":
            return value
        place = self.values.index(value) + (-1 if draw < 0.5 else 1)
        return self.values[min(max(place, 0), len(self.values) - 1)]

    def check(self, key: str, value: Any) -> None:
        """Checks all elements against the value that the experiment has; raises ConfigError."""
        for element in self.values:
            _check_value(key, element, value)


@dataclass(frozen=True, slots=True)
class Interval:
    """Numbers between two bounds, both inclusive.

    Args:
        kind: ``uniform``, ``loguniform``, ``randint`` or ``lograndint``.
        low, high: bounds, inclusive.
        step: distance of two values; 0: any value between the bounds.
        mutable: False keeps the key out of mutations.
    """

    kind: str
    low: float
    high: float
    step: float = 0
    mutable: bool = True

    @property
    def highest(self) -> float:
        """The largest value: the upper bound, or the last step below it."""
        return self._at(self._steps) if self.step else self.high

    @property
    def _steps(self) -> int:
        # Without the tolerance 0.3 / 0.1 would be two steps.
        return math.floor((self.high - self.low) / self.step + 1e-9)

    def sample(self, draw: float) -> float:
        """Returns the value at a uniform number in [0, 1)."""
        low, high = self.low, self.high
        if self.kind == "loguniform":
            return float(low * (high / low) ** draw)
        if self.kind == "lograndint":
            value: float = math.floor(low * ((high + 1) / low) ** draw)
            return self._clamp(value)
        if self.step:
            return self._at(math.floor(draw * (self._steps + 1)))
        return low + (high - low) * draw

    def mutate(
        self, value: float, draw: float, factors: Sequence[float], *, resamples: bool
    ) -> float:
        """Returns a new value, or the old one times a factor, within the bounds."""
        stepped = self.step or self.kind in WHOLE
        # No factor leads away from 0.
        if resamples or (value == 0 and not stepped):
            return self.sample(draw)
        factor = factors[math.floor(draw * len(factors))]
        if not stepped:
            return self._clamp(value * factor)
        step = self.step or 1
        place = _round((value * factor - self.low) / step)
        if self._at(place) == value and factor != 1:
            place += 1 if value * (factor - 1) > 0 or (value == 0 and factor > 1) else -1
        return self._clamp(self._at(place))

    def _at(self, place: int) -> float:
        """Returns the value after a number of steps."""
        value = self.low + (self.step or 1) * place
        return value if self.kind in WHOLE else float(f"{value:.12g}")

    def _clamp(self, value: float) -> float:
        return min(max(value, self.low), self.highest)

    def check(self, key: str, value: Any) -> None:
        """Checks the bounds against the value that the experiment has; raises ConfigError."""
        if _is_number(value) and isinstance(value, int) and self.kind not in WHOLE:
            raise ConfigError(
                f"space.{key}: {self.kind} gives fractions, and the setting is a whole number; "
                "use randint or lograndint"
            )
        for bound in (self.low, self.high):
            _check_value(key, bound, value)


def parse(key: str, entry: Any) -> Dimension:
    """Makes the values of a key from its entry in a tune file.

    Args:
        key: dotted key, for messages.
        entry: such as ``{"randint": [16, 256], "step": 16, "mutate": False}``.

    Raises:
        ConfigError: the message names the key, the fault and the remedy.
    """
    kinds = (*LISTS, *NUMBERS)
    if not isinstance(entry, Mapping):
        raise ConfigError(f"space.{key} is {quote(entry)}, expected one of {', '.join(kinds)}")
    given = [name for name in entry if name not in _MODIFIERS]
    for name in given:
        if name not in kinds:
            raise ConfigError(f"space.{key}: {_unknown(name, entry[name], kinds)}")
    if len(given) != 1:
        has = " and ".join(given) or "none"
        raise ConfigError(f"space.{key} has {has}, expected exactly one of {', '.join(kinds)}")
    mutable = entry.get("mutate", True)
    if not isinstance(mutable, bool):
        raise ConfigError(f"space.{key}.mutate is {quote(mutable)}, expected true or false")
    kind, values = given[0], entry[given[0]]
    step = entry.get("step", 0)
    if "step" in entry and kind not in _STEPPED:
        raise ConfigError(f"space.{key}: step belongs to {' and '.join(_STEPPED)}, not to {kind}")
    if "step" in entry and not (_is_number(step) and step > 0):
        raise ConfigError(f"space.{key}.step is {quote(step)}, expected a number above 0")
    if kind in LISTS:
        if not isinstance(values, list | tuple) or not values:
            raise ConfigError(f"space.{key}.{kind} is {quote(values)}, expected a list of values")
        return Options(kind, list(values), mutable and kind != "grid")
    return _interval(key, kind, values, step, mutable)


def _unknown(name: str, values: Any, kinds: Sequence[str]) -> str:
    """Describes a wrong kind; mostly it is a key that was nested."""
    hint = did_you_mean(name, kinds, lead="; ")
    if isinstance(values, Mapping) and not hint:
        return f"nested mapping {name}; write the whole dotted key"
    return f"unknown kind {name}{hint}" if hint else f"{name} is none of {', '.join(kinds)}"


def _interval(key: str, kind: str, values: Any, step: float, mutable: bool) -> Interval:
    place = f"space.{key}.{kind}"
    if (
        not isinstance(values, list | tuple)
        or len(values) != 2
        or not all(_is_number(each) and math.isfinite(each) for each in values)
    ):
        raise ConfigError(f"{place} is {quote(values)}, expected two numbers, [low, high]")
    low, high = values
    if low >= high:
        raise ConfigError(f"{place} is {quote(values)}: low must be less than high")
    if kind in ("loguniform", "lograndint") and low <= 0:
        raise ConfigError(f"{place} is {quote(values)}: a logarithm needs low above 0")
    if kind in WHOLE:
        if not all(float(each).is_integer() for each in (low, high, step)):
            raise ConfigError(f"{place} is {quote(values)}: bounds and step are whole numbers")
        return Interval(kind, int(low), int(high), int(step or kind == "randint"), mutable)
    return Interval(kind, float(low), float(high), float(step), mutable)


def _check_value(key: str, value: Any, default: Any) -> None:
    """Checks a value for a key of an experiment that has another value there."""
    wanted = expectation(default, key)
    if not wanted.accepts(value):
        raise ConfigError(f"space.{key} has {quote(value)}, expected {wanted.expected}")
    # The ranges of an algorithm's own keys are checked where trials are resolved.
    limits = range_of(key, keys_of(BASE_CONFIG))
    if _is_number(value) and value not in limits:
        raise ConfigError(f"space.{key} has {quote(value)}, expected {limits}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _round(value: float) -> int:
    """Rounds to the nearest whole number, half away from zero."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


# Keys that the tuner itself sets in each trial.
_TUNERS = (
    "session_config.folder",
    "session_config.learner.report_every",
    "session_config.learner.report_by",
    "session_config.stop",
)
# Keys that identify a mapping as a schedule; a number may stand for it.
_SCHEDULE = frozenset({"kind", "by", "start", "end", "steps", "points"})

Settings = dict[str, Any]


def uniforms(*entropy: int) -> Iterator[float]:
    """Yields uniform numbers in [0, 1), the same ones for equal entropy."""
    generator = np.random.default_rng(list(entropy))
    while True:
        yield float(generator.random())


class Space:
    """Settings that differ between trials, in the order of their sorted keys.

    Args:
        dimensions: dotted key -> its values.
    """

    def __init__(self, dimensions: Mapping[str, Dimension]) -> None:
        self.dimensions = dict(sorted(dimensions.items()))

    @classmethod
    def of(cls, entries: Mapping[str, Any]) -> Space:
        """Makes a space from the section ``space`` of a tune file.

        Args:
            entries: dotted key -> kind and values, such as ``{"uniform": [0.0, 0.02]}``.

        Raises:
            ConfigError: a key or its values are wrong; the message names the key.
        """
        dimensions = {key: parse(key, entry) for key, entry in entries.items()}
        for key in dimensions:
            for other in dimensions:
                if other.startswith(f"{key}."):
                    raise ConfigError(f"space: {key} contains {other}; keep one of the two")
            if taken := [each for each in _TUNERS if join(key, "").startswith(join(each, ""))]:
                raise ConfigError(f"space.{key}: the tuning itself sets {taken[0]} of each trial")
        return cls(dimensions)

    @property
    def mutable(self) -> list[str]:
        """Keys that :meth:`explore` changes."""
        return [key for key, each in self.dimensions.items() if each.mutable]

    def check(self, config: Mapping[str, Any]) -> None:
        """Checks the keys and bounds against an experiment.

        Args:
            config: the experiment with all defaults.

        Raises:
            ConfigError: it does not have a key, or the values do not fit the key.
        """
        known = paths(Config(config))
        for key, dimension in self.dimensions.items():
            if key not in known:
                raise ConfigError(f"space.{key}: there is no such key{nearest(key, known)}")
            value: Any = config
            for name in key.split("."):
                value = value[name]
            if isinstance(value, dict) and {*value} >= _SCHEDULE:
                dimension.check(f"{key}.start", value["start"])
            elif isinstance(value, dict) and value:
                beside = ", ".join(f"{key}.{name}" for name in value)
                raise ConfigError(f"space.{key} is a section; its keys are {beside}")
            else:
                dimension.check(key, value)

    def points(self) -> list[Settings]:
        """Returns the points of the grid, the last key fastest; an empty point without a grid."""
        grid = {
            key: each.values
            for key, each in self.dimensions.items()
            if isinstance(each, Options) and each.kind == "grid"
        }
        return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]

    def sample(self, draws: Iterator[float]) -> Settings:
        """Returns a value for every key outside the grid; uses one draw for each."""
        return {
            key: each.sample(next(draws))
            for key, each in self.dimensions.items()
            if each.kind != "grid"
        }

    def trials(self, num: int, seed: int) -> list[Settings]:
        """Returns the settings of all trials: ``num`` samples of each point of the grid."""
        points = self.points()
        return [
            points[number % len(points)] | self.sample(uniforms(seed, 0, number))
            for number in range(num * len(points))
        ]

    def explore(
        self,
        settings: Mapping[str, Any],
        draws: Iterator[float],
        *,
        resample_probability: float = 0.25,
        perturbation_factors: Sequence[float] = (1.2, 0.8),
    ) -> Settings:
        """Returns mutated settings; uses two draws for each mutable key.

        Args:
            settings: settings of the donor; keys that are not mutable are copied.
            draws: uniform numbers.
            resample_probability: probability of a new value instead of a change of the old one.
            perturbation_factors: one of them multiplies a number.

        Raises:
            ConfigError: the settings lack a key of the space.
        """
        explored = dict(settings)
        for key in self.mutable:
            if key not in settings:
                raise ConfigError(f"the settings {quote(dict(settings))} lack {key}")
            one, two = next(draws), next(draws)
            resamples = one < resample_probability
            explored[key] = self.dimensions[key].mutate(
                settings[key], two, perturbation_factors, resamples=resamples
            )
        return explored


_SCHEDULE_START = ".start"


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Returns dotted key -> its last words, as many as make it unique.

    The ``start`` of a schedule is left out where that is unambiguous, so that
    ``learner_config.algo.learning_rate.start`` becomes ``learning_rate``.
    """
    keys = list(keys)
    shown = {key: key.removesuffix(_SCHEDULE_START) for key in keys}
    for key in keys:
        stem = shown[key]
        if any(other != key and other.startswith(f"{stem}.") for other in keys):
            shown[key] = key
    return {key: _unique(stem, list(shown.values())) for key, stem in shown.items()}


def _unique(stem: str, stems: list[str]) -> str:
    words = stem.split(".")
    # A word such as end or steps says nothing without its schedule.
    least = 2 if words[-1] in ("start", "end", "steps") else 1
    for number in range(least, len(words)):
        last = ".".join(words[-number:])
        if sum(each == last or each.endswith(f".{last}") for each in stems) == 1:
            return last
    return stem


def setting_text(value: Any) -> str:
    """Formats the value of a setting; numbers with six significant digits."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def settings_text(settings: Mapping[str, Any]) -> str:
    """Formats settings as ``learning_rate=0.0008,minibatches=8``."""
    names = short_names(settings)
    return ",".join(f"{names[key]}={setting_text(value)}" for key, value in settings.items())
