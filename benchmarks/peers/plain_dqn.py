"""n-step double DQN for CartPole-v1 in one process: vectorised environments, one file, no library.

python plain_dqn.py SEED [SECONDS SINCE 1970 AT WHICH THE PROCESS WAS STARTED]
"""

from __future__ import annotations

import copy
import sys
import time
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from criterion import Criterion
from torch import nn

ENVS, BUDGET, CAPACITY, LEARN_AT = 16, 400_000, 50_000, 1000
N_STEP, GAMMA, BATCH, UPDATES_PER_STEP = 3, 0.99, 128, 4
RATE, CLIP, TARGET_PERIOD = 4e-3, 10.0, 50
EPSILON_END, EPSILON_STEPS = 0.05, 5000

Array = npt.NDArray[Any]


def n_step(
    first: Array, stream: Array, rewards: Array, terminated: Array, usable: Array
) -> tuple[Array, Array, Array]:
    """Sum of discounted rewards, discount of the bootstrap value, and the row where that stands."""
    total, discount = np.zeros(len(first), np.float32), np.ones(len(first), np.float32)
    last, going = first.copy(), np.ones(len(first), np.bool_)
    for step in range(N_STEP):
        row = first + step
        total += going * discount * rewards[row, stream]
        discount = np.where(going, discount * np.float32(GAMMA), discount)
        discount[going & terminated[row, stream]] = 0.0
        last[going] = row[going] + 1
        going &= usable[row + 1, stream]
    return total, discount, last


def make_network() -> nn.Module:
    """The values of both actions."""
    layers = [nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)]
    return nn.Sequential(*layers)


def main(seed: int, started: float) -> None:
    """Trains until the criterion is met or the budget is used."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    criterion = Criterion(seed, started)
    env = gymnasium.make_vec("CartPole-v1", ENVS, vectorization_mode="vector_entry_point")
    online = make_network()
    target = copy.deepcopy(online)
    adam = torch.optim.Adam(online.parameters(), lr=RATE)

    @torch.no_grad()
    def greedy(obs: Array) -> Array:
        best: Array = online(torch.from_numpy(obs)).argmax(1).numpy()
        return best

    # Row t: an observation, the action taken there, and what that gave. At the last observation of
    # an episode the environment ignores the action: such a row is not usable.
    rows = BUDGET // ENVS
    observations = np.zeros((rows + 1, ENVS, 4), np.float32)
    actions = np.zeros((rows, ENVS), np.int64)
    rewards = np.zeros((rows, ENVS), np.float32)
    ended = np.zeros((2, rows, ENVS), np.bool_)  # terminated, truncated
    usable = np.ones((rows + 1, ENVS), np.bool_)
    observations[0], _ = env.reset(seed=seed)
    updates = 0
    for t in range(rows):
        env_steps = t * ENVS
        epsilon = max(EPSILON_END, 1 - (1 - EPSILON_END) * env_steps / EPSILON_STEPS)
        explore = rng.random(ENVS) < epsilon
        actions[t] = np.where(explore, rng.integers(2, size=ENVS), greedy(observations[t]))
        observations[t + 1], rewards[t], *ends, _ = env.step(actions[t])
        ended[:, t] = ends
        usable[t + 1] = ~(ended[0, t] | ended[1, t])
        if env_steps < LEARN_AT:
            continue
        for _ in range(UPDATES_PER_STEP):
            first = rng.integers(max(0, t - CAPACITY // ENVS), t - N_STEP, 2 * BATCH)
            stream = rng.integers(ENVS, size=2 * BATCH)
            keep = np.flatnonzero(usable[first, stream])[:BATCH]
            first, stream = first[keep], stream[keep]
            total, discount, last = n_step(first, stream, rewards, ended[0], usable)
            obs = torch.from_numpy(observations[first, stream])
            obs_next = torch.from_numpy(observations[last, stream])
            with torch.no_grad():
                best = online(obs_next).argmax(1, keepdim=True)
                bootstrap = target(obs_next).gather(1, best).squeeze(1)
                goal = torch.from_numpy(total) + torch.from_numpy(discount) * bootstrap
            taken = torch.from_numpy(actions[first, stream])[:, None]
            loss = nn.functional.smooth_l1_loss(online(obs).gather(1, taken).squeeze(1), goal)
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(online.parameters(), CLIP)
            adam.step()
            updates += 1
            if updates % TARGET_PERIOD == 0:
                target.load_state_dict(online.state_dict())
        if criterion.look(greedy, env_steps):
            break
    criterion.report((t + 1) * ENVS, greedy)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else time.time())
