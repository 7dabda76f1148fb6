"""Losses of distributions of action values; `tm1` and `t` are those of `loss/value.py`.

A categorical distribution has K probabilities of fixed atoms; a quantile distribution N values of
equal probability. Gradients flow through the predictions: `logits_tm1` and `quantiles_tm1`.
"""

from __future__ import annotations

import torch
from torch.nn import functional


def taken_distribution(x_tm1: torch.Tensor, a_tm1: torch.Tensor) -> torch.Tensor:
    """Returns the outputs `[B, K]` of actions `a_tm1` `[B]`, int64, from `x_tm1` `[B, A, K]`."""
    index = a_tm1.view(-1, 1, 1).expand(-1, 1, x_tm1.shape[-1])
    return x_tm1.gather(1, index).squeeze(1)


def categorical_projection(
    probs_t: torch.Tensor, atoms: torch.Tensor, r_t: torch.Tensor, discount_t: torch.Tensor
) -> torch.Tensor:
    """Projects the distribution of `r_t + discount_t z` on the atoms.

    Bellemare et al. 2017, algorithm 1: mass between two atoms is divided by its distance to them,
    mass beyond an end goes to that end.

    Args:
        probs_t: probs t of the atoms at the next step, `[B, K]`.
        atoms: rising, equally spaced, `[K]`.
        r_t, discount_t: `[B]`.

    Returns:
        Probabilities `[B, K]`, without gradient; NaN where a reward or discount is not a number.

    Raises:
        ValueError: there are fewer than two atoms, or on a CPU: they do not rise.
    """
    probs_t, top = probs_t.detach(), len(atoms) - 1
    # On a GPU the comparison of the ends would wait for it.
    if top < 1 or (atoms.device.type == "cpu" and not atoms[0] < atoms[-1]):
        raise ValueError(f"expected two atoms or more, rising, not {atoms.tolist()}")
    spacing = (atoms[-1] - atoms[0]) / top
    # Place of each moved atom, in units of the spacing: its mass goes to the atoms on both sides.
    place = ((_move(atoms, r_t, discount_t) - atoms[0]) / spacing).clamp_(0.0, top)
    below = place.floor()
    above_mass = (place - below) * probs_t
    # An index made of a NaN would lie outside; its mass is NaN, so the update is set aside.
    index = below.nan_to_num_(0.0).long()
    target = torch.zeros_like(probs_t).scatter_add_(1, index, probs_t - above_mass)
    return target.scatter_add_(1, (index + 1).clamp_(max=top), above_mass)


def clipped_mass(
    probs_t: torch.Tensor, atoms: torch.Tensor, r_t: torch.Tensor, discount_t: torch.Tensor
) -> torch.Tensor:
    """Returns the probability `[B]` that :func:`categorical_projection` moves to the two ends."""
    moved = _move(atoms, r_t, discount_t)
    beyond = (moved < atoms[0]) | (moved > atoms[-1])
    return (probs_t.detach() * beyond).sum(1)


def _move(atoms: torch.Tensor, r_t: torch.Tensor, discount_t: torch.Tensor) -> torch.Tensor:
    return r_t.unsqueeze(1) + discount_t.unsqueeze(1) * atoms


def categorical_loss(logits_tm1: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Returns the cross-entropy `[B]` of predictions `[B, K]` from target probabilities `[B, K]`.

    Bellemare et al. 2017, algorithm 1, last line.
    """
    return -(target.detach() * functional.log_softmax(logits_tm1, -1)).sum(-1)


def categorical_divergence(loss: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Returns KL(target, prediction) `[B]` [nats], from the loss `[B]` and its target `[B, K]`.

    At least 0 and without gradient: the priority of a transition.
    """
    entropy: torch.Tensor = torch.special.entr(target).sum(-1)
    return (loss - entropy).detach().clamp(min=0.0)


def quantile_loss(quantiles_tm1: torch.Tensor, targets: torch.Tensor, kappa: float) -> torch.Tensor:
    """Computes the quantile regression loss `[B]`: Dabney et al. 2018, equation 10.

    The sum over quantiles of the mean over targets of the Huber loss, weighted by the quantile's
    level above the target and by the rest below it.

    Args:
        quantiles_tm1: `[B, N]`, at the levels `(i + 0.5) / N`.
        targets: equally likely, `[B, M]`.
        kappa: the loss is linear beyond this error; 0: everywhere, equation 8.

    Raises:
        ValueError: kappa is negative.
    """
    if not kappa >= 0.0:
        raise ValueError(f"kappa is {kappa}, expected 0 or more")
    count = quantiles_tm1.shape[-1]
    levels = torch.arange(count, device=quantiles_tm1.device, dtype=quantiles_tm1.dtype)
    levels = (levels + 0.5) / count
    loss, slopes = _quantile_loss(quantiles_tm1.detach(), targets.detach(), levels, kappa)
    # The value of the loss, with its gradient: no pass of autograd over all pairs.
    return loss + ((quantiles_tm1 - quantiles_tm1.detach()) * slopes).sum(-1)


def _quantile_loss(
    theta: torch.Tensor, targets: torch.Tensor, levels: torch.Tensor, kappa: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the loss `[B]` and its derivatives by the quantiles `[B, N]`, in seven passes."""
    errors = targets.unsqueeze(-2) - theta.unsqueeze(-1)
    # The Huber loss of error u is c (u - c / 2), and its derivative c, with c = u clipped.
    clipped = errors.clamp(-kappa, kappa) if kappa else errors.sign()
    # Weighted by the level above, by the rest below: the level times prelu, one slope per quantile.
    weighted = functional.prelu(clipped, (1.0 - levels) / levels)
    if kappa:
        errors.sub_(clipped, alpha=0.5)
    scale = levels / (kappa or 1.0)
    losses = errors.mul_(weighted).mean(-1)
    return (losses * scale).sum(-1), weighted.mean(-1) * -scale
