"""Returns and advantages of unrolls, from their rewards and the values of their observations.

Time comes first: step t of T, in B streams. `rewards[t]` and `discounts[t]` belong to the step
after row t: `discounts` is gamma times the environment's discount, 0 after a termination.
`values[t]` is the value of row t, `bootstrap` that of the row after the last.

An unroll may hold several episodes. `mask` is 0 at the last row of each, which has no action: a
trace restarts there, and the row only provides its value to the row before it. So a time limit is
bootstrapped from its own last observation, never from the next episode. Results carry no gradient.
"""

from __future__ import annotations

import torch


def check_time_major(bootstrap: torch.Tensor, **steps: torch.Tensor) -> None:
    """Raises ValueError, with both shapes, unless all `steps` are `[T, B]` and `bootstrap` `[B]`.

    A shape such as `[T, B, 1]` would silently broadcast to `[T, B, B]`.
    """
    first, like = next(iter(steps.items()))
    if like.dim() != 2:
        raise ValueError(
            f"{first} is {list(like.shape)} and bootstrap {list(bootstrap.shape)}, "
            "expected [T, B] and [B]"
        )
    for name, each in steps.items():
        if each.shape != like.shape:
            raise ValueError(f"{name} is {list(each.shape)}, but {first} is {list(like.shape)}")
    if bootstrap.shape != like.shape[1:]:
        raise ValueError(
            f"bootstrap is {list(bootstrap.shape)}, but {first} is {list(like.shape)}: "
            f"expected {list(like.shape[1:])}"
        )


def following(steps: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """Returns the values one row later, `[T, B]`: `steps` `[T, B]` without row 0, then `last`."""
    return torch.cat((steps[1:], last.unsqueeze(0)))


@torch.no_grad()
def backward_sum(terms: torch.Tensor, decays: torch.Tensor) -> torch.Tensor:
    """Returns the sums `s_t = terms_t + decays_t s_{t+1}`, from 0 after the end; all `[T, B]`."""
    sums = torch.empty_like(terms)
    after = terms.new_zeros(terms.shape[1:])
    rows = zip(terms.unbind(), decays.unbind(), sums.unbind(), strict=True)
    for term, decay, out in reversed(list(rows)):
        after = torch.addcmul(term, decay, after, out=out)
    return sums


@torch.no_grad()
def gae(
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    values: torch.Tensor,
    bootstrap: torch.Tensor,
    *,
    lambda_: float,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes generalised advantages `[T, B]`: Schulman et al. 2016, equations 11 to 16.

    Args:
        rewards, discounts, values: `[T, B]`; see the module.
        bootstrap: `[B]`.
        lambda_: 0 relies on the values, 1 on the rewards.
        mask: `[T, B]`, 0 at the last rows of episodes; None: 1 everywhere. The advantage is 0
            there.

    Raises:
        ValueError: shapes differ; names both.
    """
    mask = torch.ones_like(rewards) if mask is None else mask
    check_time_major(bootstrap, rewards=rewards, discounts=discounts, values=values, mask=mask)
    deltas = mask * (rewards + discounts * following(values, bootstrap) - values)
    return backward_sum(deltas, lambda_ * discounts * mask)


@torch.no_grad()
def lambda_returns(
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    values: torch.Tensor,
    bootstrap: torch.Tensor,
    *,
    lambda_: float,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes the targets `[T, B]` of TD(lambda): Sutton and Barto 2018, equation 12.18.

    They are the values plus the advantages of :func:`gae`, with the same arguments. At a row of
    mask 0 the target is the row's value.
    """
    advantages = gae(rewards, discounts, values, bootstrap, lambda_=lambda_, mask=mask)
    return values + advantages


@torch.no_grad()
def n_step_returns(
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    values: torch.Tensor,
    bootstrap: torch.Tensor,
    *,
    n: int,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes n-step targets `[T, B]`; fewer steps before the end of an episode or of the unroll.

    They are n rewards and the value after them, each discounted: Sutton and Barto 2018, equation
    7.1. Arguments as those of :func:`gae`; raises ValueError also for n below 1.
    """
    if n < 1:
        raise ValueError(f"n is {n}, expected 1 or more steps")
    mask = torch.ones_like(rewards) if mask is None else mask
    check_time_major(bootstrap, rewards=rewards, discounts=discounts, values=values, mask=mask)
    goes_on = mask != 0
    targets = values
    for _ in range(min(n, len(rewards))):
        longer = rewards + discounts * following(targets, bootstrap)
        targets = torch.where(goes_on, longer, values)
    return targets
