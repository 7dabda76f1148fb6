"""Experiments of algorithms that learn from unrolls, with batches made up for them."""

from pathlib import Path
from typing import Any

import torch

from session.config import Config
from session.config.defaults import BASE_ENV_CONFIG, BASE_LEARNER_CONFIG, BASE_SESSION_CONFIG
from surreal_like import train
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.data.batch import Batch
from surreal_like.dataflow import compute_advantages, standardize
from surreal_like.dataflow.batches import rows_of
from surreal_like.run.train import Run

VECTOR = {"type": "float32", "dim": [4]}
PAIR = {"a": VECTOR, "b": {"type": "int64", "dim": [], "num": 3}}
DISCRETE = {"type": "discrete", "dim": [3]}
SEVERAL = {"type": "multi_discrete", "dim": [3, 2]}
BOX = {"type": "continuous", "dim": [2]}
TABLE = {"type": "continuous", "dim": [2, 3]}
ACTIONS = {"discrete": DISCRETE, "several": SEVERAL, "box": BOX, "table": TABLE}
GAMMA = 0.9
T, B = 5, 4
SMALL = {"hidden_sizes": [8]}


def constant(value: float) -> dict[str, Any]:
    """A schedule that stays at a value."""
    return {"kind": "constant", "start": value}


def configs(
    algorithm: type[Algorithm],
    action_spec: dict[str, Any] | None = None,
    *,
    obs_spec: dict[str, Any] | None = None,
    learner: dict[str, Any] | None = None,
    session: dict[str, Any] | None = None,
    **algo: Any,
) -> dict[str, Config]:
    config = Config({"algo": algo, "device": "cpu", "model": SMALL, **(learner or {})})
    config.extend(algorithm.default_config().extend(BASE_LEARNER_CONFIG), strict=True)
    env = {"env_name": "x", "obs_spec": obs_spec or VECTOR, "action_spec": action_spec or DISCRETE}
    return {
        "learner_config": config,
        "env_config": Config(env).extend(BASE_ENV_CONFIG),
        "session_config": Config(session or {}).extend(BASE_SESSION_CONFIG),
    }


def make_obs(spec: Any, *leading: int) -> Any:
    if spec is PAIR:
        return {"a": torch.randn(*leading, 4), "b": torch.randint(0, 3, leading)}
    return torch.randn(*leading, 4)


def make_batch(action_spec: dict[str, Any], obs_spec: Any = None, *, seed: int = 0) -> Batch:
    """Unrolls in which episodes are terminated and truncated."""
    torch.manual_seed(seed)
    mask = torch.ones(T, B)
    discounts = torch.full((T, B), GAMMA)
    mask[2, 0] = mask[3, 1] = 0.0  # an episode had ended
    discounts[1, 0] = 0.0  # by a termination; the other one was truncated
    dim = action_spec["dim"]
    if action_spec["type"] == "continuous":
        size = int(torch.tensor(dim).prod())
        actions = torch.randn(T, B, *dim)
        extras = {"mean": torch.randn(T, B, size), "log_std": 0.3 * torch.randn(T, B, size)}
    else:
        several = action_spec["type"] == "multi_discrete"
        choices = torch.stack([torch.randint(0, n, (T, B)) for n in dim], -1)
        actions = choices if several else choices[..., 0]
        extras = {"logits": torch.randn(T, B, sum(dim))}
    return Batch(
        obs=make_obs(obs_spec, T + 1, B),
        first=torch.zeros(T + 1, B, dtype=torch.bool),
        actions=actions,
        rewards=torch.randn(T, B),
        discounts=discounts,
        dones=(discounts == 0).float(),
        mask=mask,
        version=torch.zeros(T, B, dtype=torch.int64),
        extras=extras,
    )


def spoil_masked_rows(batch: Batch) -> Batch:
    """The same batch with other numbers where nothing was done: rows are observed, not acted at."""
    idle = batch.mask == 0
    batch["rewards"] = torch.where(idle, torch.tensor(1e6), batch.rewards)
    batch["discounts"] = torch.where(idle, torch.tensor(0.5), batch.discounts)
    for name, column in batch.extras.items():
        batch.extras[name] = torch.where(idle.unsqueeze(-1), torch.tensor(3.0), column)
    return batch


def play(
    folder: Path,
    algorithm: str,
    env: str,
    *,
    env_steps: int,
    goal: float | None = None,
    **changed: Any,
) -> Run:
    """A short serial run on a toy, up to a goal if there is one."""
    overrides = {
        "learner_config.model.hidden_sizes": [16],
        "learner_config.replay.batch_size": 8,
        "env_config.num_envs": 8,
        "session_config.agent.num": 1,
        "session_config.sender.flush_iteration": 16,
        "session_config.evaluator.interval_seconds": 0.2,
        "session_config.stop": {
            "env_steps": env_steps,
            "eval_return": goal,
            "eval_episodes": 20,
        },
    }
    overrides |= {key.replace("__", "."): value for key, value in changed.items()}
    return train(
        algorithm=algorithm, env=env, overrides=overrides, launcher="serial", folder=folder
    )


def acted_batch(agent: Any, *, seed: int = 0, spec: Any = DISCRETE) -> Batch:
    """A batch as it comes from an agent: what it did in rows that episodes begin and end in."""
    batch = make_batch(spec, seed=seed)
    first = torch.rand(T + 1, B) < 0.3
    actions, extras = [], []
    before = torch.randn(T + 1, B) * ~first
    for t in range(T):
        agent.first = first[t].numpy()
        if "reward" in agent.learner_config.model.get("memory_inputs", ()):
            agent.prev_reward = before[t]
        with torch.no_grad():
            acted, reported = agent.act(batch.obs[t])
        actions.append(torch.from_numpy(acted))
        extras.append({name: torch.from_numpy(x.copy()) for name, x in reported.items()})
    if agent.learner_config.model.get("memory_inputs"):
        batch["prev_rewards"] = before
    batch["first"] = first
    batch["actions"] = torch.stack(actions)
    batch["extras"] = {name: torch.stack([x[name] for x in extras]) for name in extras[0]}
    return batch


def prepare(learner: Any, batch: Batch) -> Batch:
    """The rows that PPO's updates are made from."""
    compute_advantages(learner, learner.algo.gae_lambda)(batch)
    if learner.algo.normalize_advantages:
        standardize("advantages")(batch)
    return rows_of(batch)
