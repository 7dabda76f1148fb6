"""Sources of plans, and the operators that `learner_config.parts` adds behind them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from session.config.merge import quote
from session.config.named_code import load_callable
from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from surreal_like.dataflow.flow import Flow, Operator, Signal
from surreal_like.dataflow.local_replay import DrawnLocally, LocalReplay
from surreal_like.replay.base import load_replay_class

if TYPE_CHECKING:
    from surreal_like.learner.base import Learner

_KEY = "learner_config.parts"
# Name in a config -> function of (learner, **args) that returns an operator.
PARTS: Mapping[str, str] = MappingProxyType({"rnd": "surreal_like.learner.rnd:add_rnd_bonus"})


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
        source = source.for_each(_make(learner, name, args))
    return source


def _checked(given: Any) -> tuple[str, dict[str, Any]]:
    wrong = not isinstance(given, Mapping) or not {"part"} <= given.keys() <= {"part", "args"}
    if (
        wrong
        or not isinstance(given["part"], str)
        or not isinstance(given.get("args", {}), Mapping)
    ):
        raise ConfigError(f"{_KEY} has {quote(given)}, expected {{part: NAME, args: {{...}}}}")
    return given["part"], dict(given.get("args", {}))


def _make(learner: Learner, name: str, args: dict[str, Any]) -> Operator:
    function = _find(name)
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


def _find(name: str) -> Callable[..., Any]:
    place = PARTS.get(name, name)
    if ":" not in place:
        hint = did_you_mean(name, PARTS, otherwise=f"there is {', '.join(PARTS)}")
        raise ConfigError(
            f"{_KEY} has no part {name!r}: {hint}; your own is given as "
            "package.module:function or file.py:function"
        )
    return load_callable(place, _KEY)


# What replay gives -> the source of it.
_SOURCES = {
    "rows": "replay",
    "sequences": "replay",
    "unrolls": "rollouts",
    "gradients": "async_gradients",
}
_BATCHES = {"rows": "single rows", "sequences": "sequences", "unrolls": "whole unrolls"}


def from_items(items: Iterable[Any]) -> Flow:
    """Returns the flow of some items, for tests and notebooks."""
    return _Items(items)


class _Items(Flow):
    def __init__(self, items: Iterable[Any]) -> None:
        super().__init__("from_items")
        self._items = items
        self._rest: Iterator[Any] | None = None

    def pull(self) -> Any:
        if self._rest is None:
            self._rest = iter(self._items)
        return next(self._rest)


class _Received(Flow):
    """Batches that replay sends to a learner."""

    counts_items = True

    def __init__(self, name: str, learner: Learner) -> None:
        super().__init__(name, outside=learner)
        self._learner = learner

    def pull(self) -> Any:
        item = self._learner.next_batch()
        return item if type(item) is Signal else self._count(item)


def experience(learner: Learner) -> Flow:
    """Returns the flow of batches of a learner's replay: `rollouts` or `replay`, by its kind.

    Raises ConfigError if replay gives gradients: use `async_gradients`.
    """
    kind = load_replay_class(learner.learner_config).gives()
    if kind == "gradients":
        check_kind(learner, "experience", "unrolls")
    return with_parts(learner, _Received(_SOURCES[kind], learner))


def rollouts(learner: Learner, mode: str | None = None) -> Flow:
    """Returns the flow of batches of whole unrolls, each of which comes once, the oldest first.

    Args:
        learner: learner of the run.
        mode: `async`: as they come; `bulk_sync`: one unroll of every agent, which then waits for
            the next version. None: as `learner_config.algo.synchronous` says.

    Raises:
        ConfigError: replay gives single rows, or the mode contradicts the config.
    """
    check_kind(learner, "rollouts", "unrolls")
    synchronous = bool(learner.learner_config.algo.get("synchronous", False))
    wanted = "bulk_sync" if synchronous else "async"
    if mode not in (None, wanted):
        raise ConfigError(
            f"rollouts has mode {mode!r}, but learner_config.algo.synchronous is {synchronous}, "
            f"which is mode {wanted!r}: change one of them"
        )
    return with_parts(learner, _Received("rollouts", learner))


def replay(source: Learner | LocalReplay, *, batch_size: int | None = None) -> Flow:
    """Returns the flow of batches that are drawn again and again.

    Args:
        source: a learner, whose replay servers draw; or a LocalReplay.
        batch_size: batch size of a LocalReplay.

    Raises:
        ConfigError: replay gives whole unrolls or gradients.
        ValueError: a LocalReplay needs a batch size of 1 or more, a learner has its own.
    """
    if isinstance(source, LocalReplay):
        return DrawnLocally(source, batch_size or 0)
    if batch_size is not None:
        raise ValueError("replay(learner) has no batch_size: set learner_config.replay.batch_size")
    check_kind(source, "replay", "rows", "sequences")
    return with_parts(source, _Received("replay", source))


def check_kind(learner: Learner, name: str, *wanted: str) -> None:
    """Raises ConfigError, with the remedy, unless a learner's replay gives what a source needs.

    Args:
        learner: learner of the plan.
        name: name of the source.
        wanted: rows, sequences, unrolls or gradients.
    """
    config = learner.learner_config
    kind = load_replay_class(config)
    if kind.gives() in wanted:
        return
    if "gradients" in (*wanted, kind.gives()):
        key, given = "gradients_at", config.get("gradients_at", "learner")
        remedy = f"set that to {'agent' if 'gradients' in wanted else 'learner'}"
        what = f"which gives {kind.gives()}"
    else:
        key, given, remedy = "replay.type", kind.__name__, "set another type"
        what = f"which gives {_BATCHES[kind.gives()]}"
    raise ConfigError(
        f"the plan has {name}(learner), but learner_config.{key} is {given}, {what}: "
        f"use {_SOURCES[kind.gives()]}(learner), or {remedy}"
    )
