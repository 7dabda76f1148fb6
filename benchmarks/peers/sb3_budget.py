"""stable-baselines3 on MuJoCo for a number of environment steps, judged greedily.

With the settings that rl-baselines3-zoo publishes for SAC and TD3, and PPO's defaults, which are
those of its paper. Prints one line of JSON; its `curve` has a line of numbers, named as in
progress.jsonl, for every tenth of the steps.

python sb3_budget.py sac|td3|ppo ENVIRONMENT SEED STEPS EPISODES
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback, EveryNTimesteps
from stable_baselines3.common.noise import NormalActionNoise

KINDS = {"sac": SAC, "td3": TD3, "ppo": PPO}


def settings(kind: str, actions: int) -> dict[str, Any]:
    """Returns the arguments of the peer's class that differ from its defaults."""
    if kind == "ppo":
        return {}
    found: dict[str, Any] = {"learning_starts": 10_000}
    if kind == "td3":
        found |= {
            "learning_rate": 1e-3,
            "batch_size": 256,
            "train_freq": 1,
            "gradient_steps": 1,
            "policy_kwargs": {"net_arch": [400, 300]},
            "action_noise": NormalActionNoise(np.zeros(actions), 0.1 * np.ones(actions)),
        }
    return found


def judged(model: Any, env_name: str, seed: int, episodes: int) -> float:
    """Returns the greedy mean return of some episodes, on seeds never used before."""
    env, returns = gymnasium.make(env_name), []
    for episode in range(episodes):
        obs, _ = env.reset(seed=10**6 * (seed + 1) + episode)
        total, over = 0.0, False
        while not over:
            action = model.predict(obs, deterministic=True)[0]
            obs, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return float(np.mean(returns))


class Curve(BaseCallback):  # type: ignore[misc]
    """Adds a line of numbers to a curve at each call.

    Args:
        judge: returns the greedy mean return of the model.
        began: moment of the start, of `time.monotonic`.
    """

    def __init__(self, judge: Callable[[Any], float], began: float) -> None:
        super().__init__()
        self._judge, self._began = judge, began
        self.lines: list[dict[str, Any]] = []

    def _on_step(self) -> bool:
        training = [each["r"] for each in self.model.ep_info_buffer or ()]
        line = {
            "env_steps": self.num_timesteps,
            "wall_seconds": round(time.monotonic() - self._began, 1),
            "eval": {"mean_return": self._judge(self.model), "env_steps": self.num_timesteps},
            "train": {"mean_return_100": float(np.mean(training)) if training else None},
        }
        self.lines.append(line)
        return True


def main(kind: str, env_name: str, seed: int, steps: int, episodes: int) -> None:
    """Trains, judges, prints."""
    torch.set_num_threads(1)
    began = time.monotonic()
    env = gymnasium.make(env_name)
    actions: int = env.action_space.shape[0]  # type: ignore[index]
    model = KINDS[kind]("MlpPolicy", env, seed=seed, device="cpu", **settings(kind, actions))
    curve = Curve(partial(judged, env_name=env_name, seed=seed, episodes=episodes), began)
    model.learn(steps, EveryNTimesteps(steps // 10, curve))
    trained = time.monotonic() - began
    found = {
        "mean_return": judged(model, env_name, seed, episodes),
        "env_steps": int(model.num_timesteps),
        "training_seconds": round(trained, 1),
        "curve": curve.lines,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *(int(word) for word in sys.argv[3:]))
