"""PPO as a bare loop in one process: step, forward pass, update. Rounds of :mod:`worker`.

python looping.py THREADS OVERRIDE ...
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))

import gymnasium  # noqa: E402
import torch  # noqa: E402
from bare import mlp, ppo  # noqa: E402
from prepared import resolved  # noqa: E402
from torch import nn  # noqa: E402
from worker import Answer, serve  # noqa: E402

from surreal_like.data.batch import Batch  # noqa: E402


class Loop:
    """Steps Gymnasium's vector code of CartPole, and learns from each unroll at once.

    Args:
        overrides: settings of configs/cartpole_ppo.yaml, which are those of our run.
    """

    def __init__(self, overrides: list[str]) -> None:
        config = resolved("cartpole_ppo", overrides)
        self._steps: int = config.session_config.sender.flush_iteration
        self._num: int = config.env_config.num_envs
        self._gamma: float = config.learner_config.algo.gamma
        hidden = config.learner_config.model.hidden_sizes
        self._actor, critic = mlp([4, *hidden, 2], nn.Tanh), mlp([4, *hidden, 1], nn.Tanh)
        parameters = [*self._actor.parameters(), *critic.parameters()]
        self._update = ppo(
            config, (lambda obs: (self._actor(obs), critic(obs)[..., 0]), parameters)
        )
        self._env = gymnasium.make_vec("CartPole-v1", self._num, "vector_entry_point")
        self._obs: Any = self._env.reset(seed=0)[0]
        self._over = torch.zeros(self._num, dtype=torch.bool)

    def bare(self, *, seconds: float) -> Answer:
        """Unrolls and updates for so long."""
        rows, begin = 0, time.perf_counter()
        while time.perf_counter() < begin + seconds:
            self._update(self._unroll())
            rows += self._steps * self._num
        return {"rows": rows, "seconds": time.perf_counter() - begin}

    @torch.inference_mode()
    def _unroll(self) -> Batch:
        lead = self._steps, self._num
        batch = Batch(
            obs=torch.empty(self._steps + 1, self._num, 4),
            actions=torch.empty(lead, dtype=torch.int64),
            rewards=torch.empty(lead),
            discounts=torch.empty(lead),
            extras={"logits": torch.empty(*lead, 2)},
        )
        for t in range(self._steps):
            obs = batch.obs[t] = torch.from_numpy(self._obs)
            logits = batch.extras["logits"][t] = self._actor(obs)
            actions = batch.actions[t] = logits.softmax(1).multinomial(1)[:, 0]
            stepped: Any = self._env.step(actions.numpy())
            self._obs, reward, terminated, truncated, _ = stepped
            # The step after an end is a reset: nothing is learned from it.
            going = ~(torch.from_numpy(terminated) | self._over)
            batch.discounts[t], batch.rewards[t] = self._gamma * going, torch.from_numpy(reward)
            self._over = torch.from_numpy(terminated | truncated)
        batch.obs[-1] = torch.from_numpy(self._obs)
        return batch


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(int(sys.argv[1]))
    serve({"bare": Loop(sys.argv[2:]).bare})
