"""The space of a tuning: the settings that differ between trials, drawn and mutated.

All draws are uniform numbers in [0, 1), so equal draws give equal settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from session.config import Config
from session.config.merge import join, nearest, paths, shown
from session.errors import ConfigError
from surreal_like.tuning.dimension import Dimension, Options, parse

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
            settings: of the donor; keys that are not mutable are copied.
            draws: uniform numbers.
            resample_probability: of a new value instead of a change of the old one.
            perturbation_factors: one of them multiplies a number.

        Raises:
            ConfigError: the settings lack a key of the space.
        """
        explored = dict(settings)
        for key in self.mutable:
            if key not in settings:
                raise ConfigError(f"the settings {shown(dict(settings))} lack {key}")
            one, two = next(draws), next(draws)
            resamples = one < resample_probability
            explored[key] = self.dimensions[key].mutate(
                settings[key], two, perturbation_factors, resamples=resamples
            )
        return explored
