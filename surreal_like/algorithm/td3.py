"""TD3: DDPG with two critics, smoothed targets, and a policy that is updated less often.

Fujimoto et al. 2018, Addressing Function Approximation Error in Actor-Critic Methods.
"""

from __future__ import annotations

from session.config import Config
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.continuous import MODEL_CONFIG, REPLAY_CONFIG, SESSION_CONFIG
from surreal_like.algorithm.ddpg import ALGO_CONFIG, DDPGAgent, DDPGLearner


def default_config() -> Config:
    """Returns the defaults that agent and learner add to `learner_config`."""
    return Config(
        {
            "algo": ALGO_CONFIG | {"twin": True, "policy_delay": 2, "target_noise": 0.2},
            "model": MODEL_CONFIG,
            "replay": REPLAY_CONFIG,
        }
    )


class TD3Agent(DDPGAgent):
    """The agent of DDPG."""

    @classmethod
    def default_config(cls) -> Config:
        return default_config()


class TD3Learner(DDPGLearner):
    """The learner of DDPG, with other defaults."""

    @classmethod
    def default_config(cls) -> Config:
        return default_config()


class TD3(Algorithm):
    """Twin delayed deep deterministic policy gradient, for continuous actions within bounds."""

    agent = TD3Agent
    learner = TD3Learner
    session_config = SESSION_CONFIG
    actions = ("continuous",)
    bounded = True
