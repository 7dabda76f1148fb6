"""Losses of policies, element by element: mostly `[B]` or `[T, B]`, all of one shape.

To be minimised. Gradients flow through outputs of the learning policy: `log_prob`, `entropy`, `kl`,
and a critic's value of its actions. Advantages and outputs of the policy before the update are
constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from surreal_like.loss.returns import lambda_returns

_LARGEST_WEIGHT = 100.0
# Halved for ever, a coefficient would be 0, which is no penalty; doubled for ever, infinite.
_LEAST_COEFFICIENT, _LARGEST_COEFFICIENT = 1e-6, 1e6


def mean_over(mask: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns the function `masked_mean` of this mask, which is counted only once."""
    count = mask.sum().clamp(min=1.0)
    return lambda x: (x * mask).sum() / count


def masked_mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns the mean of the elements whose mask is 1, of one shape; 0 if there are none."""
    return mean_over(mask)(x)


# (elements, mask) -> the sum of those whose mask is 1, and their number.
Sums = Callable[[torch.Tensor, torch.Tensor], Sequence[torch.Tensor]]


def masked_sums(x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the sum of the elements whose mask is 1, and their number."""
    return (x * mask).sum(), mask.sum()


def normalize_advantages(
    x: torch.Tensor,
    mask: torch.Tensor,
    sums: Sums = masked_sums,
    *,
    sample: bool = False,
) -> torch.Tensor:
    """Returns `x` with mean 0 and standard deviation 1 over the elements of mask 1; 0 elsewhere.

    Args:
        x, mask: tensors of one shape.
        sums: returns the sum and the number of the elements of mask 1.
        sample: True for the deviation of a sample of n, whose squares are divided by n - 1.
    """
    total, count = sums(x, mask)
    centred = (x - total / count.clamp(min=1.0)) * mask
    squares, _ = sums(centred.square(), mask)
    deviation = (squares / (count - int(sample)).clamp(min=1.0)).sqrt()
    return centred / (deviation + 1e-8)


def policy_gradient_loss(log_prob: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """Computes minus log-probability times advantage: Sutton et al. 2000, theorem 1."""
    return -log_prob * advantage.detach()


def surrogate_loss(log_ratio: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """Computes minus probability ratio times advantage: Schulman et al. 2017 (PPO), equation 6.

    `log_ratio` is log pi(a|x) of the learning policy minus that of the policy that acted.
    """
    return -log_ratio.exp() * advantage.detach()


def clipped_surrogate_loss(
    log_ratio: torch.Tensor, advantage: torch.Tensor, clip: float
) -> torch.Tensor:
    """Computes the same with the ratio clipped at 1 +- `clip`: equation 7 there.

    Raises ValueError unless `clip` is 0 or more.
    """
    if not clip >= 0.0:
        raise ValueError(f"clip is {clip}, expected 0 or more")
    ratio, constant = log_ratio.exp(), advantage.detach()
    return -torch.minimum(ratio * constant, ratio.clamp(1.0 - clip, 1.0 + clip) * constant)


def kl_estimate(log_ratio: torch.Tensor) -> torch.Tensor:
    """Estimates the divergence from the policy that acted; its expectation is KL(old, new) [nats].

    `ratio - 1 - log ratio`, unbiased if the old policy drew the actions, and never negative:
    Schulman 2020, Approximating KL Divergence, estimator k3.
    """
    return log_ratio.exp() - 1.0 - log_ratio


def adapted_kl_coefficient(coefficient: float, kl: float, target: float) -> float:
    """Returns the next weight of a KL penalty: doubled above 1.5 `target`, halved below target/1.5.

    It is kept within 1e-6 to 1e6; one beyond a bound moves only towards it. Schulman et al. 2017
    (PPO), section 4. Raises ValueError unless `target` is positive.
    """
    if not target > 0.0:
        raise ValueError(f"target is {target}, expected a positive number")
    if kl > 1.5 * target:
        return max(coefficient, min(2.0 * coefficient, _LARGEST_COEFFICIENT))
    if kl < target / 1.5:
        return min(coefficient, max(0.5 * coefficient, _LEAST_COEFFICIENT))
    return coefficient


def deterministic_policy_loss(q: torch.Tensor) -> torch.Tensor:
    """Computes minus the critic's value of the policy's action: Silver et al. 2014, equation 9."""
    return -q


def value_scale(q: torch.Tensor, weight: float, sums: Sums = masked_sums) -> torch.Tensor:
    """Returns `weight` divided by the mean size of the values `[B]`, a scalar without gradient.

    It is lambda of TD3+BC: Fujimoto and Gu 2021, equation 5. Values that are all 0 are left as they
    are.

    Args:
        q: the values.
        weight: the weight.
        sums: sums the sizes over all values that are learned from together.
    """
    total, count = sums(q.detach().abs(), torch.ones_like(q))
    return weight / (total / count).clamp(min=1e-8)


def advantage_weights(advantage: torch.Tensor, temperature: float) -> torch.Tensor:
    """Returns exp(temperature * advantage), at most 100, without gradient.

    Kostrikov et al. 2021, Offline Reinforcement Learning with Implicit Q-Learning, equation 7; the
    limit is that of its code.
    """
    return (temperature * advantage.detach()).exp().clamp(max=_LARGEST_WEIGHT)


def soft_value(q: torch.Tensor, log_prob: torch.Tensor, temperature: float) -> torch.Tensor:
    """Computes the value of an action drawn from the policy, including the entropy bonus.

    Haarnoja et al. 2018 (Soft Actor-Critic), equation 3.
    """
    return q - temperature * log_prob


def soft_policy_loss(q: torch.Tensor, log_prob: torch.Tensor, temperature: float) -> torch.Tensor:
    """Computes minus the soft value of the policy's own action, drawn with reparametrization.

    Haarnoja et al. 2018 (Algorithms and Applications), equation 9.
    """
    return -soft_value(q, log_prob, temperature)


def temperature_loss(
    log_temperature: torch.Tensor, log_prob: torch.Tensor, target_entropy: float
) -> torch.Tensor:
    """Raises the temperature while the policy has less entropy than `target_entropy` [nats].

    `log_temperature` is a scalar. Haarnoja et al. 2018 (Algorithms and Applications), equation 18,
    with the logarithm as parameter, which keeps the temperature positive.
    """
    return -log_temperature * (log_prob.detach() + target_entropy)


class ActorCriticSums(NamedTuple):
    """Parts of the loss, sums over the rows of mask 1; each `[B]`.

    Args:
        policy: minus log-probability times advantage.
        entropy: entropy of the policy.
        value: squared distance of the values from the returns.
    """

    policy: torch.Tensor
    entropy: torch.Tensor
    value: torch.Tensor

    def total(self, *, entropy_weight: float, value_weight: float) -> torch.Tensor:
        """Returns the loss, the mean over the streams; a scalar."""
        return (self.policy - entropy_weight * self.entropy + value_weight * self.value).mean()


def actor_critic_sums(
    log_prob: torch.Tensor,
    entropy: torch.Tensor,
    values: torch.Tensor,
    bootstrap: torch.Tensor,
    *,
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    mask: torch.Tensor,
) -> ActorCriticSums:
    """Computes the loss of unrolls, on returns up to their end: Mnih et al. 2016, algorithm S3.

    Args:
        log_prob, entropy: those of the actions and of the policy, `[T, B]`, with gradient.
        values: values of the rows, `[T, B]`, with gradient.
        bootstrap: values of the row after the last, `[B]`.
        rewards, discounts, mask: `[T, B]`; see :mod:`surreal_like.loss.returns`.

    Raises:
        ValueError: shapes differ; names both.
    """
    returns = lambda_returns(rewards, discounts, values, bootstrap, lambda_=1.0, mask=mask)
    policy = policy_gradient_loss(log_prob, returns - values)
    squared = (returns - values).square()
    sums = [(mask * each).sum(0) for each in (policy, entropy, squared)]
    return ActorCriticSums(*sums)
