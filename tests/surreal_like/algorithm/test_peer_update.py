"""PPO makes of the same rows the same parameters as stable-baselines3.

tests/golden/sb3_ppo.json was written by benchmarks/peers/sb3_ppo_step.py with stable-baselines3.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from surreal_like.algorithm.ppo import PPO, PPOLearner
from surreal_like.data.batch import Batch
from surreal_like.dataflow import compute_advantages
from surreal_like.dataflow.batches import rows_of
from tests.surreal_like.algorithm.unrolls import configs

FILE = Path(__file__).parents[2] / "golden" / "sb3_ppo.json"
OBS = {"type": "float32", "dim": [3]}
ACTION = {"type": "continuous", "dim": [2], "low": [-1.0] * 2, "high": [1.0] * 2}
# Parts of our network, by those of the peer.
PARTS = {
    "log_std": "head.log_std",
    "mlp_extractor.policy_net.0.": "torso.mlp.layers.0.",
    "mlp_extractor.value_net.0.": "value_torso.mlp.layers.0.",
    "action_net.": "head.",
    "value_net.": "value_head.",
}


@pytest.fixture(scope="module")
def peer() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def parameters(peer: dict[str, Any], moment: str) -> dict[str, torch.Tensor]:
    """Returns parameters of the peer by our names."""
    found = {}
    for name, values in peer[moment].items():
        (theirs,) = [each for each in PARTS if name.startswith(each)]
        found[name.replace(theirs, PARTS[theirs])] = torch.tensor(values)
    return found


def make_learner(peer: dict[str, Any]) -> PPOLearner:
    given = peer["settings"]
    algo = {
        "gamma": given["gamma"],
        "gae_lambda": given["gae_lambda"],
        "learning_rate": {"kind": "constant", "start": given["learning_rate"]},
        "num_sgd_iter": given["n_epochs"],
        "minibatches": given["n_steps"] // given["batch_size"],
        "clip": {"kind": "constant", "start": given["clip_range"]},
        "entropy": {"kind": "constant", "start": given["ent_coef"]},
        # Ours is of half the squared errors.
        "value_weight": 2.0 * given["vf_coef"],
        "max_grad_norm": given["max_grad_norm"],
        "normalize_advantages_per": "minibatch",
    }
    model = {"model": {"hidden_sizes": [8], "shared": False}}
    learner = PPOLearner(**configs(PPO, ACTION, obs_spec=OBS, learner=model, **algo))
    with torch.no_grad():
        for name, value in parameters(peer, "before").items():
            learner.network.state_dict()[name].copy_(value)
    return learner


def make_batch(peer: dict[str, Any], learner: PPOLearner) -> Batch:
    """Returns the steps of the peer as an unroll: an episode's last observation has a row, too."""
    gamma = peer["settings"]["gamma"]
    rows: list[tuple[Any, Any, float, float, float, bool]] = []
    first = True
    for step in peer["steps"]:
        discount = 0.0 if step["terminated"] else gamma
        rows.append((step["obs"], step["action"], step["reward"], discount, 1.0, first))
        first = step["terminated"] or step["truncated"]
        if first:
            rows.append((step["next"], [0.0, 0.0], 0.0, gamma, 0.0, False))
    obs, actions, rewards, discounts, mask, begins = map(list, zip(*rows, strict=True))
    batch = Batch(
        obs=torch.tensor([*obs, peer["steps"][-1]["next"]])[:, None],
        actions=torch.tensor(actions)[:, None],
        rewards=torch.tensor(rewards)[:, None],
        discounts=torch.tensor(discounts)[:, None],
        dones=(torch.tensor(discounts) == 0.0).float()[:, None],
        mask=torch.tensor(mask)[:, None],
        first=torch.tensor([*begins, False])[:, None],
    )
    with torch.no_grad():
        policy, _ = learner.network(batch.obs[:-1, 0])
    batch["extras"] = {name: each[:, None] for name, each in policy.columns().items()}
    return batch


def test_the_task_has_both_ends(peer: dict[str, Any]) -> None:
    ends = [step for step in peer["steps"] if step["terminated"] or step["truncated"]]
    assert {step["terminated"] for step in ends} == {True, False}


def test_advantages_are_those_of_the_peer(peer: dict[str, Any]) -> None:
    learner = make_learner(peer)
    flow = compute_advantages(learner, lambda_=peer["settings"]["gae_lambda"])
    batch = make_batch(peer, learner)
    flow(batch)
    found = rows_of(batch).advantages
    torch.testing.assert_close(found, torch.tensor(peer["advantages"]), atol=1e-5, rtol=1e-5)


def test_a_training_ends_at_the_parameters_of_the_peer(
    peer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, orders = make_learner(peer), iter(peer["orders"])
    batch = make_batch(peer, learner)
    monkeypatch.setattr(torch, "randperm", lambda size, **options: torch.tensor(next(orders)))
    learner.learn(batch)
    assert next(orders, None) is None
    ours, before = learner.network.state_dict(), parameters(peer, "before")
    for name, theirs in parameters(peer, "after").items():
        assert not torch.allclose(theirs, before[name], atol=1e-3), name
        torch.testing.assert_close(ours[name], theirs, atol=1e-6, rtol=1e-5)
