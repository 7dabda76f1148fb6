"""The base of algorithms that learn a policy and its values from unrolls; its loss is missing."""

from __future__ import annotations

from surreal_like.agent.actor import ActorAgent
from surreal_like.algorithm.base import Algorithm
from surreal_like.algorithm.on_policy import ActorCriticLearner


class ActorCritic(Algorithm):
    """An actor-critic without a loss, for any actions; the usual base of `build_algorithm`."""

    agent = ActorAgent
    learner = ActorCriticLearner
    replay = "FIFOReplay"
