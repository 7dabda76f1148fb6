"""Resolves the policies of an experiment: algorithms, settings, agents and their specs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from session.addons import count_acting
from session.config.config import Config, keys_of
from session.config.constraints import check_values
from session.config.defaults import BASE_CONFIG
from session.config.merge import quote
from session.errors import ConfigError, did_you_mean
from surreal_like.data.added_parts import AGENT_ID, STATE, agent_id_part, critic_parts
from surreal_like.data.policy_names import DEFAULT_POLICY
from surreal_like.env.joint import JointEnv, Specs, propose_policies

Defaults = Callable[[str], Config]

_NAME = re.compile(r"[a-z][a-z0-9]{0,15}")
_KEYS = ("algorithm", "learner_config")
# Settings that only several agents have.
_SEVERAL = ("observe_state", "agent_id", "team_reward")
_COMPLETE = (*_KEYS, "agents", "obs_spec", "action_spec", "sender")

# Settings of a single agent -> the value that they must have, and the remedy.
_SINGLE: Mapping[str, tuple[Any, str]] = MappingProxyType(
    {
        "env_config.frame_stack": (0, "supersuit.frame_stack_v2 in env_config.wrappers stacks"),
        "env_config.action_repeat": (1, "supersuit.frame_skip_v0 in env_config.wrappers repeats"),
        "env_config.obs_keys": ([], "a wrapper of PettingZoo can leave parts out"),
        "env_config.info_keys": ([], "leave it out"),
        "env_config.metric_keys": ([], "leave it out"),
        "learner_config.algo.synchronous": (False, "leave it out"),
    }
)


def check_settings(config: Config) -> None:
    """Rejects settings that an environment of several agents does not have.

    Args:
        config: the experiment.

    Raises:
        ConfigError: names the setting, and the remedy.
    """
    name = config.env_config.env_name
    for path, (wanted, remedy) in _SINGLE.items():
        section, *keys = path.split(".")
        value: Any = config[section]
        for key in keys:
            value = value.get(key, wanted) if isinstance(value, Mapping) else wanted
        if value and value != wanted:
            raise ConfigError(
                f"{path} is {value}, but {name} has several agents, for which it is not made: "
                f"{remedy}"
            )
    if config.env_config.vector == "process":
        raise ConfigError(
            f"env_config.vector is process, but {name} has several agents, which are stepped in "
            "the agent's process: leave it out, and set session_config.agent.num higher"
        )
    if count_acting(config.session_config) > config.session_config.agent.num:
        raise ConfigError(
            f"{name} has several agents, which clients of a gateway cannot play: set "
            "session_config.gateway.num to 0"
        )


def check_single(config: Config, policies: object) -> None:
    """Rejects settings of several agents in an experiment with one.

    Args:
        config: the experiment, with its specs.
        policies: the section `policies` of the user.

    Raises:
        ConfigError: names the setting.
    """
    given = {f"env_config.{key}": config.env_config[key] for key in _SEVERAL}
    for path, value in {"policies": policies, **given}.items():
        if value and value != "own":
            verb = "are" if path == "policies" else "is"
            raise ConfigError(
                f"{path} {verb} for several agents, but {config.env_config.env_name} has one: "
                "remove it"
            )
    for name in critic_parts(config.env_config.obs_spec):
        raise ConfigError(
            f"env_config.obs_spec.{name} is critic_only, as only env_config.observe_state of "
            "several agents makes a part: remove this key"
        )


def resolve_policies(
    config: Config, user: Config, env: JointEnv, defaults: Defaults
) -> dict[str, Any]:
    """Returns the policies of an experiment, complete, with their agents and specs.

    Args:
        config: the experiment, resolved but for its policies.
        user: the settings of the user.
        env: one copy of the environment.
        defaults: returns the defaults of an algorithm.

    Raises:
        ConfigError: a policy, a mapping or a setting is wrong.
    """
    given: Mapping[str, Any] = user.get("policies") or {}
    # A run that is resumed has its policies complete.
    if not given or "agents" in (given.get(DEFAULT_POLICY) or {}):
        return shared_policy(env, config.env_config)
    for name in given:
        _check_name(name)
    agents = agents_by_policy(
        env.possible_agents, config.env_config.policy_mapping, list(given), config.env_config
    )
    found = {}
    for name, each in given.items():
        added = added_parts(env, config.env_config, agents[name])
        specs = check_same({agent: env.specs_of(agent, added) for agent in agents[name]}, name)
        own = complete_policy(name, each, config, user, defaults)
        parts = {"agents": agents[name], "obs_spec": specs[0], "action_spec": specs[1]}
        found[name] = {**parts, **own}
    return found


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name == DEFAULT_POLICY:
        raise ConfigError(
            f"policies has {name!r}, expected a name of a lower case letter and at most 15 further "
            f"lower case letters and digits, other than {DEFAULT_POLICY}"
        )


def complete_policy(
    name: str, given: Any, config: Config, user: Config, defaults: Defaults
) -> dict[str, Any]:
    """Returns algorithm, `learner_config` and `sender` of a policy, completed by the defaults.

    A policy without an algorithm has that of the run, and the run's `learner_config` under its own.

    Raises:
        ConfigError: a key, a type or a value is wrong; the message has the path of the key.
    """
    path = f"policies.{name}"
    if not isinstance(given, Mapping):
        raise ConfigError(f"{path} is {quote(given)}, expected a mapping, such as {{}}")
    for key in given:
        if key not in (_KEYS if "agents" not in given else _COMPLETE):
            hint = did_you_mean(str(key), _KEYS, otherwise=f"it may have {', '.join(_KEYS)}")
            raise ConfigError(f"unknown key {path}.{key}: {hint}")
    own = Config(given.get("learner_config") or {})
    algorithm = given.get("algorithm", config.algorithm)
    if "algorithm" not in given:
        own = user.learner_config | own
    default = defaults(algorithm).extend(BASE_CONFIG, abstract=True)
    sender = given.get("sender") or user.session_config.get("sender") or {}
    mine = {"learner_config": own, "sender": sender}
    base = {"learner_config": default.learner_config, "sender": default.session_config.sender}
    whole = Config({"policies": {name: mine}}).extend({"policies": {name: base}}, strict=True)
    done = whole.policies[name]
    try:
        check_values(Config({"learner_config": done.learner_config}), keys_of(default))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return {"algorithm": algorithm, **done}


def agents_by_policy(
    agents: Sequence[str],
    mapping: Mapping[str, str],
    policies: Sequence[str],
    env_config: Config,
) -> dict[str, list[str]]:
    """Returns the agents that each policy plays, by the first pattern that fits.

    Args:
        agents: names of all agents.
        mapping: `env_config.policy_mapping`, agent or pattern -> policy.
        policies: names of all policies.
        env_config: section of the run, for the errors.

    Raises:
        ConfigError: an agent has no policy, a policy no agent, or a policy is unknown.
    """
    for pattern, policy in mapping.items():
        if policy not in policies:
            hint = did_you_mean(str(policy), policies, otherwise=f"there are {', '.join(policies)}")
            raise ConfigError(
                f"env_config.policy_mapping gives {pattern} to policy {policy!r}, which is not in "
                f"policies: {hint}"
            )
    found: dict[str, list[str]] = {name: [] for name in policies}
    for agent in agents:
        owner = next((each for key, each in mapping.items() if fnmatchcase(agent, key)), None)
        if owner is None:
            raise ConfigError(
                f"agent {agent} of {env_config.env_name} has no policy: add it, or a pattern such "
                f"as '*', to env_config.policy_mapping (agents: {', '.join(agents)})"
            )
        found[owner].append(agent)
    for policy, each in found.items():
        if not each:
            raise ConfigError(
                f"policy {policy} plays no agent: give it one in env_config.policy_mapping "
                f"(agents: {', '.join(agents)})"
            )
    return found


def added_parts(env: JointEnv, env_config: Config, agents: Sequence[str]) -> dict[str, Any]:
    """Returns the specs of the parts that a config adds to the observations of a policy.

    Args:
        env: the environment.
        env_config: section of the run.
        agents: agents of the policy.

    Raises:
        ConfigError: the environment has no state that could be added.
    """
    added = {AGENT_ID: agent_id_part(agents)} if env_config.agent_id else {}
    if env_config.observe_state:
        added[STATE] = env.state_spec(env_config.env_name)
    return added


def shared_policy(env: JointEnv, env_config: Config) -> dict[str, Any]:
    """Returns the one policy that plays all agents of an environment.

    Args:
        env: the environment.
        env_config: section of the run.

    Raises:
        ConfigError: the environment does not name its agents, or their specs differ.
    """
    agents = env.possible_agents
    if not agents:
        raise ConfigError(
            f"environment {env_config.env_name} has no `possible_agents`: name its agents by "
            "patterns in env_config.policy_mapping"
        )
    added = added_parts(env, env_config, agents)
    by_agent = {agent: env.specs_of(agent, added) for agent in agents}
    obs_spec, action_spec = check_same(by_agent, DEFAULT_POLICY)
    return {DEFAULT_POLICY: {"agents": agents, "obs_spec": obs_spec, "action_spec": action_spec}}


def check_same(by_agent: Mapping[str, Specs], policy: str) -> Specs:
    """Returns the specs that all agents of a policy have.

    Raises:
        ConfigError: two agents differ; the message has both, and what to write.
    """
    first, *others = by_agent
    for other in others:
        if by_agent[other] != by_agent[first]:
            names = ("observation spec", "action spec")
            pairs = zip(names, by_agent[first], by_agent[other], strict=True)
            differ = "; ".join(
                f"{name} {one} of {first}, {two} of {other}"
                for name, one, two in pairs
                if one != two
            )
            raise ConfigError(
                f"policy {policy} plays agents with different specs: {differ}. Write "
                f"{propose_policies(by_agent)}"
            )
    return by_agent[first]
