"""One training of stable-baselines3's PPO, as numbers that a test of ours repeats.

Steps a small task whose episodes terminate, or are cut off after 12 steps, and trains once. Writes
what was collected, the orders of the rows, and the parameters before and after.

python sb3_ppo_step.py FILE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

SETTINGS: dict[str, Any] = {
    "gamma": 0.9,
    "gae_lambda": 0.8,
    "learning_rate": 3e-3,
    "n_steps": 64,
    "batch_size": 16,
    "n_epochs": 3,
    "clip_range": 0.2,
    "ent_coef": 0.01,
    "vf_coef": 0.25,
    "max_grad_norm": 0.5,
}
WIDTH, STEPS, END = 8, 12, 1.5


class Drift(gymnasium.Env[Any, Any]):
    """A point that drifts, and is pushed; away from the origin the episode terminates."""

    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begins near the origin."""
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-0.5, 0.5, 3)
        return self.place.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Moves; the reward falls with the distance."""
        push = np.array([action[0], action[1], action[0] * action[1]])
        self.place = 0.9 * self.place + 0.5 * push + self.np_random.normal(0.0, 0.1, 3)
        far = float(np.linalg.norm(self.place))
        return self.place.astype(np.float32), 1.0 - far, far > END, False, {}


class Collected(BaseCallback):  # type: ignore[misc]
    """Keeps the steps of a rollout, with the observations at which episodes end."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[dict[str, Any]] = []

    def _on_step(self) -> bool:
        given, info = self.locals, self.locals["infos"][0]
        done = bool(given["dones"][0])
        last = info["terminal_observation"] if done else given["new_obs"][0]
        cut = bool(info.get("TimeLimit.truncated", False))
        self.steps.append(
            {
                "obs": given["obs_tensor"][0].tolist(),
                "next": np.asarray(last).tolist(),
                "action": given["actions"][0].tolist(),
                "reward": float(given["rewards"][0]),
                "terminated": done and not cut,
                "truncated": cut,
            }
        )
        return True


def main(path: Path) -> None:
    """Collects, trains and writes."""
    torch.set_num_threads(1)
    env: Any = gymnasium.wrappers.TimeLimit(Drift(), STEPS)
    policy = {"net_arch": {"pi": [WIDTH], "vf": [WIDTH]}, "activation_fn": torch.nn.Tanh}
    model = PPO("MlpPolicy", env, seed=1, device="cpu", policy_kwargs=policy, **SETTINGS)
    collected, orders = Collected(), []
    collected.init_callback(model)
    _, callback = model._setup_learn(SETTINGS["n_steps"], collected)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, SETTINGS["n_steps"])
    before = {name: each.tolist() for name, each in model.policy.state_dict().items()}
    draw = np.random.permutation

    def permutation(size: int) -> Any:
        orders.append(draw(size).tolist())
        return np.array(orders[-1])

    vars(np.random)["permutation"] = permutation
    model.train()
    after = {name: each.tolist() for name, each in model.policy.state_dict().items()}
    found = {
        "stable-baselines3": stable_baselines3.__version__,
        "settings": SETTINGS,
        "steps": collected.steps,
        "advantages": model.rollout_buffer.advantages.reshape(-1).tolist(),
        "orders": orders,
        "before": before,
        "after": after,
    }
    path.write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
