"""Finds an algorithm by its name, by dotted path, or in a file.

| written as | example |
|---|---|
| a registered name | `dqn` |
| a dotted path | `my_package.my_module:MyAlgorithm` |
| a file, if needed with the class | `my_algorithm.py`, `experiments/two.py:Second` |
"""

from __future__ import annotations

import sys
from types import ModuleType

from session.config.named_code import hides, load_module, split_place
from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.catalog import known_elsewhere, list_algorithms


def find_algorithm(name: str) -> type[Algorithm]:
    """Returns the class that a config's `algorithm` names.

    Raises ConfigError if there is none, or if its module cannot be imported.
    """
    place, class_name = split_place(list_algorithms().get(name, name))
    if not class_name and not place.endswith(".py"):
        raise ConfigError(_unknown(name))
    module = load_module(place, f"algorithm {name!r}")
    algorithm = _class_of(module, class_name, name)
    for part in ("agent", "learner"):
        if not hasattr(algorithm, part):
            raise ConfigError(f"algorithm {name!r}: {algorithm.__name__} names no {part}")
    return algorithm


def _unknown(name: str) -> str:
    other = known_elsewhere(name)
    hint = f" use {other}." if other else did_you_mean(name, list_algorithms(), lead=" ")
    return (
        f"unknown algorithm {name!r}:{hint} There are {', '.join(sorted(list_algorithms()))};"
        " your own is given as package.module:Class or as the path of a .py file"
    )


def _class_of(module: ModuleType, class_name: str, name: str) -> type[Algorithm]:
    """Returns the class of that name; without a name the only Algorithm defined in the module."""
    found = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Algorithm) and value is not Algorithm
    }
    if class_name:
        if class_name in found:
            return found[class_name]
        hint = hides(module) or did_you_mean(class_name, found, lead="; ")
        raise ConfigError(
            f"algorithm {name!r}: {module.__file__} has no Algorithm {class_name!r}{hint}"
        )
    own = {value: key for key, value in found.items() if not _is_imported(value, module)}
    if len(own) == 1:
        return next(iter(own))
    names = ", ".join(f"{name}:{key}" for key in own.values()) or "none"
    raise ConfigError(
        f"algorithm {name!r}: expected one class that extends Algorithm, found {names}"
    )


def _is_imported(algorithm: type[Algorithm], module: ModuleType) -> bool:
    """Returns True if another module has the class under its name."""
    if algorithm.__module__ == module.__name__:
        return False
    # What `with_updates` makes without a function is said to be of the module of its base.
    owner = sys.modules.get(algorithm.__module__)
    return getattr(owner, algorithm.__name__, None) is algorithm
