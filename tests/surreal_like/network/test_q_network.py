"""Q-networks: values, distributions, streams, noise."""

from typing import Any

import pytest
import torch
from torch import nn

from session.errors import ConfigError
from surreal_like.network.head import DuelingHead
from surreal_like.network.noisy import NoisyLinear
from surreal_like.network.q_network import DISTRIBUTION_CONFIG, Q_NETWORK_CONFIG, QNetwork
from surreal_like.network.torso import MLP

VECTOR = {"type": "float32", "dim": [4]}
OBS = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


def make(*, dueling: bool = False, kind: str = "none", **model: Any) -> QNetwork:
    torch.manual_seed(0)
    distribution = {**DISTRIBUTION_CONFIG, "kind": kind, "atoms": 5, "v_min": -2, "v_max": 2}
    return QNetwork(
        VECTOR,
        3,
        model={**Q_NETWORK_CONFIG, **model},
        dueling=dueling,
        distribution={**distribution, "quantiles": 7},
    )


def test_hooks_of_the_torso_are_called() -> None:
    network, seen = make(), list[torch.Tensor]()
    network.torso.register_forward_hook(lambda torso, given, features: seen.append(features))
    network(OBS)
    assert len(seen) == 1


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize(("kind", "outputs"), [("none", 1), ("categorical", 5), ("quantile", 7)])
def test_values_are_the_means_of_distributions(dueling: bool, kind: str, outputs: int) -> None:
    network = make(dueling=dueling, kind=kind)
    found, values = network.distribution(OBS), network(OBS)
    assert found.shape == (5, 3, outputs)
    assert values.shape == (5, 3)
    if kind == "categorical":
        expected = (found.softmax(-1) * torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0])).sum(-1)
    else:
        expected = found.mean(-1)
    torch.testing.assert_close(values, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["none", "categorical", "quantile"])
def test_dueling_is_value_plus_advantage_less_its_mean_per_output(kind: str) -> None:
    network = make(dueling=True, kind=kind, head_sizes=[6])
    assert isinstance(network.head, DuelingHead)
    features = network.torso(OBS)
    value, advantage = network.head.value(features), network.head.advantage(features)
    advantage = advantage.reshape(5, 3, -1)
    found = network.distribution(OBS)
    assert found.shape == advantage.shape
    for action in range(3):
        expected = value + advantage[:, action] - sum(advantage.unbind(1)) / 3
        torch.testing.assert_close(found[:, action], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dueling", [False, True])
def test_each_stream_has_its_own_hidden_layers(dueling: bool) -> None:
    head = make(dueling=dueling, head_sizes=[6, 5], activation="tanh").head
    layers = [each for each in head.modules() if isinstance(each, nn.Linear)]
    sizes = [(each.in_features, each.out_features) for each in layers]
    outputs = [1, 3] if dueling else [3]
    assert sizes == [size for last in outputs for size in ((64, 6), (6, 5), (5, last))]
    hidden = [each for each in head.modules() if isinstance(each, MLP)]
    assert [each.activation for each in hidden] == [torch.tanh] * len(outputs)


def test_all_layers_behind_the_encoder_are_noisy() -> None:
    network = make(noisy=0.5, dueling=True, head_sizes=[6])
    layers = [each for each in network.modules() if isinstance(each, nn.Linear | NoisyLinear)]
    assert [type(each) for each in layers] == [NoisyLinear] * 6
    assert make().noise is None


def test_noise_differs_by_row_and_by_call_and_evaluation_has_none() -> None:
    network = make(noisy=0.5, kind="quantile")
    assert network.noise is not None
    same = OBS[:1].expand(5, 4)
    means = network(same)
    assert torch.equal(means, network(same))
    assert torch.equal(means[0], means[4])
    network.noise.generator = torch.Generator().manual_seed(0)
    first, second = network(same), network(same)
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[4])
    features = network.torso(same)
    assert not torch.equal(features[0], features[4])
    assert not torch.equal(network.distribution(same), network.distribution(same))
    assert not torch.equal(network.clone()(same), network(same))


def test_noise_is_not_in_the_parameters() -> None:
    network = make(noisy=0.5, kind="categorical")
    assert list(network.state_dict()) == [name for name, _ in network.named_parameters()]


@pytest.mark.parametrize(
    ("model", "distribution", "words"),
    [
        ({}, {"v_min": 10.0}, r"distribution has v_min 10.0, not below v_max 10.0"),
        ({"head_sizes": [0]}, {}, r"hidden_sizes is \[0\]"),
    ],
)
def test_settings_out_of_range_are_refused(
    model: dict[str, Any], distribution: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        QNetwork(
            VECTOR,
            3,
            model={**Q_NETWORK_CONFIG, **model},
            distribution={**DISTRIBUTION_CONFIG, **distribution},
        )
