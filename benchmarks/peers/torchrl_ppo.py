"""TorchRL's PPO on CartPole-v1, its environments in the processes of a multi-process collector.

python torchrl_ppo.py SEED STARTED SECONDS

STARTED: when the process was started, seconds since 1970. TorchRL publishes no settings for
CartPole: these are those that rl-baselines3-zoo publishes.
"""

from __future__ import annotations

import sys
from collections import deque
from functools import partial
from typing import Any

import numpy as np
import torch
from clock import EPISODES, Clock
from tensordict.nn import TensorDictModule
from torch import nn
from torch.distributions import Categorical
from torchrl.collectors import MultiSyncCollector
from torchrl.envs import GymEnv, RewardSum, SerialEnv, TransformedEnv
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

WORKERS, ENVS, STEPS, BUDGET = 2, 4, 32, 100_000
GAMMA, LAMBDA, CLIP, PASSES, BATCH, RATE = 0.98, 0.8, 0.2, 20, 256, 1e-3


def make_env() -> Any:
    """The environments of one process."""
    one = partial(GymEnv, "CartPole-v1", categorical_action_encoding=True)
    return TransformedEnv(SerialEnv(ENVS, one), RewardSum())


def network(out: int) -> nn.Sequential:
    """Two layers of 64 before the last one."""
    return nn.Sequential(
        nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, out)
    )


def main(seed: int, started: float, seconds: float) -> None:
    """Trains until the clock says that it is over, or the published number of steps is used."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    clock = Clock(seed, started, seconds, plays=True)
    logits = network(2)
    actor = ProbabilisticActor(
        TensorDictModule(logits, in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        distribution_class=Categorical,
        return_log_prob=True,
    )
    critic = ValueOperator(network(1), in_keys=["observation"])
    advantage = GAE(gamma=GAMMA, lmbda=LAMBDA, value_network=critic)
    loss_of = ClipPPOLoss(
        actor, critic, clip_epsilon=CLIP, entropy_bonus=False, normalize_advantage=True
    )
    adam = torch.optim.Adam(loss_of.parameters(), lr=RATE)
    rows = WORKERS * ENVS * STEPS
    collector = MultiSyncCollector(
        [make_env] * WORKERS,
        actor,
        frames_per_batch=rows,
        total_frames=BUDGET,
        cat_results=0,
        update_at_each_batch=True,
    )
    collector.set_seed(seed)

    @torch.no_grad()
    def greedy(obs: Any) -> Any:
        return logits(torch.from_numpy(np.asarray(obs, np.float32))).argmax(1).numpy()

    env_steps, finished = 0, deque[float](maxlen=EPISODES)
    for data in collector:
        env_steps += data.numel()
        ended = data["next", "done"].squeeze(-1)
        finished.extend(data["next", "episode_reward"].squeeze(-1)[ended].tolist())
        adam.param_groups[0]["lr"] = RATE * (1 - env_steps / BUDGET)
        with torch.no_grad():
            advantage(data)
        flat = data.reshape(-1)
        for _ in range(PASSES):
            for part in torch.randperm(rows).chunk(rows // BATCH):
                losses = loss_of(flat[part])
                adam.zero_grad()
                (losses["loss_objective"] + losses["loss_critic"]).backward()
                nn.utils.clip_grad_norm_(loss_of.parameters(), 0.5)
                adam.step()
        if clock.over(env_steps, finished, greedy):
            break
    clock.report()
    collector.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
