"""Losses, targets and priorities of sequences. L is their learned steps, B the batch."""

from __future__ import annotations

import torch

from surreal_like.loss.returns import n_step_returns


def rescale(x: torch.Tensor, epsilon: float = 1e-3) -> torch.Tensor:
    """Compresses values of any shape: `sign(x) (sqrt(|x| + 1) - 1) + epsilon x`.

    Pohlen et al. 2018, Observe and Look Further, proposition A.2.
    """
    size = x.abs()
    # The root less 1 without the rounding of small values.
    return x.sign() * (size / ((size + 1.0).sqrt() + 1.0)) + epsilon * x


def unscale(x: torch.Tensor, epsilon: float = 1e-3) -> torch.Tensor:
    """Inverts :func:`rescale` exactly.

    With `d = sqrt(|y| + 1) - 1` for the wanted y, `|x| = epsilon d**2 + (1 + 2 epsilon) d`.
    """
    size, half = x.abs(), 1.0 + 2.0 * epsilon
    # This form of the root has no difference of large numbers.
    d = 2.0 * size / (half + (half * half + 4.0 * epsilon * size).sqrt())
    return x.sign() * d * (d + 2.0)


def sequence_means(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns the mean `[B]` of `x` `[L, B]` over the rows of mask 1; 0 for a sequence of none."""
    return (x * mask).sum(0) / mask.sum(0).clamp(min=1.0)


def sequence_loss(
    td_error: torch.Tensor, mask: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Returns half the squared errors `[L, B]`, as mean of each sequence and then of the batch.

    `weights` `[B]` are those of the sampling; the result is a scalar. Kapturowski et al. 2019.
    """
    return (weights * sequence_means(0.5 * td_error.square(), mask)).mean()


def sequence_priority(td_error: torch.Tensor, mask: torch.Tensor, eta: float = 0.9) -> torch.Tensor:
    """Returns the priority `[B]`: `eta` of the largest absolute error and the rest of the mean.

    Only rows of mask 1 count. Kapturowski et al. 2019, section 2.3; without gradient.
    """
    size = td_error.detach().abs() * mask
    return eta * size.amax(0) + (1.0 - eta) * sequence_means(size, mask)


@torch.no_grad()
def rescaled_targets(
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    values: torch.Tensor,
    *,
    n: int,
    mask: torch.Tensor | None = None,
    epsilon: float = 1e-3,
) -> torch.Tensor:
    """Returns n-step targets `[L, B]` of rescaled values: Kapturowski et al. 2019, equation 1.

    Args:
        rewards, discounts, mask: `[L, B]`, as of `n_step_returns`.
        values: rescaled values of all rows, `[L + 1, B]`.
        n: steps, fewer at the end of an episode or of the sequence.
        epsilon: epsilon of `rescale`; 0: values are not rescaled.
    """
    plain = unscale(values, epsilon) if epsilon else values
    targets = n_step_returns(rewards, discounts, plain[:-1], plain[-1], n=n, mask=mask)
    return rescale(targets, epsilon) if epsilon else targets
