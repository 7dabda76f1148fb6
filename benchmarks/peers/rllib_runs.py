"""RLlib's IMPALA on CartPole-v1 or Pong.

python rllib_runs.py SEED STARTED SECONDS cartpole_impala|pong_impala [WORKERS ENVS]

STARTED: when the process was started, seconds since 1970. WORKERS processes step ENVS each.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import gymnasium
import numpy as np
import ray
import torch
from clock import EPISODES, Clock
from pong import Pong
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env

HERE = os.path.dirname(os.path.abspath(__file__))
# Logical ones: there are more processes than cores, as everywhere else.
PROCESSORS = 8


class ChannelsLast(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Stacks of frames as RLlib's convolutions want them: ``[84, 84, 4]``, -1 to 1, in floats."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (84, 84, 4), np.float32)

    def observation(self, observation: Any) -> Any:
        """With the frames behind."""
        return np.moveaxis(observation, 0, -1).astype(np.float32) / 127.5 - 1.0


def config(what: str, seed: int, workers: int, envs: int) -> Any:
    """The settings of its tuned examples for CartPole; of Pong, as many rows as ours."""
    env = what.partition("_")[0]
    if env == "cartpole":
        found = IMPALAConfig().training(
            train_batch_size_per_learner=500, lr=0.0005, vf_loss_coeff=0.05, entropy_coeff=0.0
        )
        model: dict[str, Any] = {"vf_share_layers": True}
    else:
        found = IMPALAConfig().training(train_batch_size_per_learner=320, lr=0.0006)
        model = {
            "conv_filters": [[32, 8, 4], [64, 4, 2], [64, 3, 1]],
            "head_fcnet_hiddens": [512],
            "vf_share_layers": True,
        }
    found.environment("CartPole-v1" if env == "cartpole" else "pong")
    found.env_runners(num_env_runners=workers, num_envs_per_env_runner=envs)
    if env == "pong":
        found.env_runners(rollout_fragment_length=20)
    found.rl_module(model_config=DefaultModelConfig(**model))
    found.reporting(metrics_num_episodes_for_smoothing=EPISODES, min_time_s_per_iteration=0.5)
    found.learners(num_learners=1)
    return found.debugging(seed=seed, log_level="ERROR")


def policy_of(algorithm: Any) -> Any:
    """Greedy actions ``[N]`` by the learner's newest weights."""
    module = algorithm.get_module()

    @torch.no_grad()
    def act(obs: Any) -> Any:
        batch = {Columns.OBS: torch.from_numpy(np.asarray(obs, np.float32))}
        return module.forward_inference(batch)[Columns.ACTION_DIST_INPUTS].argmax(1).numpy()

    return act


def main(
    seed: int, started: float, seconds: float, what: str, workers: int = 2, envs: int = 8
) -> None:
    """Trains until the clock says that it is over."""
    plays = what.startswith("cartpole")
    clock = Clock(seed, started, seconds, plays=plays)
    paths = {"env_vars": {"PYTHONPATH": HERE}}
    ray.init(
        num_cpus=PROCESSORS,
        num_gpus=0,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env=paths,
    )
    register_env("pong", lambda _: ChannelsLast(Pong()))
    algorithm = config(what, seed, workers, envs).build_algo()
    over = False
    while not over:
        result = algorithm.train()
        seen = result.get("env_runners", {})
        steps = int(seen.get("num_env_steps_sampled_lifetime", 0))
        enough = seen.get("num_episodes_lifetime", 0) >= EPISODES
        returns = [seen["episode_return_mean"]] * EPISODES if enough else []
        if plays:
            weights = algorithm.learner_group.get_weights()
            algorithm.get_module().set_state(weights["default_policy"])
        over = clock.over(steps, returns, policy_of(algorithm))
    clock.report()
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[5:7]]
    main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), sys.argv[4], *numbers)
