"""PopArt: golden numbers; values do not change when their scale does."""

import math

import numpy as np
import pytest
import torch

from surreal_like.learner.target import ValueScale
from surreal_like.network.head import ScaledValueHead


def golden_head() -> ScaledValueHead:
    head = ScaledValueHead(2)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[0.5, -1.0]]))
        head.bias.copy_(torch.tensor([0.25]))
    return head


def test_the_golden_update() -> None:
    head = golden_head()
    scale = ValueScale(head)
    x = torch.tensor([[1.0, 2.0]])
    assert head(x).item() == pytest.approx(-1.25)
    scale.update(torch.tensor([10.0, 12.0, 8.0, 14.0]))
    assert (scale.mu, scale.sigma) == pytest.approx((11.0, 2.236068), rel=1e-6)
    assert head.weight[0].tolist() == pytest.approx([0.223607, -0.447214], rel=1e-5)
    assert head.bias.tolist() == pytest.approx([-4.807546], rel=1e-5)
    assert head(x).item() == pytest.approx(-1.25, rel=1e-5)


def test_no_value_changes_over_many_updates_of_any_size() -> None:
    torch.manual_seed(0)
    head = ScaledValueHead(4)
    scale = ValueScale(head)
    x, rng, targets = torch.randn(50, 4), np.random.default_rng(0), []
    before = head(x)
    for size in (1, 7, 300, 2):
        targets += (rng.normal(3.0, 100.0, size) * rng.choice([0.1, 1.0])).tolist()
        scale.update(torch.tensor(targets[-size:]))
        torch.testing.assert_close(head(x), before, rtol=1e-4, atol=1e-4)
    assert scale.mu == pytest.approx(np.mean(targets), rel=1e-5)
    assert scale.sigma == pytest.approx(np.std(targets), rel=1e-5)


@pytest.mark.parametrize("targets", [[], [1.0, math.nan], [math.inf]])
def test_targets_that_are_none_or_not_finite_change_nothing(targets: list[float]) -> None:
    head = golden_head()
    scale = ValueScale(head)
    scale.update(torch.tensor(targets))
    assert (scale.mu, scale.sigma) == (0.0, 1.0)
    assert head.weight[0].tolist() == [0.5, -1.0]


def test_equal_targets_give_a_finite_head() -> None:
    head = golden_head()
    scale = ValueScale(head)
    scale.update(torch.full((9,), 3.0))
    assert scale.sigma == pytest.approx(1e-4)
    assert head(torch.tensor([[1.0, 2.0]])).item() == pytest.approx(-1.25, abs=1e-3)


def test_its_state_is_that_of_the_head() -> None:
    head, other_head = golden_head(), ScaledValueHead(2)
    scale, other = ValueScale(head), ValueScale(other_head)
    scale.update(torch.tensor([10.0, 12.0]))
    other_head.load_state_dict(head.state_dict())
    for each in (scale, other):
        each.update(torch.tensor([4.0, -7.0]))
    assert torch.equal(head.weight, other_head.weight)
    assert torch.equal(head.bias, other_head.bias)
    assert (scale.mu, scale.sigma) == (other.mu, other.sigma)
