"""stable-baselines3 with the settings of an experiment of ours, which the caller gives as JSON.

Trains until the experiment's goal is met, by the criterion that ends our runs; without a goal until
the environment steps are used. Then the last parameters play greedily. Prints one line of JSON; its
`curve` has a line of numbers for every tenth of the steps, named as in progress.jsonl.

python sb3_equal.py SEED STARTED EXPERIMENT [STEPS]

STARTED: when the process was started, seconds since 1970. EXPERIMENT: result of
peer_settings.stable_baselines3. STEPS: look whether the goal is met every so many environment
steps, instead of every half second.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from criterion import CARTPOLE, PENDULUM, Criterion
from judge import judged, register, start_seeds
from sb3 import Look, greedy
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback, EveryNTimesteps
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecNormalize
from torch import nn

KINDS = {"dqn": DQN, "ppo": PPO, "sac": SAC, "td3": TD3}
TASKS = {task.env_name: task for task in (CARTPOLE, PENDULUM)}
ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh}


class Convolutions(BaseFeaturesExtractor):  # type: ignore[misc]
    """Convolutions over an image with the channels last, and a fully connected layer.

    Args:
        observation_space: of the environment.
        layers: channels, side of the kernel and stride of each convolution.
        features: width of the last layer.
    """

    def __init__(self, observation_space: Any, layers: list[list[int]], features: int) -> None:
        super().__init__(observation_space, features)
        parts: list[nn.Module] = []
        channels = observation_space.shape[-1]
        for count, kernel, stride in layers:
            parts += [nn.Conv2d(channels, count, kernel, stride), nn.ReLU()]
            channels = count
        parts.append(nn.Flatten())
        example = torch.zeros(1, *observation_space.shape).movedim(-1, -3)
        width = nn.Sequential(*parts)(example).shape[1]
        self.layers = nn.Sequential(*parts, nn.Linear(width, features), nn.ReLU())

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Returns the features of a batch of images."""
        features: torch.Tensor = self.layers(observations.movedim(-1, -3))
        return features


class Curve(BaseCallback):  # type: ignore[misc]
    """Adds a line of numbers to a curve at each call.

    Args:
        judge: returns the greedy mean return of the model.
        began: moment of the start, of `time.monotonic`.
    """

    def __init__(self, judge: Callable[[], float], began: float) -> None:
        super().__init__()
        self._judge, self._began = judge, began
        self.lines: list[dict[str, Any]] = []

    def _on_step(self) -> bool:
        training = [each["r"] for each in self.model.ep_info_buffer or ()]
        line = {
            "env_steps": self.num_timesteps,
            "wall_seconds": round(time.monotonic() - self._began, 1),
            "eval": {"mean_return": self._judge(), "env_steps": self.num_timesteps},
            "train": {"mean_return_100": float(np.mean(training)) if training else None},
        }
        self.lines.append(line)
        return True


def make_model(experiment: Mapping[str, Any], seed: int) -> Any:
    """Returns the peer's model, which has its environments."""
    arguments = dict(experiment["arguments"])
    limit = experiment["limit"]
    register(experiment["env_name"])
    env = make_vec_env(
        experiment["env_name"],
        n_envs=experiment["num_envs"],
        seed=seed,
        env_kwargs={} if limit is None else {"max_episode_steps": limit},
    )
    normalize = experiment["normalize"]
    if normalize["obs"] or normalize["reward"]:
        clip = normalize["clip_reward"] or np.inf
        which = {f"norm_{name}": normalize[name] for name in ("obs", "reward")}
        env = VecNormalize(env, **which, clip_reward=clip, gamma=arguments["gamma"])
    layers = list(experiment["layers"])
    policy: dict[str, Any] = {"net_arch": layers}
    if experiment["algorithm"] == "ppo":
        policy["net_arch"] = {"pi": layers, "vf": layers}
        policy["share_features_extractor"] = experiment["shared"]
        start, last, steps = arguments["learning_rate"]
        total = experiment["steps"]
        arguments["learning_rate"] = lambda left: (
            start + (last - start) * min(1.0, (1.0 - left) * total / steps)
        )
    policy["activation_fn"] = ACTIVATIONS[experiment["activation"]]
    if experiment["convolutions"]:
        policy["features_extractor_class"] = Convolutions
        policy["features_extractor_kwargs"] = {
            "layers": experiment["convolutions"],
            "features": experiment["image_features"],
        }
    if "action_noise" in arguments:
        size = env.action_space.shape[0]
        sigma = arguments["action_noise"] * np.ones(size)
        arguments["action_noise"] = NormalActionNoise(np.zeros(size), sigma)
    kind = KINDS[experiment["algorithm"]]
    return kind("MlpPolicy", env, seed=seed, device="cpu", policy_kwargs=policy, **arguments)


def main(seed: int, started: float, experiment: Mapping[str, Any], every_steps: int = 0) -> None:
    """Trains, judges, prints.

    Args:
        seed: of everything.
        started: when the process was started, seconds since 1970.
        experiment: result of `peer_settings.stable_baselines3`.
        every_steps: between two looks at the goal; 0: half seconds.
    """
    torch.set_num_threads(1)
    if experiment["goal"] is None:
        # In long runs its averages of gradients become denormal numbers, with which a processor
        # is slow. The parameters are the same, and of these runs no time is stated.
        torch.set_flush_denormal(True)
    began = time.monotonic()
    env_name, steps, limit = (experiment[key] for key in ("env_name", "steps", "limit"))
    episodes = experiment["episodes"]
    model = make_model(experiment, seed)

    def mean_return(count: int) -> float:
        return judged(greedy(model), env_name, start_seeds(seed, count), limit)

    curve = Curve(lambda: mean_return(max(1, episodes // 10)), began)
    found: dict[str, Any] = {}
    if experiment["goal"] is None:
        model.learn(steps, EveryNTimesteps(steps // 10, curve))
    else:
        criterion = Criterion(seed, started, task=TASKS[env_name], every_steps=every_steps)
        look = Look(lambda model: criterion.look(greedy(model), model.num_timesteps))
        model.learn(steps, look)
        found["solved"] = criterion.solved
    found |= {
        "training_seconds": round(time.monotonic() - began, 1),
        "judged_mean_return": mean_return(episodes),
        "env_steps": int(model.num_timesteps),
        "curve": curve.lines,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    words = [int(word) for word in sys.argv[4:5]]
    main(int(sys.argv[1]), float(sys.argv[2]), json.loads(sys.argv[3]), *words)
