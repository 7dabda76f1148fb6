"""stable-baselines3's PPO on CartPole-v1 with the settings that rl-baselines3-zoo publishes.

python sb3.py SEED STARTED SECONDS

STARTED: when the process was started, seconds since 1970. SECONDS: the budget until both criteria
of a clock are met.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from clock import Clock
from criterion import CARTPOLE
from judge import Act
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

ENVS, TIMESTEPS = 8, 100_000
# rl-baselines3-zoo, hyperparams/*.yml, CartPole-v1.
SETTINGS: dict[str, dict[str, Any]] = {
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
    """Returns the greedy policy of a model, for observations as the environment gives them."""
    moments = model.get_vec_normalize_env()
    seen = moments.normalize_obs if moments else np.asarray
    return lambda obs: model.predict(seen(obs), deterministic=True)[0]


def main(seed: int, started: float, seconds: float) -> None:
    """Trains until both criteria are met or the published number of steps is used."""
    torch.set_num_threads(1)
    env = make_vec_env(CARTPOLE.env_name, n_envs=ENVS, seed=seed)
    model = PPO("MlpPolicy", env, seed=seed, device="cpu", **SETTINGS["ppo"])
    clock = Clock(seed, started, seconds, plays=True)

    def is_over(model: Any) -> bool:
        returns = [episode["r"] for episode in model.ep_info_buffer]
        return clock.over(model.num_timesteps, returns, greedy(model))

    model.learn(TIMESTEPS, callback=Look(is_over))
    clock.report()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
