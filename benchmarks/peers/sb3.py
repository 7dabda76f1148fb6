"""stable-baselines3 with the settings that rl-baselines3-zoo publishes.

DQN and PPO on CartPole-v1, SAC and TD3 on Pendulum-v1. The last argument: look at the policy every
so many environment steps, instead of every half second.

python sb3.py dqn|ppo|sac|td3 SEED [SECONDS SINCE 1970 AT WHICH THE PROCESS WAS STARTED [STEPS]]
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import torch
from criterion import CARTPOLE, PENDULUM, Criterion
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
    """Looks whenever new weights are about to act, and ends the training once it is solved."""

    def __init__(self, criterion: Criterion) -> None:
        super().__init__()
        self._criterion = criterion

    def _on_rollout_start(self) -> None:
        def act(obs: Any) -> Any:
            return self.model.predict(obs, deterministic=True)[0]

        self._criterion.look(act, self.num_timesteps)

    def _on_step(self) -> bool:
        return self._criterion.solved is None


def main(name: str, seed: int, started: float, every_steps: int) -> None:
    """Trains until the criterion is met or the published number of steps is used."""
    torch.set_num_threads(1)
    task = TASKS[name]
    criterion = Criterion(seed, started, task=task, every_steps=every_steps)
    env = make_vec_env(task.env_name, n_envs=ENVS[name], seed=seed)
    model = KINDS[name]("MlpPolicy", env, seed=seed, device="cpu", **SETTINGS[name])
    model.learn(TIMESTEPS[name], callback=Look(criterion))
    criterion.report(model.num_timesteps)


if __name__ == "__main__":
    given = float(sys.argv[3]) if len(sys.argv) > 3 else time.time()
    main(sys.argv[1], int(sys.argv[2]), given, int(sys.argv[4]) if len(sys.argv) > 4 else 0)
