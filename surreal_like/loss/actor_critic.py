"""The loss of an actor-critic, as sums over the rows of each stream: Mnih et al. 2016 (A3C)."""

from __future__ import annotations

from typing import NamedTuple

import torch

from surreal_like.loss.policy import policy_gradient_loss
from surreal_like.loss.returns import lambda_returns


class ActorCriticSums(NamedTuple):
    """Parts of the loss, sums over the rows of mask 1; each `[B]`.

    Args:
        policy: minus log-probability times advantage.
        entropy: of the policy.
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
        log_prob, entropy: of the actions and of the policy, `[T, B]`, with gradient.
        values: of the rows, `[T, B]`, with gradient.
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
