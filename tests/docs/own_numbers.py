"""What a user might write: an environment, an agent and a learner that report numbers of theirs."""

import math
from typing import Any

import torch

from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.dqn import DQNAgent, DQNLearner
from surreal_like.data.batch import Batch
from surreal_like.env.environment import Info, Step
from surreal_like.env.toy import Bandit


class Scored(Bandit):
    """Scores 2 in every second episode, 6 in the others, so 4 on average; knows luck rarely."""

    def __init__(self, arms: int = 4) -> None:
        super().__init__(arms)
        self.episodes = 0

    def reset(self) -> tuple[Any, Info]:
        self.episodes += 1
        return super().reset()

    def step(self, action: int) -> Step:
        obs, reward, terminated, truncated, info = super().step(action)
        luck = float(self.episodes) if self.episodes % 3 == 0 else math.nan
        info["metrics"] = {"my/score": 2.0 + 4.0 * (self.episodes % 2), "my/luck": luck}
        return obs, reward, terminated, truncated, info


class ReportingAgent(DQNAgent):
    """Counts what it was asked; two reports, of which neither may hide the other."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.asked = 0

    def act(self, obs: Any) -> Any:
        self.asked += 1
        self.update_tensorplex({"my/asked": self.asked})
        self.update_tensorplex({"my/parity": torch.tensor(self.asked % 2)})
        return super().act(obs)


class ReportingLearner(DQNLearner):
    """Reports how many batches it has seen."""

    def learn(self, batch: Batch) -> Any:
        self.update_tensorplex({"my/batches": self.iteration + 1.0})
        return super().learn(batch)


class Reporting(Algorithm):
    """DQN with numbers of its own."""

    agent = ReportingAgent
    learner = ReportingLearner
    actions = ("discrete",)
