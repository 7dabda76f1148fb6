"""The default configs: every setting there is, with its meaning, unit and default value.

A user's file contains only differences. A value must be of the same kind as its default. None
accepts anything, unless the Key says more; `{}` accepts any keys; a placeholder such as `_str_`
must be replaced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from session.addons import add_ons, collect, list_sinks, load
from session.config.config import Config
from session.config.key import FROM_0, FROM_1, Idle, Key, section
from session.config.learner_defaults import LEARNER_KEYS
from session.config.session_defaults import SESSION_KEYS

__all__ = [
    "BASE_CONFIG",
    "BASE_ENV_CONFIG",
    "BASE_LEARNER_CONFIG",
    "BASE_SESSION_CONFIG",
]


def _with_add_ons(name: str, keys: dict[str, Key]) -> Config:
    """Returns a part of the config, with the keys that add-ons declare for it.

    Args:
        name: name of the part, such as ``session_config``.
        keys: key -> Key of the core; its sections are extended in place.
    """
    for each in add_ons().values():
        for path, home in each.keys.items():
            part, *sections, last = path.split(".")
            if part == name:
                place: dict[str, Any] = keys
                for inner in sections:
                    place = place[inner].default
                place[last] = load(home)
    return Config(keys)


_ONE_POLICY = Idle("policies", ({},))
_METRICS = SESSION_KEYS["tensorplex"].default
_METRICS["sinks"] = replace(_METRICS["sinks"], one_of=tuple(list_sinks()))
BASE_LEARNER_CONFIG = _with_add_ons("learner_config", LEARNER_KEYS)
BASE_SESSION_CONFIG = _with_add_ons("session_config", SESSION_KEYS)
BASE_ENV_CONFIG = _with_add_ons(
    "env_config",
    {
        "env_name": Key(
            "_str_", "Environment: gym:CartPole-v1, or the dotted path module.path:Class."
        ),
        "env_args": Key({}, "Keyword arguments of the environment's constructor."),
        "num_envs": Key(8, "Environments in one agent.", unit="streams", within=FROM_1),
        "vector": Key(
            "native",
            "native: the environments' own vector code; sync: one after the other; process: in "
            "worker processes.",
            one_of=("native", "sync", *collect("vectors")),
        ),
        "obs_keys": Key([], "Keys of a dict observation that are used; empty: all."),
        "wrappers": Key(
            [],
            "Wrappers of each environment, the innermost first: dotted paths, or {wrapper, args}.",
        ),
        "limit_episode_length": Key(
            None,
            "Length at which an episode is truncated; None, 0 or negative: never.",
            unit="steps",
        ),
        "action_repeat": Key(
            1, "Number of times the environment repeats each action.", unit="frames", within=FROM_1
        ),
        "frame_stack": Key(
            0,
            "Newest observations stacked on a new first axis; 0 or 1: one.",
            unit="frames",
            within=FROM_0,
        ),
        "clip_action": Key(
            True, "Clip actions to their bounds; otherwise an action outside is an error."
        ),
        "info_keys": Key([], "Keys of the environment's info that are sent with experience."),
        "metric_keys": Key(
            [],
            "Keys of the info of an episode's last step whose numbers are metrics of the episode.",
        ),
        "reward_range": Key(
            None,
            "Lowest and highest reward that joined machines and clients of gateways may send; "
            "None: -1e6 and 1e6.",
            optional="_list_",
        ),
        "obs_spec": Key(
            {},
            "Type and shape of stacked observations, checked; empty: taken from the environment.",
        ),
        "action_spec": Key(
            {}, "Type and shape of actions, checked; empty: taken from the environment."
        ),
        "multi_agent_api": Key(
            "auto",
            "Interface of an environment of several agents; auto: parallel where it has both.",
            one_of=("auto", "parallel", "aec"),
        ),
        "policy_mapping": Key(
            {},
            "Agent, or pattern such as player_*, and the policy that plays it, a list of policies "
            "to assign, or module:function; the first that fits counts.",
            idle=_ONE_POLICY,
        ),
        "eval_policy_mapping": Key(
            {}, "The same for evaluations; empty: policy_mapping.", idle=_ONE_POLICY
        ),
        "seats": Key(
            "shuffled",
            "Order in which a list of policies is assigned to the agents in each episode.",
            one_of=("shuffled", "fixed"),
            idle=_ONE_POLICY,
        ),
        "observe_state": Key(
            False,
            "Value functions also see the state of an environment of several agents.",
        ),
        "agent_id": Key(
            False,
            "Observations have the part agent_id, a one-hot of the agent among those of its "
            "policy.",
        ),
        "team_reward": Key(
            "own",
            "Reward of an agent's row: its own, or the sum or mean of those of all living agents.",
            one_of=("own", "sum", "mean"),
        ),
        "on_error": Key(
            "fail",
            "An error of an environment ends the component (fail), or only the episode, and the "
            "environment is made anew (restart).",
            one_of=("fail", "restart"),
        ),
        "max_env_restarts": Key(
            10,
            "Restarts in 10 minutes, of all environments of one component, after which an error "
            "ends it.",
            unit="restarts",
            within=FROM_0,
            idle=Idle("on_error", ("fail",)),
        ),
        "eval_mode": Key({}, "Entries that replace those of env_args during evaluation."),
    },
)

# Defaults of a whole experiment; a user's file is extended by them and the algorithm's defaults.
BASE_CONFIG = Config(
    {
        "algorithm": Key(
            "_str_", "Registry name, dotted path package.module:Class, or path of a file."
        ),
        "learner_config": section(
            "Learning: networks, hyperparameters, replay. Algorithms add their own keys.",
            BASE_LEARNER_CONFIG,
        ),
        "policies": Key(
            {},
            "Policies of several agents, by name: algorithm and learner_config, where they differ "
            "from those of the run; or the keys of an opponent. Empty: one policy for all.",
        ),
        "policies_plan": Key(
            None,
            "Function that gives the dataflow of training of all policies, called with their "
            "learners by policy; null: the plan of each in turn.",
            optional="_str_",
            idle=_ONE_POLICY,
        ),
        "env_config": section("The environment that agents and evaluators step.", BASE_ENV_CONFIG),
        "session_config": section(
            "Processes, files and the network; these settings do not change what the learner "
            "computes.",
            BASE_SESSION_CONFIG,
            within=FROM_0,
        ),
    }
)
