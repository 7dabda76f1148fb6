"""stable-baselines3 with the settings that rl-baselines3-zoo publishes.

DQN and PPO on CartPole-v1, SAC and TD3 on Pendulum-v1.

python sb3.py SEED STARTED SECONDS dqn|ppo|sac|td3 [STEPS]

STARTED: when the process was started, seconds since 1970. SECONDS: the budget until both criteria
of a clock are met; 0: until the greedy one is met. STEPS: look at the policy every so many
environment steps, instead of every half second.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from clock import Clock
from criterion import CARTPOLE, PENDULUM, Act, Criterion
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise

# rl-baselines3-zoo, hyperparams/*.yml, CartPole-v1 and Pendulum-v1.
KINDS = {"dqn": DQN, "ppo": PPO, "sac": SAC, "td3": TD3}
TASKS = {"dqn": CARTPOLE, "ppo": CARTPOLE, "sac": PENDULUM, "td3": PENDULUM}
ENVS = {"dqn": 1, "ppo": 8, "sac": 1, "td3": 1}
TIMESTEPS = {"dqn": 50_000, "ppo": 100_000, "sac": 20_000, "td3": 20_000}
SETTINGS: dict[str, dict[str, Any]] = {
    "dqn": {
        "learning_rate": 2.3e-3,
        "batch_size": 64,
        "buffer_size": 100_000,
        "learning_starts": 1000,
        "gamma": 0.99,
        "target_update_interval": 10,
        "train_freq": 256,
        "gradient_steps": 128,
        "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04,
        "policy_kwargs": {"net_arch": [256, 256]},
    },
    "ppo": {
        "n_steps": 32,
        "batch_size": 256,
        "gae_lambda": 0.8,
        "gamma": 0.98,
        "n_epochs": 20,
        "ent_coef": 0.0,
        "learning_rate": lambda left: 1e-3 * left,
        "clip_range": lambda left: 0.2 * left,
    },
    "sac": {"learning_rate": 1e-3},
    "td3": {
        "gamma": 0.98,
        "buffer_size": 200_000,
        "learning_starts": 10_000,
        "action_noise": NormalActionNoise(np.zeros(1), 0.1 * np.ones(1)),
        "train_freq": (1, "episode"),
        "gradient_steps": -1,
        "learning_rate": 1e-3,
        "policy_kwargs": {"net_arch": [400, 300]},
    },
}


class Look(BaseCallback):  # type: ignore[misc]
    """Looks whenever new weights are about to act, and ends the training once it is over.

    Args:
        is_over: returns True for a model that needs no further training.
    """

    def __init__(self, is_over: Callable[[Any], bool]) -> None:
        super().__init__()
        self._is_over = is_over
        self._over = False

    def _on_rollout_start(self) -> None:
        self._over = self._is_over(self.model)

    def _on_step(self) -> bool:
        return not self._over


def greedy(model: Any) -> Act:
    """Returns the greedy policy of a model."""
    return lambda obs: model.predict(obs, deterministic=True)[0]


def main(seed: int, started: float, seconds: float, name: str, every_steps: int = 0) -> None:
    """Trains until the criterion is met or the published number of steps is used."""
    torch.set_num_threads(1)
    task = TASKS[name]
    env = make_vec_env(task.env_name, n_envs=ENVS[name], seed=seed)
    model = KINDS[name]("MlpPolicy", env, seed=seed, device="cpu", **SETTINGS[name])
    if seconds:
        clock = Clock(seed, started, seconds, plays=True)

        def is_over(model: Any) -> bool:
            returns = [episode["r"] for episode in model.ep_info_buffer]
            return clock.over(model.num_timesteps, returns, greedy(model))

        model.learn(TIMESTEPS[name], callback=Look(is_over))
        clock.report()
    else:
        criterion = Criterion(seed, started, task=task, every_steps=every_steps)
        look = Look(lambda model: criterion.look(greedy(model), model.num_timesteps))
        model.learn(TIMESTEPS[name], callback=look)
        criterion.report(model.num_timesteps)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[5:6]]
    main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), sys.argv[4], *numbers)
