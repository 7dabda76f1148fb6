"""Scales of actions, critics side by side, and policies within bounds."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from surreal_like.errors import SpecError
from surreal_like.network.continuous import (
    ActionScale,
    Critics,
    DeterministicPolicy,
    SquashedPolicy,
)
from surreal_like.network.torso import TORSO_CONFIG

VECTOR = {"type": "float32", "dim": [3]}
PAIR = {"a": VECTOR, "b": {"type": "int64", "dim": [], "num": 4}}
MODEL = {**TORSO_CONFIG, "hidden_sizes": [8, 5]}


def action_spec(low: Any, high: Any, dim: list[int]) -> dict[str, Any]:
    return {"type": "continuous", "dim": dim, "low": low, "high": high}


class Own(nn.Module):
    """A torso that a user wrote."""

    def __init__(self, obs_spec: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 6)
        self.out_features = 6

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.layer(obs)
        return features


def test_a_scale_goes_from_bound_to_bound_and_back() -> None:
    scale = ActionScale(action_spec([-2.0, 0.0], [2.0, 10.0], [2]))
    unit = torch.tensor([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.5]])
    expected = torch.tensor([[-2.0, 0.0], [2.0, 10.0], [0.0, 7.5]])
    assert torch.equal(scale.to_env(unit), expected)
    assert torch.equal(scale.to_unit(expected), unit)


def test_actions_of_any_shape_are_vectors_inside() -> None:
    scale = ActionScale(action_spec(-3.0, 3.0, [2, 3]))
    assert scale.size == 6
    actions = scale.to_env(torch.rand(5, 6))
    assert actions.shape == (5, 2, 3)
    assert scale.to_unit(actions).shape == (5, 6)


@pytest.mark.parametrize("from_zero", [False, True])
def test_rounding_leads_no_action_out_of_its_bounds(from_zero: bool) -> None:
    low, high = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0)).sort(0).values
    scale = ActionScale(action_spec(low.tolist(), high.tolist(), [1000]), from_zero=from_zero)
    for unit in (0.0 if from_zero else -1.0, 1.0):
        actions = scale.to_env(torch.full((1, 1000), unit))
        assert ((low <= actions) & (actions <= high)).all()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"type": "continuous", "dim": [1]}, "need finite bounds, .* low None and high None"),
        (action_spec([-1.0], [float("inf")], [1]), r"low \[-1\.0\] and high \[inf\]"),
        (action_spec([1.0], [1.0], [1]), r"low \[1\.0\], not below high \[1\.0\]"),
    ],
)
def test_actions_without_bounds_are_refused(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        ActionScale(spec)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_critics_at_once_are_the_critics_one_by_one(count: int) -> None:
    critics = Critics(VECTOR, 2, MODEL, count=count)
    obs, actions = torch.randn(7, 3), torch.randn(7, 2)
    found = critics(obs, actions)
    assert found.shape == (count, 7)
    for index in range(count):
        x = torch.cat((obs, actions), 1)
        layers = list(zip(critics.layers.weights, critics.layers.biases, strict=True))
        for place, (weight, bias) in enumerate(layers):
            x = functional.linear(x, weight[index].T, bias[index, 0])
            x = torch.relu(x) if place < len(layers) - 1 else x
        assert torch.allclose(found[index], x[:, 0], atol=1e-6)


def test_critics_share_nothing() -> None:
    torch.manual_seed(0)
    critics = Critics(VECTOR, 2, MODEL)
    critics(torch.randn(7, 3), torch.randn(7, 2))[0].sum().backward()
    for each in critics.parameters():
        assert each.grad is not None
        assert not each.grad[1].any()
    weights = critics.layers.weights[0]
    assert not torch.equal(weights[0], weights[1])
    assert float(weights.detach().abs().max()) <= 5**-0.5


def test_a_torso_of_ones_own_comes_before_each_critic() -> None:
    critics = Critics(VECTOR, 2, {**MODEL, "torso": f"{__name__}:Own"})
    first, second = (list(encoder.parameters()) for encoder in critics.encoders)
    assert not torch.equal(first[0], second[0])
    found = critics(torch.randn(7, 3), torch.randn(7, 2))
    assert found.shape == (2, 7)
    found[0].sum().backward()
    assert first[0].grad is not None
    assert first[0].grad.any()
    assert second[0].grad is None or not second[0].grad.any()


def test_critics_take_nests() -> None:
    obs = {"a": torch.randn(7, 3), "b": torch.randint(0, 4, (7,))}
    assert Critics(PAIR, 2, MODEL)(obs, torch.randn(7, 2)).shape == (2, 7)


def test_policies_stay_within_bounds() -> None:
    obs = 100.0 * torch.randn(50, 3)
    actions = DeterministicPolicy(VECTOR, 2, MODEL)(obs)
    assert actions.shape == (50, 2)
    assert float(actions.detach().abs().max()) <= 1.0
    squashed = SquashedPolicy(VECTOR, 2, MODEL)(obs)
    assert squashed.sample().shape == (50, 2)
    assert float(squashed.sample().abs().max()) <= 1.0
