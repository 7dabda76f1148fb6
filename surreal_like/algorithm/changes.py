"""Changes of an algorithm: functions that each take the place of one of its parts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from session.config import Config
from session.config.merge import quote
from session.config.named_code import check_arguments
from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from surreal_like.agent.agent import AgentMode

# Keyword -> method of the learner, which takes the learner as first argument.
_OF_LEARNER: Mapping[str, str] = MappingProxyType(
    {
        "loss_fn": "loss",
        "execution_plan": "execution_plan",
        "optimizer_fn": "make_optimizers",
        "gradients_fn": "change_gradients",
        "stats_fn": "stats",
        "before_init": "before_init",
        "before_loss_init": "before_loss_init",
        "after_init": "after_init",
    }
)
_OF_AGENT: Mapping[str, str] = MappingProxyType(
    {"action_fn": "act", "postprocess_fn": "postprocess"}
)
# Keyword -> names of the arguments of its function.
_ARGUMENTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "loss_fn": ("learner", "batch"),
        "execution_plan": ("learner",),
        "optimizer_fn": ("learner",),
        "gradients_fn": ("learner", "flat"),
        "stats_fn": ("learner", "batch"),
        "before_init": ("learner",),
        "before_loss_init": ("learner",),
        "after_init": ("learner",),
        "validate_config": ("learner_config", "env_config", "session_config"),
        "make_model": ("learner_config", "env_config"),
        "action_fn": ("agent", "obs"),
        "extra_action_fn": ("agent", "obs"),
        "postprocess_fn": ("agent", "chunk"),
    }
)
_ATTRIBUTES = ("replay", "actions", "bounded", "session_config", "agent", "learner")
_VALUES = ("default_config", "learner_mixins", "agent_mixins", *_ATTRIBUTES)


class _WithExtras:
    """Adds extras to the actions of an agent in training."""

    agent_mode: AgentMode
    extra_actions: Callable[[Any], Mapping[str, Any]]

    def act(self, obs: Any) -> Any:
        given = super().act(obs)  # type: ignore[misc]
        if self.agent_mode is not AgentMode.training:
            return given
        actions, extras = given if isinstance(given, tuple) else (given, {})
        return actions, {**extras, **self.extra_actions(obs)}


def extend_algorithm(base: type[Any], name: str, changes: Mapping[str, Any]) -> Any:
    """Returns a new class that is `base` but for the changes; see `build_algorithm`."""
    _check(name, changes)
    module = _module_of(base, changes)
    parts = {key: changes[key] for key in _ATTRIBUTES if key in changes}
    whole = _class(name, (base,), module, parts)
    whole.learner = _learner(whole, name, changes)
    whole.agent = _agent(whole, name, changes)
    whole.other_replay = base.other_replay or (
        "replay" in changes and _gives(whole) != _gives(base)
    )
    if "default_config" in changes:
        inherited = Config(base.learner_config)
        whole.learner_config = Config(changes["default_config"]).extend(inherited, abstract=True)
    if "validate_config" in changes:
        whole.validate_config = staticmethod(changes["validate_config"])
    return whole


def _class(
    name: str, bases: tuple[type[Any], ...], module: str, namespace: Mapping[str, Any]
) -> Any:
    return type(name, bases, {**namespace, "__module__": module})


def _check(name: str, changes: Mapping[str, Any]) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(f"an algorithm is called {name!r}, expected a name such as MyPPO")
    for key, value in changes.items():
        if key in _ARGUMENTS:
            check_arguments(f"{key} of {name}", value, _ARGUMENTS[key])
        elif key not in _VALUES:
            known = (*_ARGUMENTS, *_VALUES)
            others = f"there are {', '.join(known)}"
            hint = did_you_mean(key, known, otherwise=others)
            raise ConfigError(f"{name} has an unknown part '{key}': {hint}")
        elif key.endswith("_mixins") and not all(isinstance(each, type) for each in value):
            raise ConfigError(f"{key} of {name} is {quote(value)}, expected classes")
    if not isinstance(changes.get("default_config", {}), Mapping):
        given = quote(changes["default_config"])
        raise ConfigError(f"default_config of {name} is {given}, expected a mapping")


def _module_of(base: type[Any], changes: Mapping[str, Any]) -> str:
    """Returns the module of the loss, else of the first function or class; else of the base."""
    given = [changes[key] for key in _ARGUMENTS if key in changes]
    given += [changes[key] for key in ("learner", "agent") if key in changes]
    return str(given[0].__module__ if given else base.__module__)


def _learner(whole: Any, name: str, changes: Mapping[str, Any]) -> Any:
    base = whole.learner
    planned = {"execution_plan", "learner"} & changes.keys()
    if "loss_fn" in changes and not planned and not base.uses_loss():
        raise ConfigError(
            f"loss_fn of {name} would never be called: the plan of {base.__name__} has losses of "
            "its own; give an execution_plan, too"
        )
    return _part(whole, name, "learner", _OF_LEARNER, changes)


def _agent(whole: Any, name: str, changes: Mapping[str, Any]) -> Any:
    made = _part(whole, name, "agent", _OF_AGENT, changes)
    if "extra_action_fn" not in changes:
        return made
    bases = (made,) if issubclass(made, _WithExtras) else (_WithExtras, made)
    method = {"extra_actions": _method(changes["extra_action_fn"])}
    return _class(f"{name}Agent", bases, whole.__module__, method)


def _part(
    whole: Any, name: str, part: str, names: Mapping[str, str], changes: Mapping[str, Any]
) -> Any:
    """Returns the learner or the agent with its changes; it itself if there are none."""
    base = getattr(whole, part)
    methods = {method: _method(changes[key]) for key, method in names.items() if key in changes}
    if "make_model" in changes:
        methods["make_model"] = _network_of(base, changes)
    bases = (*changes.get(f"{part}_mixins", ()), base)
    if not methods and len(bases) == 1:
        return base
    return _class(f"{name}{part.capitalize()}", bases, whole.__module__, methods)


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that becomes a method; a callable object would not."""
    if inspect.isfunction(function):
        return function
    return lambda *given: function(*given)


def _network_of(owner: type[Any], changes: Mapping[str, Any]) -> Any:
    if not hasattr(owner, "make_model"):
        raise ConfigError(
            f"make_model: {owner.__name__} builds networks of its own; it is possible with "
            "ActorCritic, PPO, Impala and DQN"
        )
    return staticmethod(changes["make_model"])


def _gives(algorithm: Any) -> str:
    # Not at the top: commands that only list algorithms need no replay.
    from surreal_like.replay.replay import load_replay_class

    return load_replay_class({"replay": {"type": algorithm.replay}}).gives()
