"""stable-baselines3's SAC on MuJoCo for a number of environment steps, judged greedily.

Its settings are those of an experiment of ours, read from the same file: the caller gives the
experiment's values as JSON. Prints one line of JSON; its `curve` has a line of numbers, named as in
progress.jsonl, for every tenth of the steps, of a tenth of the episodes.

python sb3_budget.py EXPERIMENT SEED
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback, EveryNTimesteps


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


def main(experiment: Mapping[str, Any], seed: int) -> None:
    """Trains, judges, prints.

    Args:
        experiment: `env_name`, `steps`, `episodes`, and the `arguments` of the peer's class.
        seed: of everything.
    """
    torch.set_num_threads(1)
    began = time.monotonic()
    env_name, steps, episodes = (experiment[key] for key in ("env_name", "steps", "episodes"))
    env = gymnasium.make(env_name)
    model = SAC("MlpPolicy", env, seed=seed, device="cpu", **experiment["arguments"])
    judge = partial(judged, env_name=env_name, seed=seed, episodes=max(1, episodes // 10))
    curve = Curve(judge, began)
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
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
