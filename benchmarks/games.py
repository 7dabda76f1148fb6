"""Measures of a policy in a game, beyond the mean return of its evaluations."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from surreal_like.addons.analysis.evaluate import TrainedPolicies
from surreal_like.addons.scripts.policy import load_policy
from surreal_like.agent.evaluation import Evaluation

EPISODES, STREAMS, SEED = 1000, 100, 12345
SPREAD_EPISODES, REACH = 200, 0.1
# Rock, paper, scissors: own move, move of the other player; observations are the other's last move,
# and 3 before the first round.
PAYS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
ROUNDS, DRAWS = 15, 20_000


def best_answer(folder: Path) -> float:
    """Returns what the best answer to the newest policy `main` of a run wins in a round.

    The answer is computed exactly, by dynamic programming over the rounds, from the probabilities
    of the moves; these are shares of draws, with an error of about 0.003 each.
    """
    policy = load_policy(folder, "latest", policy="main")
    seen = np.repeat(np.arange(4), DRAWS)
    moves = np.asarray(policy.compute_actions(seen, deterministic=False)[0]).reshape(4, DRAWS)
    chances = np.stack([(moves == move).mean(1) for move in range(3)], 1)
    value = np.zeros(4)
    for _ in range(ROUNDS):
        # By its own move the answer chooses what the policy sees next.
        value = (chances @ PAYS.T + value[:3]).max(1)
    return float(value[3]) / ROUNDS


def lost_share(folder: Path) -> float:
    """Returns the share of 1000 greedy episodes that the best parameters of `main` lose."""
    trained = TrainedPolicies(folder, "best", {}, ())
    player = trained.make_player(trained.config, deterministic=True, num_envs=STREAMS, seed=SEED)
    played = Evaluation(EPISODES, STREAMS)
    player.fetch()
    player.reset()
    while not played.over:
        player.step(played)
    player.close()
    lost: int = sum(each["metrics"]["policy/main"] < 0 for each in played.finished)
    return lost / EPISODES


def landmarks_left(folder: Path) -> float:
    """Returns how many of three landmarks have no agent in reach when an episode ends, on average.

    In reach is a distance of 0.1, as in the environment's own counts; 200 greedy episodes.
    """
    from mpe2 import simple_spread_v3

    policy = load_policy(folder, "best")
    env, left = simple_spread_v3.parallel_env(), []
    for episode in range(SPREAD_EPISODES):
        seen, _ = env.reset(seed=SEED + episode)
        while env.agents:
            moves = policy.compute_actions({"observation": np.stack(list(seen.values()))})[0]
            seen = env.step(dict(zip(seen, moves.tolist(), strict=True)))[0]
        # Behind velocity and position: where each landmark lies, seen from the agent.
        away = np.linalg.norm([each[4:10].reshape(3, 2) for each in seen.values()], axis=-1)
        left.append((away.min(0) > REACH).sum())
    env.close()
    return float(np.mean(left))


MEASURES = {
    "best answer": best_answer,
    "lost": lost_share,
    "landmarks left": landmarks_left,
}
