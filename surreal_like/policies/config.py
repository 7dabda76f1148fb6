"""The config of each policy of a run as if it were alone."""

from __future__ import annotations

from session.config import Config
from surreal_like.data.policy_names import learning_policies, opponent_of, policies_of


def policy_configs(config: Config) -> dict[str, Config]:
    """Returns the config of each policy that learns, by name, see :func:`policy_config`."""
    return {name: policy_config(config, name) for name in learning_policies(config)}


def policy_config(config: Config, policy: str) -> Config:
    """Returns the config of a policy as if it were alone; an opponent has that of its policy.

    Its environment has the specs of the policy's agents, and as many copies as it has streams; one,
    if its replay keeps whole unrolls, which come in chunks of any number of streams.

    Args:
        config: the resolved experiment.
        policy: name of the policy.
    """
    given = policies_of(config).get(policy)
    if not given:
        return config
    if (kind := opponent_of(given)) is not None:
        given = policies_of(config)[given[kind.key]]
    own = config.copy()
    del own["policies"]
    own["policy"] = policy
    own.algorithm = given.get("algorithm", config.algorithm)
    own.learner_config = given.get("learner_config", config.learner_config)
    own.session_config.sender = given.get("sender", config.session_config.sender)
    own.env_config.obs_spec, own.env_config.action_spec = given.obs_spec, given.action_spec
    # Not at the top: numpy would slow down commands that only plan a run.
    from surreal_like.replay.replay import load_replay_class

    unrolls = load_replay_class(own.learner_config).overlap
    streams = config.env_config.num_envs * len(given.agents)
    own.env_config.num_envs = 1 if unrolls else streams
    return own
