"""Losses of policies, element by element: mostly `[B]` or `[T, B]`, all of one shape.

To be minimised. Gradients flow through what the policy that learns says of itself: `log_prob`,
`entropy`, `kl`, and a critic's value of its actions. Advantages and what the policy was before the
update are constants, whoever made them.
"""

from __future__ import annotations

import torch


def masked_mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean of those elements whose mask is 1, of one shape; 0 if there is none."""
    return (x * mask).sum() / mask.sum().clamp(min=1.0)


def normalized(x: torch.Tensor, mask: torch.Tensor, epsilon: float = 1e-8) -> torch.Tensor:
    """`x` with mean 0 and standard deviation 1 over the elements of mask 1; 0 at the others."""
    centred = (x - masked_mean(x, mask)) * mask
    deviation = masked_mean(centred.square(), mask).sqrt()
    return centred / (deviation + epsilon)


def policy_gradient_loss(log_prob: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """Minus log-probability times advantage: Sutton et al. 2000, theorem 1."""
    return -log_prob * advantage.detach()


def surrogate_loss(log_ratio: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """Minus probability ratio times advantage: Schulman et al. 2017 (PPO), equation 6.

    `log_ratio` is log pi(a|x) of the policy that learns, less that of the policy that acted.
    """
    return -log_ratio.exp() * advantage.detach()


def clipped_surrogate_loss(
    log_ratio: torch.Tensor, advantage: torch.Tensor, clip: float
) -> torch.Tensor:
    """The same where nothing is gained by a ratio beyond 1 +- `clip`: equation 7 there.

    Raises ValueError unless `clip` is positive.
    """
    if not clip > 0.0:
        raise ValueError(f"clip is {clip}, expected a positive number")
    ratio, constant = log_ratio.exp(), advantage.detach()
    return -torch.minimum(ratio * constant, ratio.clamp(1.0 - clip, 1.0 + clip) * constant)


def kl_estimate(log_ratio: torch.Tensor) -> torch.Tensor:
    """How far the policy has gone from the one that acted, in expectation KL(old, new) [nats].

    `ratio - 1 - log ratio`, unbiased where actions are those of the old policy, and never negative:
    Schulman 2020, Approximating KL Divergence, estimator k3.
    """
    return log_ratio.exp() - 1.0 - log_ratio


def adapted_kl_coefficient(coefficient: float, kl: float, target: float) -> float:
    """The next weight of a KL penalty: doubled beyond 1.5 `target`, halved below `target` / 1.5.

    Schulman et al. 2017 (PPO), section 4. Raises ValueError unless `target` is positive.
    """
    if not target > 0.0:
        raise ValueError(f"target is {target}, expected a positive number")
    if kl > 1.5 * target:
        return 2.0 * coefficient
    return 0.5 * coefficient if kl < target / 1.5 else coefficient


def deterministic_policy_loss(q: torch.Tensor) -> torch.Tensor:
    """Minus the critic's value of the policy's own action: Silver et al. 2014, equation 9."""
    return -q


def soft_value(q: torch.Tensor, log_prob: torch.Tensor, temperature: float) -> torch.Tensor:
    """The value of an action drawn from the policy, its entropy counted in.

    Haarnoja et al. 2018 (Soft Actor-Critic), equation 3.
    """
    return q - temperature * log_prob


def soft_policy_loss(q: torch.Tensor, log_prob: torch.Tensor, temperature: float) -> torch.Tensor:
    """Minus the soft value of the policy's own action, drawn so that it has a gradient.

    Haarnoja et al. 2018 (Algorithms and Applications), equation 9.
    """
    return -soft_value(q, log_prob, temperature)


def temperature_loss(
    log_temperature: torch.Tensor, log_prob: torch.Tensor, target_entropy: float
) -> torch.Tensor:
    """Raises the temperature while the policy has less entropy than `target_entropy` [nats].

    `log_temperature` is a scalar. Haarnoja et al. 2018 (Algorithms and Applications), equation 18,
    taken in the logarithm, which keeps the temperature positive.
    """
    return -log_temperature * (log_prob.detach() + target_entropy)
