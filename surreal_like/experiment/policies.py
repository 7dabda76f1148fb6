"""Resolves the policies of an experiment: algorithms, settings, agents and their specs."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from session.addons import count_acting, load, opponents
from session.config.config import Config, keys_of
from session.config.constraints import check_values
from session.config.defaults import BASE_CONFIG
from session.config.merge import quote
from session.config.named_code import load_callable
from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from surreal_like.data.added_parts import AGENT_ID, STATE, agent_id_part, critic_parts
from surreal_like.data.policy_names import (
    DEFAULT_POLICY,
    learns,
    named_policies,
    opponent_of,
    policies_of,
)
from surreal_like.env.multi_agent import JointEnv, Specs, propose_policies
from surreal_like.env.registry import make_joint_env
from surreal_like.env.vector import VECTORS
from surreal_like.env.wrappers import WRAPPER_KEYS
from surreal_like.experiment.checkpoints import only_policy
from surreal_like.experiment.find import find_in, split_run
from surreal_like.experiment.trained import trained_folder
from surreal_like.policies.assignment import is_function
from surreal_like.policies.config import policy_config
from surreal_like.policies.fixed_policies import RANDOM, RUN, make_fixed

Defaults = Callable[[str], Config]

_NAME = re.compile(rf"(?!{DEFAULT_POLICY}$)[a-z][a-z0-9]{{0,15}}")
_KEYS = ("algorithm", "learner_config")
# Settings that only several agents have, and what leaves them out.
_MAPPINGS = ("policy_mapping", "eval_policy_mapping")
_SEVERAL: Mapping[str, Any] = {
    **{key: {} for key in _MAPPINGS},
    "observe_state": False,
    "agent_id": False,
    "team_reward": "own",
    "seats": "shuffled",
    "multi_agent_api": "auto",
}
_RESOLVED = ("agents", "eval_agents", "obs_spec", "action_spec", "sender")

# Settings of a single agent -> the value that they must have, and the remedy.
_SINGLE: Mapping[str, tuple[Any, str]] = MappingProxyType(
    {
        "env_config.frame_stack": (
            0,
            "with SuperSuit env_config.wrappers=['supersuit:frame_stack_v2'] stacks",
        ),
        **{f"env_config.{key}": (off, remedy) for key, (off, _, remedy) in WRAPPER_KEYS.items()},
        "env_config.info_keys": ([], "leave it out"),
        "learner_config.algo.synchronous": (False, "leave it out"),
    }
)


def add_policies(config: Config, user: Config, defaults: Defaults) -> None:
    """Adds the policies of an environment of several agents, and the specs of the first.

    Args:
        config: the experiment, resolved but for its policies.
        user: the settings of the user.
        defaults: returns the defaults of an algorithm.

    Raises:
        ConfigError: a policy, a mapping or a setting is wrong.
    """
    check_settings(config)
    env = config.env_config
    with contextlib.closing(make_joint_env(env)) as joint:
        config["policies"] = resolve_policies(config, user, joint, defaults)
    first = next(filter(learns, config.policies.values()))
    env.obs_spec, env.action_spec = first.obs_spec, first.action_spec


def check_policies(config: Config, wanted: Mapping[str, Any]) -> None:
    """Checks the policies of a resolved experiment.

    Args:
        config: the experiment.
        wanted: policies of the user.

    Raises:
        ConfigError: the environment has one agent, or a goal is of no policy that learns.
        ConfigError, UsageError, SpecError: a fixed policy cannot be built, see :func:`make_fixed`.
    """
    for name, each in policies_of(config).items():
        if "fixed" in each:
            make_fixed(name, each.fixed, policy_config(config, name), find_in(None))
        elif not each:
            check_single(config, wanted)
    learning = named_policies(config)
    if config.session_config.checkpoint.start_from:
        only_policy(config, "the experiment", "--from")
    for name in config.session_config.stop.eval_returns:
        if name not in learning:
            raise ConfigError(
                f"session_config.stop.eval_returns has {name!r}, which is no policy that learns: "
                f"there are {', '.join(learning) or 'none'}"
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
    if config.env_config.vector not in VECTORS:
        raise ConfigError(
            f"env_config.vector is {config.env_config.vector}, but {name} has several agents, "
            "which are stepped in the agent's process: leave it out, and set "
            "session_config.agent.num higher"
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
    env = config.env_config
    given = {f"env_config.{key} is": env[key] != usual for key, usual in _SEVERAL.items()}
    for what, is_set in {"policies are": policies, **given}.items():
        if is_set:
            raise ConfigError(f"{what} for several agents, but {env.env_name} has one: remove it")
    for name in critic_parts(env.obs_spec):
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
        for key in _MAPPINGS:
            if config.env_config[key]:
                raise ConfigError(
                    f"env_config.{key} names policies, but policies is empty, so that one policy "
                    "plays all agents: add them to policies, or remove this key"
                )
        return shared_policy(env, config.env_config)
    for name in given:
        _check_name(name)
    settings = {
        name: complete_policy(name, each, config, user, defaults) for name, each in given.items()
    }
    _check_opponents(settings)
    own, names = config.env_config, env.possible_agents
    agents = agents_by_policy(names, own.policy_mapping, settings, own)
    judged = agents
    if own.eval_policy_mapping:
        judged = agents_by_policy(names, own.eval_policy_mapping, settings, own, evaluation=True)
    for name, each in settings.items():
        # An opponent may play in evaluations only.
        if not agents[name] and (learns(each) or not judged[name]):
            raise ConfigError(
                f"policy {name} plays no agent: give it one in env_config.policy_mapping "
                f"(agents: {', '.join(names)})"
            )
    return {
        name: {**_describe(name, agents[name], judged[name], env, own), **settings[name]}
        for name in given
    }


def _describe(
    name: str, agents: list[str], judged: list[str], env: JointEnv, env_config: Config
) -> dict[str, Any]:
    """Returns the agents of a policy, and the specs that all of them have."""
    found: dict[str, Any] = {"agents": agents}
    if judged != agents:
        found["eval_agents"] = judged
    every = list(dict.fromkeys([*agents, *judged]))
    added = added_parts(env, env_config, every)
    by_agent = {agent: env.specs_of(agent, added) for agent in every}
    obs_spec, action_spec = check_same(by_agent, name)
    return {**found, "obs_spec": obs_spec, "action_spec": action_spec}


def _check_opponents(policies: Mapping[str, Mapping[str, Any]]) -> None:
    """Rejects opponents of a policy that does not learn, or that has one already."""
    learning = [name for name, each in policies.items() if learns(each)]
    if not learning:
        raise ConfigError(
            "no policy of policies learns: each is fixed, or plays parameters of another"
        )
    owners: dict[str, str] = {}
    for name, each in policies.items():
        kind = opponent_of(each)
        if kind is None:
            continue
        path, owner = f"policies.{name}.{kind.key}", each[kind.key]
        if owner not in learning:
            hint = did_you_mean(str(owner), learning, otherwise=f"use {', '.join(learning)}")
            raise ConfigError(f"{path} is {owner!r}, which is no policy that learns: {hint}")
        if owner in owners:
            raise ConfigError(
                f"{path} is {owner}, but policy {owners[owner]} plays {kind.title.format('it')} "
                "already: give the agents of both to one policy"
            )
        owners[owner] = name


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"policies has {name!r}, expected a name of a lower case letter and at most 15 further "
            f"lower case letters and digits, other than {DEFAULT_POLICY}"
        )


def complete_policy(
    name: str, given: Any, config: Config, user: Config, defaults: Defaults
) -> dict[str, Any]:
    """Returns the settings of a policy, completed by the defaults.

    One that learns has algorithm, `learner_config` and `sender`; without an algorithm those of the
    run, and the run's `learner_config` under its own. Others have `fixed`, or the keys of a kind of
    opponent.

    Raises:
        ConfigError: a key, a type or a value is wrong; the message has the path of the key.
    """
    path = f"policies.{name}"
    if not isinstance(given, Mapping):
        raise ConfigError(f"{path} is {quote(given)}, expected a mapping, such as {{}}")
    kinds = {"fixed": {"fixed": RANDOM}, **{each.key: load(each.keys) for each in opponents()}}
    kind = next((each for each in kinds if each in given), "")
    keys = list(kinds.get(kind, _KEYS))
    for key in given:
        if key not in keys and not ("agents" in given and key in _RESOLVED):
            every = [*_KEYS, *(each for own in kinds.values() for each in own)]
            if key in every:
                what = f"has {kind}, and so no {key}" if kind else f"learns, and so has no {key}"
                raise ConfigError(f"{path} {what}: leave one of the two out")
            hint = did_you_mean(str(key), every, otherwise=f"it may have {', '.join(keys)}")
            raise ConfigError(f"unknown key {path}.{key}: {hint}")
    if kind == "fixed":
        return {"fixed": _check_fixed(path, given["fixed"])}
    if kind:
        chosen = {key: given[key] for key in keys if key in given}
        return _complete_opponent(name, chosen, kinds[kind])
    own = Config(given.get("learner_config") or {})
    algorithm = given.get("algorithm", config.algorithm)
    if "algorithm" not in given:
        own = user.learner_config | own
    default = defaults(algorithm).extend(BASE_CONFIG, abstract=True)
    sender = given.get("sender") or user.session_config.get("sender") or {}
    mine = {"learner_config": own, "sender": sender}
    base = {"learner_config": default.learner_config, "sender": default.session_config.sender}
    complete = Config({"policies": {name: mine}}).extend({"policies": {name: base}}, strict=True)
    done = complete.policies[name]
    try:
        check_values(Config({"learner_config": done.learner_config}), keys_of(default))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return {"algorithm": algorithm, **done}


def _complete_opponent(
    name: str, given: Mapping[str, Any], keys: Mapping[str, Any]
) -> dict[str, Any]:
    base = Config({"policies": {name: keys}})
    complete = Config({"policies": {name: given}}).extend(base, strict=True)
    check_values(complete, keys_of(base))
    return dict(complete.policies[name])


def _check_fixed(path: str, fixed: Any) -> str:
    """Returns what a fixed policy is, with the folder of a run as an absolute path."""
    if not isinstance(fixed, str) or not (fixed == RANDOM or ":" in fixed):
        raise ConfigError(
            f"{path}.fixed is {quote(fixed)}, expected random, run:FOLDER or module:Class"
        )
    if fixed.startswith(RUN):
        place = fixed.removeprefix(RUN)
        folder, checkpoint, policy = split_run(place)
        if (found := trained_folder(folder)) is not None:
            # The unpacked code of a run has no trained policies.
            place = ":".join(filter(None, (str(found), checkpoint, policy)))
        # Its processes may have another folder.
        return RUN + os.path.abspath(place)
    return fixed


def agents_by_policy(
    agents: Sequence[str],
    mapping: Mapping[str, Any],
    policies: Mapping[str, Mapping[str, Any]],
    env_config: Config,
    *,
    evaluation: bool = False,
) -> dict[str, list[str]]:
    """Returns the agents that each policy may play, by the first pattern that fits.

    Args:
        agents: names of all agents.
        mapping: agent or pattern -> policy, list of policies, or function.
        policies: settings of all policies.
        env_config: section of the run, for the errors.
        evaluation: True for `eval_policy_mapping`.

    Raises:
        ConfigError: an agent has no policy, a pattern no agent, or a policy is unknown.
    """
    key = f"env_config.{'eval_' if evaluation else ''}policy_mapping"
    players = {pattern: _players(key, pattern, to, policies) for pattern, to in mapping.items()}
    for pattern in mapping:
        if not any(fnmatchcase(agent, pattern) for agent in agents):
            hint = did_you_mean(pattern, agents, otherwise=f"there are {', '.join(agents)}")
            raise ConfigError(f"{key} has {pattern!r}, which fits no agent: {hint}")
    found: dict[str, list[str]] = {name: [] for name in policies}
    for agent in agents:
        names = next((each for given, each in players.items() if fnmatchcase(agent, given)), None)
        if names is None:
            raise ConfigError(
                f"agent {agent} of {env_config.env_name} has no policy: add it, or a pattern such "
                f"as '*', to {key} (agents: {', '.join(agents)})"
            )
        for name in names:
            found[name].append(agent)
    return found


def _players(
    key: str, pattern: str, to: Any, policies: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Returns the policies that an entry of a mapping may choose."""
    if is_function(to):
        load_callable(to, f"{key} of {pattern}")
        return list(policies)
    names = [to] if isinstance(to, str) else to
    if not isinstance(names, list) or not names:
        raise ConfigError(
            f"{key} gives {pattern} to {quote(to)}, expected a policy, a list of policies or "
            "module:function"
        )
    for name in names:
        if name not in policies:
            hint = did_you_mean(f"{name}", policies, otherwise=f"there are {', '.join(policies)}")
            raise ConfigError(
                f"{key} gives {pattern} to policy {name!r}, which is not in policies: {hint}"
            )
    return list(dict.fromkeys(names))


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
    return {DEFAULT_POLICY: _describe(DEFAULT_POLICY, agents, agents, env, env_config)}


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
