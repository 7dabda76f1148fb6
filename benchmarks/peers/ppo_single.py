"""PPO in a single file and a single process, in the manner of CleanRL and with its settings.

python ppo_single.py SEED STARTED SECONDS

STARTED: when the process was started, seconds since 1970. Four environments, 128 steps each, four
passes in four parts, step size falling from 2.5e-4 over half a million steps: what CleanRL
publishes for CartPole-v1.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

import gymnasium
import numpy as np
import torch
from clock import EPISODES, Clock
from torch import nn

ENVS, STEPS, BUDGET = 4, 128, 500_000
GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, NORM = 0.99, 0.95, 0.2, 0.01, 0.5, 0.5
RATE, PASSES, PARTS = 2.5e-4, 4, 4


def layer(width: int, out: int, gain: float = 2**0.5) -> nn.Linear:
    """A linear layer with orthogonal weights."""
    made = nn.Linear(width, out)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


def network(out: int, gain: float) -> nn.Sequential:
    """Two layers of 64 before the last one."""
    return nn.Sequential(layer(4, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, out, gain))


class Rollout:
    """Rollout of ENVS environments over STEPS steps."""

    def __init__(self, seed: int) -> None:
        one = [lambda: gymnasium.make("CartPole-v1") for _ in range(ENVS)]
        same_step = gymnasium.vector.AutoresetMode.SAME_STEP
        self._envs = gymnasium.vector.SyncVectorEnv(one, autoreset_mode=same_step)
        self._obs: Any = self._envs.reset(seed=seed)[0]
        self._done = np.zeros(ENVS, np.float32)
        self._returns = np.zeros(ENVS)
        self.finished: deque[float] = deque(maxlen=EPISODES)

    @torch.no_grad()
    def play(self, actor: nn.Module, critic: nn.Module) -> dict[str, torch.Tensor]:
        """Columns ``[STEPS * ENVS, ...]``, with advantages and targets."""
        shapes = {"obs": (4,), "action": (), "log_prob": (), "value": (), "reward": (), "done": ()}
        rows = {name: torch.zeros(STEPS, ENVS, *shape) for name, shape in shapes.items()}
        for t in range(STEPS):
            obs = torch.from_numpy(self._obs)
            log_probs = actor(obs).log_softmax(1)
            action = log_probs.exp().multinomial(1)
            rows["obs"][t], rows["done"][t] = obs, torch.from_numpy(self._done)
            rows["action"][t] = action[:, 0]
            rows["log_prob"][t] = log_probs.gather(1, action)[:, 0]
            rows["value"][t] = critic(obs).squeeze(1)
            stepped: Any = self._envs.step(action[:, 0].numpy())
            self._obs, reward, terminated, truncated, _ = stepped
            rows["reward"][t] = torch.from_numpy(reward)
            self._note(reward, terminated | truncated)
        self._finish(rows, critic(torch.from_numpy(self._obs)).squeeze(1))
        return {name: column.flatten(0, 1) for name, column in rows.items()}

    def _note(self, reward: Any, done: Any) -> None:
        self._returns += reward
        self.finished.extend(self._returns[done].tolist())
        self._returns[done] = 0.0
        self._done = done.astype(np.float32)

    def _finish(self, rows: dict[str, torch.Tensor], value: torch.Tensor) -> None:
        advantage, going = torch.zeros(ENVS), 1.0 - torch.from_numpy(self._done)
        rows["advantage"] = torch.zeros(STEPS, ENVS)
        for t in reversed(range(STEPS)):
            delta = rows["reward"][t] + GAMMA * value * going - rows["value"][t]
            advantage = delta + GAMMA * LAMBDA * going * advantage
            rows["advantage"][t] = advantage
            value, going = rows["value"][t], 1.0 - rows["done"][t]
        rows["target"] = rows["advantage"] + rows["value"]


def loss_of(rows: dict[str, torch.Tensor], actor: nn.Module, critic: nn.Module) -> torch.Tensor:
    """Clipped surrogate, clipped values, entropy."""
    log_probs: torch.Tensor = actor(rows["obs"]).log_softmax(1)
    taken = log_probs.gather(1, rows["action"].long()[:, None])[:, 0]
    ratio = (taken - rows["log_prob"]).exp()
    gain = rows["advantage"]
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    surrogate = torch.min(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain).mean()
    value, old, target = critic(rows["obs"]).squeeze(1), rows["value"], rows["target"]
    near = old + (value - old).clamp(-CLIP, CLIP)
    errors = torch.max((value - target) ** 2, (near - target) ** 2)
    entropy = -(log_probs.exp() * log_probs).sum(1).mean()
    loss: torch.Tensor = -surrogate + VALUE * 0.5 * errors.mean() - ENTROPY * entropy
    return loss


def main(seed: int, started: float, seconds: float) -> None:
    """Trains until the clock says that it is over, or the published number of steps is used."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    clock = Clock(seed, started, seconds, plays=True)
    actor, critic, rollout = network(2, 0.01), network(1, 1.0), Rollout(seed)
    parameters = [*actor.parameters(), *critic.parameters()]
    adam = torch.optim.Adam(parameters, lr=RATE, eps=1e-5)

    @torch.no_grad()
    def greedy(obs: Any) -> Any:
        return actor(torch.from_numpy(np.asarray(obs, np.float32))).argmax(1).numpy()

    for env_steps in range(0, BUDGET, ENVS * STEPS):
        if clock.over(env_steps, rollout.finished, greedy):
            break
        adam.param_groups[0]["lr"] = RATE * (1 - env_steps / BUDGET)
        rows = rollout.play(actor, critic)
        for _ in range(PASSES):
            for part in torch.randperm(ENVS * STEPS).chunk(PARTS):
                adam.zero_grad()
                picked = {name: column[part] for name, column in rows.items()}
                loss_of(picked, actor, critic).backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(parameters, NORM)
                adam.step()
    clock.report()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
