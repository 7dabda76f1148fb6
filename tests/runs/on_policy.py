"""Traffic as on-policy learning makes it: random actions, and a learner that only looks closely."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from session.config import Config
from surreal_like.agent.agent import Agent
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.data.batch import Batch
from surreal_like.learner.learner import Learner

MODULE = "tests.runs.on_policy"


class Looking(Learner):
    """Counts what it is given; each update makes a version.

    ``learner_config.algo.seconds`` is how long an update takes.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer = torch.nn.Linear(1, 1)
        self.rows = self.replayed = self.most_lag = 0

    @classmethod
    def default_config(cls) -> Config:
        return Config({"algo": {"seconds": 0.0}})

    def module_dict(self) -> Mapping[str, torch.nn.Module]:
        return {"layer": self.layer}

    def learn(self, batch: Batch) -> dict[str, int]:
        fresh = batch.version[:, ~batch.replayed]
        self.rows += fresh.numel()
        self.replayed += batch.version.numel() - fresh.numel()
        self.most_lag = max(self.most_lag, self.version - int(fresh.min()))
        time.sleep(self.learner_config.algo.seconds)
        return {"rows": self.rows, "replayed": self.replayed, "most_lag": self.most_lag}


class Random(Agent):
    """Acts at random, and knows the version that it acts with."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer = torch.nn.Linear(1, 1)

    def module_dict(self) -> Mapping[str, torch.nn.Module]:
        return {"layer": self.layer}

    def act(self, obs: Any) -> Any:
        return self.rng.integers(0, 2, len(obs)).astype(np.int64)


class Traffic(Algorithm):
    """On-policy in its traffic, and in nothing else."""

    agent = Random
    learner = Looking
    replay = "FIFOReplay"
