"""stable-baselines3's PPO on CartPole-v1 until both criteria are met.

python sb3_ppo.py SEED STARTED SECONDS

STARTED: when the process was started, seconds since 1970. Settings: those of rl-baselines3-zoo.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from clock import EPISODES, Clock
from sb3 import ENVS, SETTINGS, TIMESTEPS
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env


class Look(BaseCallback):  # type: ignore[misc]
    """Looks whenever new weights are about to act, and ends the training once it is over."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._over = False

    def _on_rollout_start(self) -> None:
        def act(obs: Any) -> Any:
            return self.model.predict(obs, deterministic=True)[0]

        returns = [episode["r"] for episode in self.model.ep_info_buffer]
        self._over = self._clock.over(self.num_timesteps, returns, act)

    def _on_step(self) -> bool:
        return not self._over


def main(seed: int, started: float, seconds: float) -> None:
    """Trains until the clock says that it is over or the published number of steps is used."""
    torch.set_num_threads(1)
    clock = Clock(seed, started, seconds, plays=True)
    env = make_vec_env("CartPole-v1", n_envs=ENVS["ppo"], seed=seed)
    model = PPO(
        "MlpPolicy",
        env,
        seed=seed,
        device="cpu",
        stats_window_size=EPISODES,
        **SETTINGS["ppo"],
    )
    model.learn(TIMESTEPS["ppo"], callback=Look(clock))
    clock.report()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
