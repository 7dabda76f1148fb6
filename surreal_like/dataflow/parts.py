"""Operators of `learner_config.parts`: added behind the source of any plan, in order."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from session.config.merge import shown
from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from surreal_like.dataflow.flow import Flow, Operator
from surreal_like.run.named_code import load_callable

if TYPE_CHECKING:
    from surreal_like.learner.base import Learner

_KEY = "learner_config.parts"
# Name in a config -> function of (learner, **args) that returns an operator.
PARTS: Mapping[str, str] = MappingProxyType({"rnd": "surreal_like.dataflow.rnd:add_rnd_bonus"})


def with_parts(learner: Learner, source: Flow) -> Flow:
    """Returns a source of batches followed by the operators of the config.

    Raises:
        ConfigError: a part does not exist, stands twice, or has other arguments.
    """
    names: set[str] = set()
    parts, learner.unused_parts = learner.unused_parts, []
    for given in parts:
        name, args = _checked(given)
        if name in names:
            raise ConfigError(f"{_KEY} has {name} twice: leave one of them out")
        names.add(name)
        source = source.for_each(_made(learner, name, args))
    return source


def _checked(given: Any) -> tuple[str, dict[str, Any]]:
    wrong = not isinstance(given, Mapping) or not {"part"} <= given.keys() <= {"part", "args"}
    if (
        wrong
        or not isinstance(given["part"], str)
        or not isinstance(given.get("args", {}), Mapping)
    ):
        raise ConfigError(f"{_KEY} has {shown(given)}, expected {{part: NAME, args: {{...}}}}")
    return given["part"], dict(given.get("args", {}))


def _made(learner: Learner, name: str, args: dict[str, Any]) -> Operator:
    function = _found(name)
    try:
        inspect.signature(function).bind(learner, **args)
    except TypeError as error:
        known = ", ".join(list(inspect.signature(function).parameters)[1:])
        raise ConfigError(f"args of {_KEY} {name!r}: {error}; it takes {known}") from None
    operator = function(learner, **args)
    if not isinstance(operator, Operator):
        raise ConfigError(
            f"{_KEY} {name!r} gives a {type(operator).__name__}, expected an Operator of batches"
        )
    return operator


def _found(name: str) -> Callable[..., Any]:
    place = PARTS.get(name, name)
    if ":" not in place:
        hint = did_you_mean(name, PARTS, otherwise=f"there is {', '.join(PARTS)}")
        raise ConfigError(
            f"{_KEY} has no part {name!r}: {hint}; your own is given as "
            "package.module:function or file.py:function"
        )
    return load_callable(place, _KEY)
