"""Masks of actions in networks: golden numbers, and what a mask may not change."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from surreal_like.network.actor_critic import ACTOR_CRITIC_CONFIG, ActorCritic
from surreal_like.network.distribution import Categorical
from surreal_like.network.encoder import make_encoder
from surreal_like.network.masks import (
    MASKED_LOGIT,
    MASKED_VALUE,
    ActionMask,
    legal_values,
    mask_logits,
    mask_values,
)
from surreal_like.network.q_network import DISTRIBUTION_CONFIG, Q_NETWORK_CONFIG, QNetwork
from surreal_like.transform.normalizer import Normalizer

FEATURES = {"type": "float32", "dim": [4]}
SPEC = {"action_mask": {"type": "float32", "dim": [3]}, "x": FEATURES}
DISCRETE = {"type": "discrete", "dim": [3]}
B = 6


def make_obs(mask: Any, *leading: int) -> dict[str, torch.Tensor]:
    x = torch.randn(*leading, 4, generator=torch.Generator().manual_seed(0))
    return {"x": x, "action_mask": torch.tensor(mask, dtype=torch.float32).expand(*leading, 3)}


def test_illegal_values_are_low_and_a_row_without_legal_ones_is_worth_nothing() -> None:
    values = torch.tensor([[1.0, 5.0, -2.0], [1.0, 5.0, -2.0], [1.0, 5.0, -2.0]])
    legal = torch.tensor([[True, False, True], [True, True, True], [False, False, False]])
    expected = torch.tensor([[1.0, -1e9, -2.0], [1.0, 5.0, -2.0], [0.0, 0.0, 0.0]])
    found = mask_values(values, legal)
    assert torch.equal(found, expected)
    assert legal_values(found).tolist() == [[True, False, True], [True] * 3, [True] * 3]


def test_probabilities_are_those_of_legal_actions_alone() -> None:
    logits = torch.tensor([[0.0, 50.0, math.log(3.0)]], requires_grad=True)
    masked = Categorical(mask_logits(logits, torch.tensor([[True, False, True]])))
    probabilities = masked.log_probs.exp()
    torch.testing.assert_close(probabilities, torch.tensor([[0.25, 0.0, 0.75]]))
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    torch.testing.assert_close(masked.entropy(), torch.tensor([entropy]))
    assert masked.mode().tolist() == [2]
    (gradient,) = torch.autograd.grad(masked.entropy().sum(), logits)
    assert gradient[0, 1] == 0.0
    assert torch.isfinite(gradient).all()


def test_the_policy_of_a_row_without_legal_actions_is_finite() -> None:
    logits = torch.tensor([[0.0, 50.0, -7.0]], requires_grad=True)
    none = Categorical(mask_logits(logits, torch.zeros(1, 3, dtype=torch.bool)))
    torch.testing.assert_close(none.log_probs, torch.full((1, 3), -math.log(3.0)))
    other = Categorical(none.columns()["logits"])
    total = none.entropy() + none.kl(other) + none.log_prob(torch.tensor([1]))
    (gradient,) = torch.autograd.grad(total.sum(), logits)
    assert torch.equal(gradient, torch.zeros(1, 3))


def test_a_masked_action_is_never_drawn() -> None:
    logits = torch.tensor([0.0, 1e4, -1e4]).expand(10_000, 3)
    policy = Categorical(mask_logits(logits, torch.tensor([True, False, False])))
    assert set(policy.sample(torch.Generator().manual_seed(0)).tolist()) == {0}


def test_of_a_stack_the_newest_mask_counts() -> None:
    stacked = ActionMask({"x": FEATURES, "action_mask": {"type": "int8", "dim": [2, 3]}})
    mask = torch.tensor([[[1, 1, 1], [0, 1, 0]]], dtype=torch.int8)
    assert stacked.legal({"action_mask": mask}).tolist() == [[False, True, False]]


def test_a_mask_is_no_feature() -> None:
    encoder = make_encoder(SPEC)
    assert encoder.out_features == 4
    normalizer = Normalizer(SPEC)
    normalizer.update(make_obs([1, 0, 1], B))
    assert normalizer(make_obs([1, 0, 1], B)).keys() == {"x"}
    assert [name for name, _ in normalizer.named_buffers() if name.endswith("mean")] == [
        "parts.0.mean"
    ]


@pytest.mark.parametrize("normal", [False, True])
@pytest.mark.parametrize("kind", ["none", "categorical", "quantile"])
@pytest.mark.parametrize("dueling", [False, True])
def test_a_mask_changes_values_only_where_it_forbids(
    normal: bool, kind: str, dueling: bool
) -> None:
    torch.manual_seed(0)
    model = {**Q_NETWORK_CONFIG, "normalize_obs": normal}
    distribution = {**DISTRIBUTION_CONFIG, "kind": kind}
    network = QNetwork(SPEC, 3, model=model, dueling=dueling, distribution=distribution)
    free, masked = (network(make_obs(mask, B)) for mask in ([1, 1, 1], [1, 0, 1]))
    assert torch.equal(free[:, [0, 2]], masked[:, [0, 2]])
    assert (masked[:, 1] == MASKED_VALUE).all()
    outputs = [network.distribution(make_obs(mask, B)) for mask in ([1, 1, 1], [1, 0, 1])]
    assert torch.equal(*outputs)
    assert network.on_arrays() is None


@pytest.mark.parametrize("memory", ["", "lstm"])
def test_a_mask_changes_policies_only_where_it_forbids(memory: str) -> None:
    torch.manual_seed(0)
    model = {**ACTOR_CRITIC_CONFIG, "memory": memory, "normalize_obs": True}
    network = ActorCritic(SPEC, DISCRETE, model)
    state = None if network.core is None else network.core.initial_state(B)
    first = torch.zeros(5, B, dtype=torch.bool)
    found = [network.unroll(make_obs(m, 5, B), state, first) for m in ([1, 1, 1], [1, 0, 1])]
    (free, values), (masked, same) = found
    assert torch.equal(values, same)
    logits, other = free.columns()["logits"], masked.columns()["logits"]
    assert torch.equal(logits[..., [0, 2]], other[..., [0, 2]])
    assert (other[..., 1] == MASKED_LOGIT).all()
    # Acting and the single rows of PPO's updates agree with it.
    rows = {name: x[0] for name, x in make_obs([1, 0, 1], 5, B).items()}
    acted, _ = network.act(rows, state, first[0])
    torch.testing.assert_close(acted.columns()["logits"], other[0])
    if not memory:
        torch.testing.assert_close(network(rows)[0].columns()["logits"], other[0])
