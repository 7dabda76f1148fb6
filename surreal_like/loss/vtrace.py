"""V-trace: targets and advantages from experience of an older policy.

Espeholt et al. 2018 (IMPALA), equations 1 and 2; the layout of time is that of `loss/returns.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from surreal_like.loss.returns import backward_sum, check_time_major, following


class VTrace(NamedTuple):
    """Result of `vtrace`.

    Args:
        targets: targets of the values, `[T, B]`; at rows of mask 0 the value itself.
        advantages: advantages of the policy gradient, `[T, B]`; 0 at rows of mask 0.
    """

    targets: torch.Tensor
    advantages: torch.Tensor


@torch.no_grad()
def vtrace(  # noqa: PLR0913 - the quantities of the paper
    log_rhos: torch.Tensor,
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    values: torch.Tensor,
    bootstrap: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    lambda_: float = 1.0,
    clip_c: float = 1.0,
    clip_rho: float | None = 1.0,
    clip_pg_rho: float | None = 1.0,
) -> VTrace:
    """Computes targets and advantages, corrected for changes of the policy since it acted.

    Args:
        log_rhos: log pi(a|x) - log mu(a|x), of the learning policy and the policy that acted, `[T,
            B]`.
        rewards: rewards of the actions, `[T, B]`.
        discounts: gamma times the environment's discount of the next row, `[T, B]`.
        values: values of the rows, by the learning network, `[T, B]`.
        bootstrap: value of the row after the last, `[B]`.
        mask: `[T, B]`, 0 at the last rows of episodes; None: 1 everywhere.
        lambda_: mixes n-step returns as in TD(lambda).
        clip_c: upper bound of the weights c, which set how far corrections propagate backwards.
        clip_rho: upper bound of the weights rho, which set the fixed point of the values; None:
            none.
        clip_pg_rho: upper bound of the weights of the advantages; None: none.

    Returns:
        Targets and advantages, both `[T, B]`, without gradient.

    Raises:
        ValueError: shapes differ; names both.
    """
    mask = torch.ones_like(rewards) if mask is None else mask
    check_time_major(
        bootstrap,
        log_rhos=log_rhos,
        rewards=rewards,
        discounts=discounts,
        values=values,
        mask=mask,
    )
    rhos = log_rhos.exp()
    next_values = following(values, bootstrap)
    deltas = mask * _at_most(rhos, clip_rho) * (rewards + discounts * next_values - values)
    decays = mask * lambda_ * rhos.clamp(max=clip_c) * discounts
    targets = values + backward_sum(deltas, decays)
    gains = rewards + discounts * following(targets, bootstrap) - values
    return VTrace(targets, mask * _at_most(rhos, clip_pg_rho) * gains)


def _at_most(rhos: torch.Tensor, limit: float | None) -> torch.Tensor:
    return rhos if limit is None else rhos.clamp(max=limit)
