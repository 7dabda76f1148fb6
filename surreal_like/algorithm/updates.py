"""Changes of an algorithm: functions that each take the place of one of its parts."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from session.config import Config
from session.config.merge import shown
from session.config.named_code import check_arguments
from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from surreal_like.agent.base import AgentMode

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


def updated(base: type[Any], name: str, changes: Mapping[str, Any]) -> Any:
    """Returns a new class that is `base` but for the changes; see `build_algorithm`."""
    _check(name, changes)
    module = _module_of(changes)
    namespace = {key: changes[key] for key in _ATTRIBUTES if key in changes}
    whole = _class(name, (base,), {**namespace, "__module__": module})
    whole.learner = _learner(whole, name, changes)
    whole.agent = _agent(whole, name, changes)
    if "replay" in changes and _gives(whole) != _gives(base):
        whole.default_config = classmethod(_without_replay(whole))
    if "default_config" in changes:
        whole.default_config = classmethod(_defaults(whole, changes["default_config"]))
    if "validate_config" in changes:
        whole.validate_config = staticmethod(changes["validate_config"])
    return whole


def _class(name: str, bases: tuple[type[Any], ...], namespace: Mapping[str, Any]) -> Any:
    return type(name, bases, dict(namespace))


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
            raise ConfigError(f"{key} of {name} is {shown(value)}, expected classes")
    if not isinstance(changes.get("default_config", {}), Mapping):
        given = shown(changes["default_config"])
        raise ConfigError(f"default_config of {name} is {given}, expected a mapping")


def _module_of(changes: Mapping[str, Any]) -> str:
    """Returns the module of the loss; without a loss, that of the code that builds the class."""
    if "loss_fn" in changes:
        return str(changes["loss_fn"].__module__)
    frame = sys._getframe()
    inner = tuple(f"surreal_like.algorithm.{name}" for name in ("updates", "base", "builder"))
    while frame.f_back is not None and frame.f_globals["__name__"] in inner:
        frame = frame.f_back
    return str(frame.f_globals["__name__"])


def _learner(whole: Any, name: str, changes: Mapping[str, Any]) -> Any:
    base = whole.learner
    planned = {"execution_plan", "learner"} & changes.keys()
    if "loss_fn" in changes and not planned and not base.uses_loss():
        raise ConfigError(
            f"loss_fn of {name} would never be called: the plan of {base.__name__} has losses of "
            "its own; give an execution_plan, too"
        )
    methods = {
        method: _method(changes[key]) for key, method in _OF_LEARNER.items() if key in changes
    }
    if "make_model" in changes:
        methods["make_model"] = _network_of(base, changes)
    bases = (*changes.get("learner_mixins", ()), base)
    if not methods and len(bases) == 1:
        return base
    made = _class(f"{name}Learner", bases, {**methods, "__module__": whole.__module__})
    if "after_init" in methods:
        _call_at_the_end(made)
    return made


def _call_at_the_end(learner: Any) -> None:
    """Makes a class call `after_init` when its constructor, with those of its bases, is done."""

    def __init__(self: Any, **kwargs: Any) -> None:
        super(learner, self).__init__(**kwargs)
        # Where this class is the base of another one that was built, it is that one's turn.
        if next(each for each in type(self).__mro__ if "_built" in vars(each)) is learner:
            self.after_init()

    learner.__init__ = __init__
    learner._built = True


def _agent(whole: Any, name: str, changes: Mapping[str, Any]) -> Any:
    base = whole.agent
    methods: dict[str, Any] = {}
    if "action_fn" in changes:
        methods["act"] = _method(changes["action_fn"])
    if "postprocess_fn" in changes:
        methods["postprocess"] = _method(changes["postprocess_fn"])
    if "make_model" in changes:
        methods["make_model"] = _network_of(base, changes)
    bases = (*changes.get("agent_mixins", ()), base)
    if methods or len(bases) > 1:
        base = _class(f"{name}Agent", bases, {**methods, "__module__": whole.__module__})
    if "extra_action_fn" not in changes:
        return base
    return _with_extras(base, f"{name}Agent", changes["extra_action_fn"])


def _with_extras(base: Any, name: str, function: Callable[..., Any]) -> Any:
    def act(self: Any, obs: Any) -> Any:
        given = super(made, self).act(obs)
        if self.agent_mode is not AgentMode.training:
            return given
        actions, extras = given if isinstance(given, tuple) else (given, {})
        return actions, {**extras, **function(self, obs)}

    made = _class(name, (base,), {"act": act, "__module__": function.__module__})
    return made


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
    from surreal_like.replay.base import load_replay_class

    return load_replay_class({"replay": {"type": algorithm.replay}}).gives()


def _without_replay(whole: type[Any]) -> Callable[..., Config]:
    """Returns a `default_config` without settings of the base's kind of replay."""

    def default_config(cls: type[Any]) -> Config:
        base: Config = super(whole, cls).default_config()
        base["replay"] = {"type": cls.replay}
        return base

    return default_config


def _defaults(whole: type[Any], given: Mapping[str, Any]) -> Callable[..., Config]:
    inherited = whole.default_config.__func__

    def default_config(cls: type[Any]) -> Config:
        base: Config = inherited(cls)
        return Config(given).extend(base, abstract=True)

    return default_config
