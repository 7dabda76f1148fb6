"""Base class that combines an agent and a learner to one algorithm."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from session.config import Config
from session.config.config import adopt_keys
from session.config.merge import join, quote, spell_out
from session.config.placeholder import is_unresolved
from session.errors import ConfigError
from surreal_like.algorithm.catalog import describe_algorithms
from surreal_like.algorithm.changes import extend_algorithm
from surreal_like.errors import SpecError

if TYPE_CHECKING:
    from surreal_like.agent.agent import Agent
    from surreal_like.learner.learner import Learner

_WHAT = {
    "rows": "single rows",
    "unrolls": "whole unrolls",
    "sequences": "sequences of episodes",
}


class Algorithm:
    """Names the classes of an algorithm; it is never instantiated and starts nothing.

    Example::

        class Bandit(Algorithm):
            agent = BanditAgent
            learner = BanditLearner
    """

    agent: ClassVar[type[Agent]]
    learner: ClassVar[type[Learner]]
    # Location of the Replay as text: the replay process must not load this file to find it.
    replay: ClassVar[str] = "UniformReplay"
    # Supported types of action spec.
    actions: ClassVar[tuple[str, ...]] = ("discrete", "multi_discrete", "continuous")
    # If True, continuous actions must have finite bounds on all sides.
    bounded: ClassVar[bool] = False
    # If True, agents send values of actions where `replay.priority.initial` is acting.
    sends_values: ClassVar[bool] = False
    # If True, its value functions may see parts of observations that its policy does not see.
    central_critic: ClassVar[bool] = False
    # Values that replace defaults of `learner_config` and `session_config`, with the same nesting.
    learner_config: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    session_config: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    # If True, the defaults of learner and agent are of another kind of replay.
    other_replay: ClassVar[bool] = False

    @classmethod
    def default_config(cls) -> Config:
        """Returns the defaults of `learner_config`: the learner's, the agent's, and the Replay.

        Raises ConfigError if agent and learner contradict each other. If only one of them is
        defined in the algorithm's module, the other is a base class, and its values give way.
        """
        config = _combine(cls)
        replay = {} if cls.other_replay else config.get("replay", {})
        config["replay"] = Config({"type": cls.replay}) | replay
        return Config(cls.learner_config).extend(config, abstract=True)

    @classmethod
    def check(
        cls,
        obs_spec: Mapping[str, Any],
        action_spec: Mapping[str, Any],
        *,
        env_name: str = "the environment",
    ) -> None:
        """Raises SpecError, in one line with both sides, if the specs are not supported."""
        # Not at the top: the import of numpy would slow down commands that only list algorithms.
        from surreal_like.data.added_parts import critic_parts
        from surreal_like.data.masks import check_mask
        from surreal_like.data.spec import is_bounded, parse_action_spec, parse_obs_spec

        parse_obs_spec(obs_spec)
        spec = parse_action_spec(action_spec)
        if spec.type not in cls.actions:
            raise SpecError(
                f"{cls.__name__} needs {' or '.join(cls.actions)} actions,"
                f" but {env_name} has {spec.type} {list(spec.dim)}: "
                f"try {_fitting(spec.type, bounded=is_bounded(spec.array))}"
            )
        check_mask(obs_spec, action_spec, env_name, stacks=True)
        if critic_parts(obs_spec) and not cls.central_critic:
            able = [name for name, each in describe_algorithms().items() if each.central_critic]
            raise SpecError(
                f"{cls.__name__} has no value function that sees more than its policy, as "
                f"env_config.observe_state needs: set it to false, or try {_or(able)}"
            )
        if cls.bounded and not is_bounded(spec.array):
            low, high = action_spec.get("low"), action_spec.get("high")
            raise SpecError(
                f"{cls.__name__} needs continuous actions within finite bounds, but {env_name} has "
                f"{list(spec.dim)} from {low} to {high}: bound them in a wrapper, or in "
                "env_config.action_spec"
            )

    @classmethod
    def validate_config(
        cls, learner_config: Config, env_config: Config, session_config: Config
    ) -> None:
        """Raises ConfigError for settings that do not fit each other; called before a run."""

    @classmethod
    def with_updates(cls, name: str | None = None, **changes: Any) -> type[Algorithm]:
        """Returns a new algorithm that is this one but for some parts; see `build_algorithm`.

        Args:
            name: name of the new class; None: that of this one.
            changes: as of `build_algorithm`.

        Raises:
            ConfigError: an unknown part, or a function that takes other arguments.
        """
        name = cls.__name__ if name is None else name
        made: type[Algorithm] = extend_algorithm(cls, name, changes)
        return made

    @classmethod
    def check_replay(cls, learner_config: Mapping[str, Any]) -> None:
        """Raises ConfigError, with both sides, if the configured replay does not fit.

        Some kinds of replay give single rows, others whole unrolls or sequences, time
        first. The algorithm needs the batches of the kind named in its own `replay`. First
        priorities by acting need agents that send values, and a replay that reads them.
        """
        from surreal_like.replay.replay import load_replay_class

        wanted = load_replay_class({"replay": {"type": cls.replay}})
        given = load_replay_class(learner_config)
        # Gradients are made of unrolls.
        kinds = [_WHAT["unrolls" if each.overlap else each.gives()] for each in (wanted, given)]
        if kinds[0] != kinds[1]:
            raise ConfigError(
                f"{cls.__name__} learns from {kinds[0]}, as {wanted.__name__} gives, "
                f"but learner_config.replay.type is {given.__name__}, which gives {kinds[1]}"
            )
        priority = (learner_config.get("replay") or {}).get("priority") or {}
        if priority.get("initial") == "acting" and not (cls.sends_values and given.reads_values):
            reason = (
                f"{given.__name__} has no such priorities"
                if cls.sends_values
                else f"agents of {cls.__name__} send no values of actions"
            )
            raise ConfigError(
                f"learner_config.replay.priority.initial is acting, but {reason}: set it to "
                "highest, or use dqn with PrioritizedReplay"
            )


def _fitting(action_type: str, *, bounded: bool) -> str:
    """Returns the names of the registered algorithms that support such actions."""
    found = [
        name
        for name, known in describe_algorithms().items()
        if action_type in known.actions and (bounded or not known.bounded)
    ]
    return _or(found)


def _or(names: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def defaults_of(owner: type[Any]) -> Config:
    """Returns `default_config()` of an agent, a learner or an algorithm, as a new Config.

    Raises ConfigError if it is an instance method, or returns no mapping.
    """
    name = f"{owner.__name__}.default_config()"
    if not isinstance(inspect.getattr_static(owner, "default_config"), classmethod | staticmethod):
        raise ConfigError(f"{name} is an instance method: make it a classmethod")
    given = owner.default_config()
    if not isinstance(given, Mapping):
        raise ConfigError(f"{name} gives {quote(given)}, expected a Config or a dict")
    return Config(given)


def session_defaults_of(algorithm: type[Algorithm]) -> Config:
    """Returns the `session_config` of an algorithm, as a new Config.

    Raises ConfigError if it holds an unknown key or a value of the wrong type.
    """
    name = f"{algorithm.__name__}.session_config"
    if not isinstance(algorithm.session_config, Mapping):
        raise ConfigError(f"{name} is {quote(algorithm.session_config)}, expected a dict")
    # Only here: the defaults have the keys of all add-ons.
    from session.config.defaults import BASE_SESSION_CONFIG

    given = Config(algorithm.session_config)
    default = Config({"session_config": BASE_SESSION_CONFIG})
    try:
        Config({"session_config": given}).extend(default, strict=True)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
    return given


def _combine(algorithm: type[Algorithm]) -> Config:
    """Returns the defaults of the learner, extended by those of the agent."""
    first, second = algorithm.learner, getattr(algorithm, "agent", None)
    if second is None:
        return defaults_of(first)
    here = [each.default_config.__module__ == algorithm.__module__ for each in (first, second)]
    owners: tuple[type[Any], type[Any]] = (
        (second, first) if here == [False, True] else (first, second)
    )
    given = tuple(map(defaults_of, owners))
    one, other = Config(spell_out(*given)), Config(spell_out(*reversed(given)))
    names = (owners[0].__name__, owners[1].__name__) if here[0] == here[1] else None
    combined = Config(_merge(one, other, names, ""))
    for each in given:
        adopt_keys(combined, each)
    return combined


def _merge(
    one: Mapping[str, Any], other: Mapping[str, Any], names: tuple[str, str] | None, path: str
) -> dict[str, Any]:
    """Merges the entries of both; `names`: of the classes that must not contradict each other."""
    merged = dict(one)
    for key, value in other.items():
        mine, inner = merged.setdefault(key, value), join(path, key)
        if isinstance(mine, dict) and isinstance(value, dict):
            merged[key] = _merge(mine, value, names, inner)
        elif is_unresolved(mine) and not is_unresolved(value):
            merged[key] = value
        elif names and mine != value and not is_unresolved(value):
            raise ConfigError(
                f"learner_config.{inner} is {quote(mine)} in {names[0]}.default_config() and "
                f"{quote(value)} in {names[1]}.default_config(): write it in one of them"
            )
    return merged
