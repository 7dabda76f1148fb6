"""Checks of an experiment whose environment is batched, before anything is started."""

from __future__ import annotations

from session.config import Config
from session.errors import ConfigError
from surreal_like.agent.evaluation import num_streams
from surreal_like.env.batched import FirstStream
from surreal_like.env.batched_names import takes_number
from surreal_like.env.environment import Env


def check_batched(config: Config, env: Env) -> None:
    """Rejects settings that do not go with a batched environment.

    Args:
        config: the experiment.
        env: a look at its environment.
    """
    if not isinstance(env, FirstStream):
        return
    name, own = config.env_config.env_name, env.vector.num_envs
    session = config.session_config
    evaluated = num_streams(session, session.stop.eval_episodes)
    for key, number, is_used in (
        ("env_config.num_envs", config.env_config.num_envs, True),
        ("session_config.evaluator.num_envs", evaluated, session.evaluator.num > 0),
    ):
        if is_used and number != own and not takes_number(config.env_config):
            raise ConfigError(
                f"{key} makes {number} copies, but {name} has {own} and takes no argument "
                f"num_envs: give its constructor one, or set {key} to {own}"
            )
    if env.vector.resets_in_step and config.learner_config.get("gradients_at") == "agent":
        raise ConfigError(
            f"learner_config.gradients_at is agent, but {name} resets within its step, so that "
            "unrolls begin at different times: set it to learner, or let it reset at the next step"
        )
