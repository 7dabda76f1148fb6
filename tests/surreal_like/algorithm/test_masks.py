"""Updates under masks: targets come from legal actions alone, and every loss is finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.dqn import DQN, DQNAgent, DQNLearner
from surreal_like.algorithm.impala import Impala, ImpalaAgent, ImpalaLearner
from surreal_like.algorithm.ppo import PPO, PPOAgent, PPOLearner
from surreal_like.data.batch import Batch
from tests.surreal_like.algorithm.unrolls import DISCRETE, VECTOR, B, T, configs, make_batch

SPEC = {"action_mask": {"type": "int8", "dim": [3]}, "x": VECTOR}
GAMMA = 0.9


def setting(algorithm: type[Algorithm], **changed: Any) -> Any:
    torch.manual_seed(0)
    return configs(algorithm, DISCRETE, obs_spec=SPEC, **changed)


def seen(masks: Any) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(len(masks), 4), "action_mask": torch.tensor(masks, dtype=torch.int8)}


def transitions() -> Batch:
    """The next row: one legal action, all but the first, none after a cut, none at the end."""
    masks = [[0, 1, 0], [0, 1, 1], [0, 0, 0], [0, 0, 0]]
    return Batch(
        obs=seen([[1, 1, 0]] * 4),
        obs_next=seen(masks),
        actions=torch.tensor([0, 1, 0, 1]),
        rewards=torch.tensor([1.0, 2.0, 3.0, 4.0]),
        discounts=torch.tensor([GAMMA, GAMMA, GAMMA, 0.0]),
        weights=torch.ones(4),
    )


def bait(learner: Any, values: torch.Tensor | None = None) -> None:
    """Gives actions these values in every state, in both networks; by default 100, 1 and -5."""
    for network in (learner.q_network, learner.target.module):
        outputs = network.head.weight.shape[0] // 3
        with torch.no_grad():
            network.head.weight.zero_()
            usual = torch.tensor([100.0, 1.0, -5.0]).repeat_interleave(outputs)
            network.head.bias.copy_(usual if values is None else values)


@pytest.mark.parametrize("double", [False, True])
def test_values_bootstrap_from_legal_actions(double: bool) -> None:
    learner = DQNLearner(**setting(DQN, double=double))
    bait(learner)
    expected = torch.tensor([1.0 + GAMMA, 2.0 + GAMMA, 3.0, 4.0])
    torch.testing.assert_close(learner.bootstrap(transitions()), expected)


@pytest.mark.parametrize("double", [False, True])
def test_quantiles_bootstrap_from_legal_actions(double: bool) -> None:
    distribution = {"kind": "quantile", "quantiles": 4, "kappa": 0.0}
    learner = DQNLearner(**setting(DQN, double=double, distribution=distribution))
    bait(learner)
    batch = transitions()
    assert learner.next_distribution(batch)[:2].tolist() == [[1.0] * 4] * 2
    # Targets 1.9, 2.9, 3 and 4; the taken actions have the values 100, 1, 100 and 1.
    _, _, priorities = learner.quantiles(batch)
    torch.testing.assert_close(priorities, torch.tensor([98.1, 1.9, 97.0, 3.0]))


@pytest.mark.parametrize("double", [False, True])
def test_categorical_values_bootstrap_from_legal_actions(double: bool) -> None:
    distribution = {"kind": "categorical", "atoms": 3, "v_min": 0.0, "v_max": 4.0}
    learner = DQNLearner(**setting(DQN, double=double, distribution=distribution))
    # The first action is surely worth 4, the second 2, the third 0.
    bait(learner, 50.0 * torch.eye(3).flip(1).reshape(-1))
    batch = transitions()
    assert learner.next_distribution(batch)[:2].argmax(1).tolist() == [1, 1]
    assert learner.discounts(batch).tolist() == pytest.approx([GAMMA, GAMMA, 0.0, 0.0])
    loss = learner.loss(batch)
    assert isinstance(loss.total, torch.Tensor)
    assert torch.isfinite(loss.total)
    assert loss.priorities is not None
    assert torch.isfinite(loss.priorities).all()


def unrolls() -> Batch:
    """Unrolls in which only the second action is legal, and none in rows at an end."""
    batch = make_batch(DISCRETE)
    mask = torch.zeros(T + 1, B, 3, dtype=torch.int8)
    mask[:T, :, 1] = batch.mask.to(torch.int8)
    mask[T, 1:, 1] = 1
    batch["obs"] = {"x": batch.obs, "action_mask": mask}
    batch["actions"] = torch.where(batch.mask != 0, 1, 2)
    # The agent's policy, with the same mask.
    batch["extras"] = {"logits": torch.where(mask[:T] != 0, 0.5, -1e6)}
    return batch


@pytest.mark.parametrize("kind", ["impala", "ppo"])
def test_losses_of_unrolls_are_finite_where_nothing_is_legal(kind: str) -> None:
    learner = (
        ImpalaLearner(**setting(Impala))
        if kind == "impala"
        else PPOLearner(**setting(PPO, kl={"coefficient": 0.2}))
    )
    batch = unrolls()
    if kind == "ppo":
        batch["log_probs"] = torch.zeros(T, B)
        batch["advantages"] = batch["value_targets"] = torch.randn(T, B) * batch.mask
    loss = learner.loss(batch)
    assert isinstance(loss.total, torch.Tensor)
    assert torch.isfinite(loss.total)
    # With a single legal action, the policy is sure, and never changes.
    assert float(loss.metrics["entropy"]) == pytest.approx(0.0, abs=1e-6)
    gradients = torch.autograd.grad(
        loss.total, list(learner.network.parameters()), allow_unused=True
    )
    assert all(torch.isfinite(each).all() for each in gradients if each is not None)


@pytest.mark.parametrize("mode", ["training", "eval_stochastic", "eval_deterministic"])
@pytest.mark.parametrize("kind", ["dqn", "ppo", "impala"])
def test_agents_take_legal_actions_only(kind: str, mode: str) -> None:
    agents = {"dqn": (DQNAgent, DQN), "ppo": (PPOAgent, PPO), "impala": (ImpalaAgent, Impala)}
    cls, algorithm = agents[kind]
    epsilon = {"epsilon": 0.7, "eval_epsilon": 0.7} if kind == "dqn" else {}
    agent = cls(**setting(algorithm, **epsilon), agent_id=0, agent_mode=mode)
    masks = np.random.default_rng(0).integers(0, 2, (400, 3))
    masks[np.arange(400), np.arange(400) % 3] = 1
    with torch.inference_mode():
        answer = agent.act(seen(masks.tolist()))
    actions = answer[0] if isinstance(answer, tuple) else answer
    assert masks[np.arange(400), actions].all()
    if isinstance(answer, tuple):
        assert all(np.isfinite(column).all() for column in answer[1].values())
