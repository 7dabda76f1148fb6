"""Algorithms built of functions, and the actor-critic that they usually begin with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from session.config.merge import quote
from session.errors import ConfigError
from surreal_like.agent.actor_critic_agent import ActorAgent
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.on_policy import ActorCriticLearner


class ActorCritic(Algorithm):
    """An actor-critic without a loss, for any actions; the usual base of `build_algorithm`."""

    agent = ActorAgent
    learner = ActorCriticLearner
    replay = "FIFOReplay"
    central_critic = True


def build_algorithm(
    name: str,
    loss_fn: Callable[..., Any] | None = None,
    *,
    base: type[Algorithm] = ActorCritic,
    **changes: Any,
) -> type[Algorithm]:
    """Returns a new algorithm: `base` with some parts replaced. All have a default.

    Args:
        name: name of the class, an identifier.
        loss_fn: `(learner, batch)` -> a scalar tensor, or a `Loss`.
        base: the algorithm whose other parts stay, such as `PPO`.
        changes: `execution_plan`: `(learner)` -> Flow. `default_config`: a mapping merged over the
            base's. `validate_config`: `(learner_config, env_config, session_config)`, raises
            ConfigError. `make_model`: `(learner_config, env_config)` -> the network of agent and
            learner. `action_fn`: `(agent, obs)` -> actions, or actions and extras.
            `extra_action_fn`: `(agent, obs)` -> extras, in training only. `postprocess_fn`:
            `(agent, chunk)` -> the chunk to send. `optimizer_fn`: `(learner)` -> an Optimizer, or
            name -> Optimizer. `gradients_fn`: `(learner, flat)` -> the gradients to use.
            `stats_fn`: `(learner, batch)` -> further metrics, after the loss of that batch.
            `before_init`, `before_loss_init`, `after_init`: `(learner)`, called once before the
            network, before the optimizers, and before the plan. `learner_mixins`, `agent_mixins`:
            classes before the base's. `replay`, `actions`, `bounded`, `session_config`, `agent`,
            `learner`: as of `Algorithm`.

    Raises:
        ConfigError: an unknown part, a name that is no identifier, a base that is no Algorithm, or
            a function that takes other arguments.
    """
    if not (isinstance(base, type) and issubclass(base, Algorithm)):
        raise ConfigError(f"base of {name} is {quote(base)}, expected a class such as PPO")
    return base.with_updates(name, **({} if loss_fn is None else {"loss_fn": loss_fn}), **changes)
