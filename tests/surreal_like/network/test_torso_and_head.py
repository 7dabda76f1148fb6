"""MLP, Q heads."""

import pytest
import torch

from session.errors import ConfigError
from surreal_like.network.head import DuelingHead, QHead
from surreal_like.network.torso import ACTIVATIONS, MLP


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_an_mlp_puts_the_activation_after_every_layer(activation: str) -> None:
    mlp = MLP(3, [5, 2], activation=activation)
    first, second = mlp.layers
    x = torch.randn(7, 3)
    expected = ACTIVATIONS[activation](second(ACTIVATIONS[activation](first(x))))
    assert torch.equal(mlp(x), expected)
    assert mlp.out_features == 2


def test_an_unknown_activation_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'rele', expected one of elu, gelu, relu, silu, tanh"):
        MLP(3, [5], activation="rele")


def test_a_q_head_has_one_value_for_each_action() -> None:
    assert QHead(6, 3)(torch.randn(2, 6)).shape == (2, 3)


@pytest.mark.parametrize("hidden_sizes", [(), (8,)])
def test_a_dueling_head_is_value_plus_advantage_less_its_mean(hidden_sizes: tuple[int]) -> None:
    head = DuelingHead(6, 3, hidden_sizes=hidden_sizes)
    features = torch.randn(2, 6)
    value, advantage = head.value(features), head.advantage(features)
    q_values = head(features)
    for row in range(2):
        mean = sum(advantage[row].tolist()) / 3
        for action in range(3):
            expected = value[row, 0].item() + advantage[row, action].item() - mean
            assert q_values[row, action].item() == pytest.approx(expected, abs=1e-6)
    assert torch.allclose(q_values.mean(1, keepdim=True), value, atol=1e-6)
