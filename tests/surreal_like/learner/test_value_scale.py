"""PopArt: golden numbers; values do not change when their scale does."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from surreal_like.learner.value_scale import ValueScale


def golden_head() -> nn.Linear:
    head = nn.Linear(2, 1)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[0.5, -1.0]]))
        head.bias.copy_(torch.tensor([0.25]))
    return head


def test_the_golden_update() -> None:
    head = golden_head()
    scale = ValueScale(head)
    x = torch.tensor([[1.0, 2.0]])
    assert scale.to_value(head(x)).item() == pytest.approx(-1.25)
    scale.update(torch.tensor([10.0, 12.0, 8.0, 14.0]))
    assert (scale.mu.item(), scale.sigma.item()) == pytest.approx((11.0, 2.236068), rel=1e-6)
    assert head.weight[0].tolist() == pytest.approx([0.223607, -0.447214], rel=1e-5)
    assert head.bias.tolist() == pytest.approx([-4.807546], rel=1e-5)
    assert scale.to_value(head(x)).item() == pytest.approx(-1.25, rel=1e-5)
    assert scale.to_normalized(torch.tensor([11.0])).item() == 0.0


def test_no_value_changes_over_many_updates_of_any_size() -> None:
    torch.manual_seed(0)
    head = nn.Linear(4, 1)
    scale = ValueScale(head)
    x, rng, targets = torch.randn(50, 4), np.random.default_rng(0), []
    before = scale.to_value(head(x))
    for size in (1, 7, 300, 2):
        targets += (rng.normal(3.0, 100.0, size) * rng.choice([0.1, 1.0])).tolist()
        scale.update(torch.tensor(targets[-size:]))
        torch.testing.assert_close(scale.to_value(head(x)), before, rtol=1e-4, atol=1e-4)
    assert scale.mu.item() == pytest.approx(np.mean(targets), rel=1e-5)
    assert scale.sigma.item() == pytest.approx(np.std(targets), rel=1e-5)
    again = scale.to_value(scale.to_normalized(before))
    torch.testing.assert_close(again, before, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("targets", [[], [1.0, math.nan], [math.inf]])
def test_targets_that_are_none_or_not_finite_change_nothing(targets: list[float]) -> None:
    head = golden_head()
    scale = ValueScale(head)
    scale.update(torch.tensor(targets))
    assert (scale.mu.item(), scale.sigma.item()) == (0.0, 1.0)
    assert head.weight[0].tolist() == [0.5, -1.0]


def test_equal_targets_give_a_finite_head() -> None:
    head = golden_head()
    scale = ValueScale(head)
    scale.update(torch.full((9,), 3.0))
    assert scale.sigma.item() == pytest.approx(1e-4)
    assert scale.to_value(head(torch.tensor([[1.0, 2.0]]))).item() == pytest.approx(-1.25, abs=1e-3)


def test_it_is_restored_with_its_head() -> None:
    head, other_head = golden_head(), nn.Linear(2, 1)
    scale, other = ValueScale(head), ValueScale(other_head)
    scale.update(torch.tensor([10.0, 12.0]))
    other_head.load_state_dict(head.state_dict())
    other.load_state_dict(scale.state_dict())
    for each in (scale, other):
        each.update(torch.tensor([4.0, -7.0]))
    assert torch.equal(head.weight, other_head.weight)
    assert torch.equal(head.bias, other_head.bias)
    assert (scale.mu, scale.sigma) == (other.mu, other.sigma)
