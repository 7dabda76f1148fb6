"""Finds an algorithm by its name, by dotted path, or in a file.

| written as | example |
|---|---|
| a registered name | `dqn` |
| a dotted path | `my_package.my_module:MyAlgorithm` |
| a file, if needed with the class | `my_algorithm.py`, `experiments/two.py:Second` |
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from session.did_you_mean import did_you_mean
from session.errors import ConfigError, SurrealError
from surreal_like.algorithm.base import Algorithm
from surreal_like.algorithm.catalog import list_algorithms
from surreal_like.algorithm.updates import check_arguments
from surreal_like.run.own_code import OWN_FILE, split_place


def find_algorithm(name: str) -> type[Algorithm]:
    """Returns the class that a config's `algorithm` names.

    Raises ConfigError if there is none, or if its module cannot be imported.
    """
    place, class_name = split_place(list_algorithms().get(name, name))
    if place.endswith(".py"):
        module = _load_file(Path(place), "algorithm")
    elif class_name:
        module = _load_module(place, f"algorithm {name!r}")
    else:
        raise ConfigError(_unknown(name))
    algorithm = _class_of(module, class_name, name)
    for part in ("agent", "learner"):
        if not hasattr(algorithm, part):
            raise ConfigError(f"algorithm {name!r}: {algorithm.__name__} names no {part}")
    return algorithm


def find_plan(name: str) -> Callable[[Any], Any]:
    """Returns the function that `learner_config.execution_plan` names; errors of find_function."""
    return find_function(name, "learner_config.execution_plan", "learner")


def find_function(name: str, key: str, argument: str) -> Callable[[Any], Any]:
    """Returns the function of one argument that a setting names.

    Args:
        name: `file.py:function` or `package.module:function`.
        key: of the setting, for messages.
        argument: name of the argument, for messages.

    Raises ConfigError if there is none, if its module cannot be imported, or if it does not take
    one argument.
    """
    place, function = split_place(name)
    if not function:
        raise ConfigError(
            f"{key} is {name!r}, expected file.py:function or package.module:function"
        )
    if place.endswith(".py"):
        module = _load_file(Path(place), key)
    else:
        module = _load_module(place, f"{key} {name!r}")
    found = getattr(module, function, None)
    if not callable(found):
        hint = did_you_mean(function, [key for key in vars(module) if key[0] != "_"], lead="; ")
        raise ConfigError(f"{key} {name!r}: {module.__file__} has no function {function!r}{hint}")
    check_arguments(f"{key} {name!r}", found, (argument,))
    called: Callable[[Any], Any] = found
    return called


def _unknown(name: str) -> str:
    hint = did_you_mean(name, list_algorithms(), lead=" ")
    return (
        f"unknown algorithm {name!r}:{hint} There are {', '.join(sorted(list_algorithms()))};"
        " your own is given as package.module:Class or as the path of a .py file"
    )


def _load_module(dotted: str, what: str) -> ModuleType:
    try:
        return importlib.import_module(dotted)
    except SurrealError:
        raise
    except Exception as error:
        raise ConfigError(f"{what} cannot be imported: {_shown(error)}") from error


def _load_file(path: Path, kind: str) -> ModuleType:
    """Imports a file under a unique module name, once per process."""
    resolved = path.expanduser().resolve()
    if not os.path.isfile(resolved):
        raise ConfigError(f"{kind} {str(path)!r}: there is no such file ({resolved})")
    digest = hashlib.sha256(str(resolved).encode()).hexdigest()[:8]
    module_name = f"{OWN_FILE}{resolved.stem}_{digest}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    # The folder of the file is its package: `from .nets import Net` imports a neighbour.
    spec = importlib.util.spec_from_file_location(
        module_name, resolved, submodule_search_locations=[str(resolved.parent)]
    )
    if spec is None or spec.loader is None:
        raise ConfigError(f"{kind} {str(path)!r} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their module during its import.
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[module_name]
        if isinstance(error, SurrealError) or not isinstance(error, Exception):
            raise
        raise ConfigError(f"{kind} {str(path)!r} cannot be loaded: {_shown(error)}") from error
    return module


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
        hint = did_you_mean(class_name, found, lead="; ")
        raise ConfigError(
            f"algorithm {name!r}: {module.__file__} has no Algorithm {class_name!r}{hint}"
        )
    own = [value for value in found.values() if value.__module__ == module.__name__]
    if len(own) == 1:
        return own[0]
    names = ", ".join(value.__name__ for value in own) or "none"
    raise ConfigError(
        f"algorithm {name!r}: expected one class that extends Algorithm, found {names}"
    )


def _shown(error: Exception) -> str:
    """Formats the error's type and message, and the line of the user's code that raised it."""
    place = ""
    # The message of a syntax error already has the position.
    trace = error.__traceback__ if not isinstance(error, SyntaxError) else None
    while trace is not None:
        place = f" ({trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}{place}"
