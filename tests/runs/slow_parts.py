"""Parts that are slow on purpose, each a file's own as a user would write it."""

from __future__ import annotations

import time
from typing import Any

from surreal_like.agent.agent import AgentMode
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.dqn import DQNAgent, DQNLearner
from surreal_like.data.batch import Batch
from surreal_like.env.environment import Step
from surreal_like.env.toy import Bandit


class SlowEnv(Bandit):
    """Takes 5 ms for a step."""

    def step(self, action: int) -> Step:
        time.sleep(0.005)
        return super().step(action)


class _SlowLearner(DQNLearner):
    def learn(self, batch: Batch) -> Any:
        time.sleep(0.02)
        return super().learn(batch)


class _FastLearner(DQNLearner):
    """Does nothing, so that any way to it is too slow."""

    def learn(self, batch: Batch) -> Any:
        return {"loss": 0.0}


class _OneSlowAgent(DQNAgent):
    def act(self, obs: Any) -> Any:
        if self.agent_mode is AgentMode.training and self.agent_id == 1:
            time.sleep(0.02)
        return super().act(obs)


class _SlowEvaluator(DQNAgent):
    def act(self, obs: Any) -> Any:
        if self.agent_mode is not AgentMode.training:
            time.sleep(0.1)
        return super().act(obs)


class SlowLearner(Algorithm):
    """DQN with a learner that takes 20 ms more for an update."""

    agent, learner, actions = DQNAgent, _SlowLearner, ("discrete",)


class FastLearner(Algorithm):
    """DQN whose learner takes no time."""

    agent, learner, actions = DQNAgent, _FastLearner, ("discrete",)


class OneSlowAgent(Algorithm):
    """DQN whose agent 1 takes 20 ms more for an action."""

    agent, learner, actions = _OneSlowAgent, DQNLearner, ("discrete",)


class SlowEvaluator(Algorithm):
    """DQN whose evaluators take 100 ms more for an action."""

    agent, learner, actions = _SlowEvaluator, DQNLearner, ("discrete",)
