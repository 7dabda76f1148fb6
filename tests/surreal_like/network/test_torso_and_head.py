"""MLP, torsos by config, heads."""

from typing import Any

import pytest
import torch
from torch import nn

from session.errors import ConfigError
from surreal_like.network.distribution import (
    Categorical,
    Distribution,
    Gaussian,
    MultiCategorical,
)
from surreal_like.network.head import (
    DuelingHead,
    SquashedGaussianHead,
    ValueHead,
    make_policy_head,
)
from surreal_like.network.torso import ACTIVATIONS, MLP, TORSO_CONFIG, Torso, make_torso


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_an_mlp_puts_the_activation_after_every_layer(activation: str) -> None:
    mlp = MLP(3, [5, 2], activation=activation)
    first, second = mlp.layers
    x = torch.randn(7, 3)
    expected = ACTIVATIONS[activation](second(ACTIVATIONS[activation](first(x))))
    assert torch.equal(mlp(x), expected)
    assert mlp.out_features == 2


def test_layers_are_normalized_before_the_activation() -> None:
    mlp = MLP(3, [5, 2], activation="tanh", layer_norm=True)
    x = torch.randn(7, 3)
    for layer in mlp.layers:
        assert isinstance(layer.linear, nn.Linear)
        plain = layer.linear(x)
        deviation = plain.std(1, keepdim=True, correction=0)
        expected = torch.tanh((plain - plain.mean(1, keepdim=True)) / (deviation**2 + 1e-5).sqrt())
        x = layer(x).tanh()
        torch.testing.assert_close(x, expected)
    torso = make_torso({"type": "float32", "dim": [3]}, TORSO_CONFIG | {"layer_norm": True})
    assert sum("norm" in name for name, _ in torso.named_parameters()) == 4


def test_an_unknown_activation_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'rele', expected one of elu, gelu, relu, silu, tanh"):
        MLP(3, [5], activation="rele")


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


@pytest.mark.parametrize("leading", [(), (5,), (4, 5)])
def test_a_value_head_has_one_value_for_each_row(leading: tuple[int, ...]) -> None:
    head, features = ValueHead(6), torch.randn(*leading, 6)
    expected = features @ head.weight[0] + head.bias[0]
    assert head(features).shape == leading
    assert torch.allclose(head(features), expected, atol=1e-6)


ACTIONS: list[tuple[dict[str, Any], type, tuple[int, ...]]] = [
    ({"type": "discrete", "dim": [3]}, Categorical, ()),
    ({"type": "multi_discrete", "dim": [3, 2]}, MultiCategorical, (2,)),
    ({"type": "multi_discrete", "dim": [3]}, MultiCategorical, (1,)),
    ({"type": "continuous", "dim": [4]}, Gaussian, (4,)),
    ({"type": "continuous", "dim": [2, 3]}, Gaussian, (6,)),
]


@pytest.mark.parametrize(("spec", "kind", "shape"), ACTIONS)
@pytest.mark.parametrize("leading", [(5,), (4, 5)])
def test_a_policy_head_suits_the_actions(
    spec: dict[str, Any], kind: type, shape: tuple[int, ...], leading: tuple[int, ...]
) -> None:
    policy: Distribution = make_policy_head(6, spec)(torch.randn(*leading, 6))
    assert type(policy) is kind
    assert policy.sample().shape == (*leading, *shape)
    assert policy.log_prob(policy.mode()).shape == leading


@pytest.mark.parametrize(("spec", "kind", "shape"), ACTIONS)
def test_a_policy_is_made_again_from_its_columns(
    spec: dict[str, Any], kind: type, shape: tuple[int, ...]
) -> None:
    head = make_policy_head(6, spec, log_std=-0.7)
    policy = head(torch.randn(5, 6))
    again = head.of(policy.columns())
    torch.testing.assert_close(policy.kl(again), torch.zeros(5), rtol=0, atol=1e-6)
    if kind is Gaussian:
        assert policy.columns()["log_std"].shape == (5, *shape)
        assert torch.equal(policy.log_std, torch.full((5, *shape), -0.7))


def test_a_squashed_head_keeps_its_deviation_in_bounds() -> None:
    head = SquashedGaussianHead(6, 2)
    policy = head(1e4 * torch.randn(50, 6))
    log_std = policy.columns()["log_std"].detach()
    assert (float(log_std.min()), float(log_std.max())) == (-20.0, 2.0)
    again = head.of(policy.columns())
    assert torch.equal(policy.mode(), again.mode())
    assert policy.mode().shape == (50, 2)


BOX = {"type": "continuous", "dim": [2, 3], "low": -2.0, "high": 4.0}


@pytest.mark.parametrize("policy", ["beta", "squashed_gaussian"])
@pytest.mark.parametrize("leading", [(5,), (4, 5)])
def test_a_bounded_head_stays_within_bounds(policy: str, leading: tuple[int, ...]) -> None:
    head = make_policy_head(6, BOX, policy=policy)
    found = head(9.0 * torch.randn(*leading, 6))
    actions = found.sample()
    assert actions.shape == (*leading, 6)
    assert -2.0 <= float(actions.min()) < 1.0 < float(actions.max()) <= 4.0
    again = head.of(found.columns())
    assert torch.equal(found.log_prob(actions), again.log_prob(actions))
    assert list(head.state_dict()) == [name for name, _ in head.named_parameters()]


def test_a_beta_head_without_weights_is_the_golden_one() -> None:
    head = make_policy_head(6, BOX, policy="beta")
    with torch.no_grad():
        for each in head.parameters():
            each.zero_()
    columns = head(torch.randn(1, 6)).columns()
    assert columns["alpha"][0].tolist() == pytest.approx([1.693147] * 6, rel=1e-6)
    assert columns["beta"][0].tolist() == pytest.approx([1.693147] * 6, rel=1e-6)


@pytest.mark.parametrize(
    ("policy", "spec", "words"),
    [
        ("betta", BOX, "'betta', expected one of gaussian, beta, squashed_gaussian"),
        (
            "beta",
            {"type": "discrete", "dim": [3]},
            "discrete actions have no bounds: set it to gaussian",
        ),
        ("beta", {"type": "continuous", "dim": [2]}, "low None and high None: set it to gaussian"),
        ("squashed_gaussian", {**BOX, "high": None}, "need finite bounds"),
    ],
)
def test_a_policy_that_does_not_suit_the_actions_is_refused(
    policy: str, spec: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        make_policy_head(6, spec, policy=policy)


class Own(nn.Module):
    """A torso that a user wrote."""

    def __init__(self, obs_spec: dict[str, Any], *, width: int = 5) -> None:
        super().__init__()
        self.layer = nn.Linear(obs_spec["dim"][0], width)
        self.out_features = width

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.layer(obs)
        return features


class NoWidth(nn.Module):
    """One that does not say how wide it is."""

    def __init__(self, obs_spec: dict[str, Any]) -> None:
        super().__init__()


class Wrong(Own):
    """One that says another width."""

    def __init__(self, obs_spec: dict[str, Any]) -> None:
        super().__init__(obs_spec)
        self.out_features = 7


class Fails(Own):
    """Its first layer takes four more numbers than there are."""

    def __init__(self, obs_spec: Any) -> None:
        super().__init__({"dim": [7]})


class OfSpace(nn.Module):
    """One that is written for a space of Gymnasium."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.out_features = space.shape[0]


VECTOR = {"type": "float32", "dim": [3]}


def test_a_torso_is_made_as_the_config_says() -> None:
    model = {**TORSO_CONFIG, "hidden_sizes": [7, 5], "activation": "tanh"}
    torso = make_torso(VECTOR, model)
    assert isinstance(torso, Torso)
    assert torso.out_features == 5
    assert torso.mlp.activation is torch.tanh


def test_a_user_brings_a_torso() -> None:
    model = {**TORSO_CONFIG, "torso": f"{__name__}:Own", "torso_args": {"width": 9}}
    assert make_torso(VECTOR, model)(torch.randn(2, 3)).shape == (2, 9)


class Taking(Own):
    """A torso that takes its widths out of its argument."""

    def __init__(self, obs_spec: Any, widths: list[int]) -> None:
        super().__init__(obs_spec, width=widths.pop())


def test_each_torso_gets_arguments_of_its_own() -> None:
    arguments = {"widths": [9]}
    model = {**TORSO_CONFIG, "torso": f"{__name__}:Taking", "torso_args": arguments}
    assert [make_torso(VECTOR, model).out_features for _ in range(2)] == [9, 9]
    assert arguments == {"widths": [9]}


@pytest.mark.parametrize(
    ("torso", "arguments", "words"),
    [
        ("nowhere:Net", {}, r"torso 'nowhere:Net' cannot be imported: No module"),
        ("Net", {}, "torso is 'Net', expected package.module:Name or file.py:Name"),
        (f"{__name__}:Other", {}, "has no 'Other'"),
        (f"{__name__}:Own", {"widht": 9}, r"cannot be built with torso_args: .*'widht'"),
        (f"{__name__}:NoWidth", {}, "gives NoWidth, expected .* out_features"),
        (f"{__name__}:OfSpace", {}, "OfSpace' cannot be built .*'shape'; its first argument is"),
        (f"{__name__}:Wrong", {}, r"Wrong' gives features of shape \[1, 5\] .*out_features is 7"),
        (f"{__name__}:Fails", {}, r"Fails' fails with one observation of zeros, .*'dim': \[3\]"),
        ("builtins:dict", {}, "gives dict, expected a torch.nn.Module"),
    ],
)
def test_a_torso_that_does_not_fit_is_refused(
    torso: str, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        make_torso(VECTOR, {**TORSO_CONFIG, "torso": torso, "torso_args": arguments})
