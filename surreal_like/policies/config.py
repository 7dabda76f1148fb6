"""The policies of a run: their agents, and the config of each as if it were alone."""

from __future__ import annotations

from session.config import Config
from surreal_like.data import policy_names


def policies_of(config: Config) -> dict[str, Config]:
    """Returns the policies of a resolved experiment by name; empty with a single agent."""
    found: dict[str, Config] = config.get("policies") or {}
    return found


def learning_policies(config: Config) -> list[str]:
    """Returns the names of the policies that learn, the first of which owns the run."""
    return policy_names.learning_policies(policies_of(config))


def opponents_of(config: Config) -> list[str]:
    """Returns the names of the policies that do not learn: fixed ones, and snapshots of others."""
    return [name for name, each in policies_of(config).items() if not policy_names.learns(each)]


def policy_configs(config: Config) -> dict[str, Config]:
    """Returns the config of each policy that learns, by name, see :func:`policy_config`."""
    return {name: policy_config(config, name) for name in learning_policies(config)}


def policy_config(config: Config, policy: str) -> Config:
    """Returns the config of a policy as if it were alone; snapshots have that of their policy.

    Its environment has the specs of the policy's agents, and as many copies as it has streams; one,
    if its replay keeps whole unrolls, which come in chunks of any number of streams.

    Args:
        config: the resolved experiment.
        policy: name of the policy.
    """
    given = policies_of(config).get(policy)
    if given is None:
        return config
    given = policies_of(config)[given.get("snapshots_of", policy)]
    own = Config({key: each for key, each in config.items() if key != "policies"}).copy()
    own.algorithm = given.get("algorithm", config.algorithm)
    own.learner_config = given.get("learner_config", config.learner_config)
    own.session_config.sender = given.get("sender", config.session_config.sender)
    own.env_config.obs_spec, own.env_config.action_spec = given.obs_spec, given.action_spec
    # Not at the top: numpy would slow down commands that only plan a run.
    from surreal_like.replay.base import load_replay_class

    unrolls = load_replay_class(own.learner_config).overlap
    streams = config.env_config.num_envs * len(given.agents)
    own.env_config.num_envs = 1 if unrolls else streams
    return own
