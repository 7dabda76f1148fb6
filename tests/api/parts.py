"""The smallest agent, learner, replay and environment that an author could write."""

import random
from typing import Any

import numpy as np
import torch
from torch import nn

from session.config import Config
from surreal_like import Agent, Env, ExpTuple, Learner, TupleReplay, Wrapper


class MyAgent(Agent):
    """One linear layer, plain torch."""

    width = 2

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer = nn.Linear(4, self.width)

    def act(self, obs: Any) -> Any:
        return self.layer(obs).argmax(1)

    def module_dict(self) -> dict[str, nn.Module]:
        return {"layer": self.layer}

    @classmethod
    def default_config(cls) -> Config:
        return Config({"algo": {"learning_rate": 0.5}})


class WideAgent(MyAgent):
    """An agent whose network is not the learner's."""

    width = 3


class MyLearner(Learner):
    """Moves its layer towards the rewards."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.layer.parameters(), lr=0.01)

    def learn(self, batch: Any) -> dict[str, float]:
        loss = ((self.layer(batch.obs).sum(1) - batch.rewards) ** 2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": float(loss.detach())}

    def module_dict(self) -> dict[str, nn.Module]:
        return {"layer": self.layer}

    @classmethod
    def default_config(cls) -> Config:
        return MyAgent.default_config()


class MyReplay(TupleReplay):
    """A list of tuples."""

    def __init__(self, **configs: Any) -> None:
        super().__init__(**configs)
        self.memory: list[ExpTuple] = []

    def insert(self, exp_tuple: ExpTuple) -> None:
        self.memory.append(exp_tuple)
        del self.memory[: -self.learner_config.replay.capacity]

    def sample(self, batch_size: int) -> list[ExpTuple]:
        return random.choices(self.memory, k=batch_size)

    def start_sample_condition(self) -> bool:
        return len(self.memory) > 5

    def evict(self) -> int:
        gone = len(self.memory) // 2
        del self.memory[:gone]
        return gone


class MyEnv(Env):
    """Three steps of reward 1, then a termination."""

    metadata = {"author": "me", "limit": 3}  # noqa: RUF012
    obs_spec = {"type": "float32", "dim": [4]}  # noqa: RUF012
    action_spec = {"type": "discrete", "dim": [2]}  # noqa: RUF012

    def __init__(self, length: int = 3) -> None:
        self.length = length
        self.steps = 0

    def reset(self) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return self._look(), {"mood": 0.0}

    def step(self, action: int) -> Any:
        self.steps += 1
        return self._look(), 1.0, self.steps == self.length, False, {"mood": float(self.steps)}

    def _look(self) -> Any:
        return np.full(4, self.steps, np.float32)


class Doubled(Wrapper):
    """Rewards count twice."""

    metadata = {"limit": 6}  # noqa: RUF012

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        info["raw_reward"] = reward
        return obs, 2 * reward, terminated, truncated, info
