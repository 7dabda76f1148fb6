"""The loss of A3C: golden numbers, and a slow transcription of the paper."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch

from surreal_like.loss.policy import ActorCriticSums, actor_critic_sums
from surreal_like.network.distribution import Categorical
from surreal_like.network.flat import flatten_parameters
from surreal_like.network.head import StateGaussianHead

GAMMA = 0.99


def column(values: Iterable[float]) -> torch.Tensor:
    """A column `[T, 1]`, float64."""
    return torch.tensor(list(values), dtype=torch.float64).unsqueeze(1)


def sums_of(
    log_prob: torch.Tensor, entropy: torch.Tensor, values: torch.Tensor, rewards: list[float]
) -> ActorCriticSums:
    """One stream without an end."""
    given = column(rewards)
    discounts, mask = torch.full_like(given, GAMMA), torch.ones_like(given)
    return actor_critic_sums(
        log_prob, entropy, values[:-1], values[-1], rewards=given, discounts=discounts, mask=mask
    )


def close(given: torch.Tensor, expected: object) -> bool:
    wanted = torch.tensor(expected, dtype=torch.float64)
    return torch.allclose(given.squeeze(), wanted, rtol=1e-5, atol=1e-6)


def test_discrete_actions() -> None:
    logits = torch.tensor(
        [[0, 0, 0], [1, 0, -1], [0.5, 0.5, -0.5], [-1, 2, 0], [0, 0, 3]], dtype=torch.float64
    ).unsqueeze(1)
    logits.requires_grad_()
    values = column([0.5, 0.4, 0.3, 0.2, 0.1, 2.0]).requires_grad_()
    actions = torch.tensor([0, 1, 2, 1, 2]).unsqueeze(1)
    policy = Categorical(logits)
    sums = sums_of(policy.log_prob(actions), policy.entropy(), values, [1, 0, -1, 0.5, 1])
    assert [each.item() for each in sums] == pytest.approx(
        [10.718544, 3.839226, 35.523890], rel=1e-6
    )
    loss = sums.total(entropy_weight=0.01, value_weight=0.25)
    assert loss.item() == pytest.approx(19.561124, rel=1e-6)
    loss.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert values.grad is not None
    expected = [[-1.911750, 0.955875, 0.955875], [1.327681, -1.505562, 0.177881]]
    assert close(logits.grad[:2], expected)
    # The value behind the unroll is a constant.
    assert close(values.grad, [-1.433813, -0.995771, -1.057849, -1.625100, -1.440000, 0.0])


def layer(weight: list[list[float]], bias: list[float]) -> torch.nn.Linear:
    made = torch.nn.Linear(2, len(bias), dtype=torch.float64)
    made.weight.data = torch.tensor(weight, dtype=torch.float64)
    made.bias.data = torch.tensor(bias, dtype=torch.float64)
    return made


def test_a_linear_network() -> None:
    head = layer([[0.1, -0.2], [0.3, 0.4], [0.0, 0.1]], [0.0, 0.1, -0.1])
    value_head = layer([[0.2, -0.3]], [0.05])
    _, gradient = flatten_parameters(torch.nn.ModuleList([head, value_head]))
    x = torch.tensor([[1, 0], [0, 1], [1, 1], [2, -1]], dtype=torch.float64)
    policy = Categorical(head(x[:3]).unsqueeze(1))
    values = value_head(x)
    actions = torch.tensor([0, 2, 1]).unsqueeze(1)
    sums = sums_of(policy.log_prob(actions), policy.entropy(), values, [1, 0, 2])
    sums.total(entropy_weight=0.01, value_weight=0.25).backward()  # type: ignore[no-untyped-call]
    expected = [-1.742529, 1.309822, 0.179820, 0.125588, 1.562708, -1.435410]
    expected += [-1.043341, 1.591140, -0.547800, -3.115212, -2.878787, -4.597750]
    assert close(gradient, expected)
    assert gradient.norm().item() == pytest.approx(7.235623, rel=1e-6)


def test_continuous_actions_whose_variance_depends_on_the_state() -> None:
    mean = torch.tensor([[0, 0.5], [0.2, -0.1]], dtype=torch.float64).unsqueeze(1)
    x = torch.tensor([[0, 1], [-1, 0.5413248546]], dtype=torch.float64).unsqueeze(1)
    mean.requires_grad_()
    x.requires_grad_()
    actions = torch.tensor([[0.3, 0.5], [-0.4, 0.6]], dtype=torch.float64).unsqueeze(1)
    policy = StateGaussianHead.policy(mean, x)
    log_prob = policy.log_prob(actions)
    assert close(log_prob, [-1.855800, -2.077118])
    sums = sums_of(log_prob, policy.entropy(), column([0.1, -0.2, 0.5]), [1, -1])
    loss = sums.total(entropy_weight=0.001, value_weight=0.25)
    assert loss.item() == pytest.approx(0.167109, rel=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert mean.grad is not None
    assert x.grad is not None
    assert close(mean.grad, [[-0.173145, 0.0], [-0.584174, 0.213500]])
    assert close(x.grad, [[0.125192, 0.111070], [0.019104, -0.049479]])


def test_episodes_that_end_inside_an_unroll() -> None:
    """Row 1 is a truncation, row 4 a termination; both have no action."""
    torch.manual_seed(0)
    steps, streams = 6, 2
    log_prob, entropy = torch.randn(2, steps, streams, dtype=torch.float64)
    values = torch.randn(steps + 1, streams, dtype=torch.float64)
    rewards = torch.randn(steps, streams, dtype=torch.float64)
    mask, discounts = torch.ones(2, steps, streams, dtype=torch.float64)
    discounts *= GAMMA
    mask[1, 0] = mask[4, 0] = 0.0
    discounts[3, 0] = 0.0
    sums = actor_critic_sums(
        log_prob, entropy, values[:-1], values[-1], rewards=rewards, discounts=discounts, mask=mask
    )
    for stream in range(streams):
        found, after = [0.0, 0.0, 0.0], values[steps, stream].item()
        for t in reversed(range(steps)):
            value = values[t, stream].item()
            if not mask[t, stream]:
                after = value
                continue
            after = rewards[t, stream].item() + discounts[t, stream].item() * after
            found[0] -= log_prob[t, stream].item() * (after - value)
            found[1] += entropy[t, stream].item()
            found[2] += (after - value) ** 2
        assert [each[stream].item() for each in sums] == pytest.approx(found, rel=1e-9)
