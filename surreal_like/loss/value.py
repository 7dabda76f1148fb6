"""Losses of action values. `tm1` is the step of an action, `t` the next step.

With n-step transitions `r_t` is the discounted sum of the n rewards, and `discount_t` is the factor
of the value n steps later: gamma**n, or 0 after a termination. B is the batch, A the actions.
All works along the last axis, so `[T, B]` also works where `[B]` is written.
"""

from __future__ import annotations

import torch
from torch.nn import functional


def taken_value(q_tm1: torch.Tensor, a_tm1: torch.Tensor) -> torch.Tensor:
    """Returns the values `[B]` of actions `a_tm1` `[B]`, int64, from values `q_tm1` `[B, A]`."""
    return q_tm1.gather(-1, a_tm1.unsqueeze(-1)).squeeze(-1)


def greedy_value(q_t: torch.Tensor) -> torch.Tensor:
    """Returns the largest value `[B]` of `q_t` `[B, A]`: Mnih et al. 2015, equation 2."""
    return q_t.amax(-1)


def double_q_value(q_t: torch.Tensor, selector_t: torch.Tensor) -> torch.Tensor:
    """Returns the value `[B]` in `q_t` `[B, A]` of the best action in `selector_t` `[B, A]`.

    With the target network's values and the online network's selector it is double Q-learning:
    van Hasselt et al. 2016, equation 4.
    """
    return taken_value(q_t, selector_t.argmax(-1))


def td_target(r_t: torch.Tensor, discount_t: torch.Tensor, v_t: torch.Tensor) -> torch.Tensor:
    """Returns the target `[B]` of the previous step: reward plus discounted value, all `[B]`."""
    return r_t + discount_t * v_t


def td_error(q_tm1: torch.Tensor, target_tm1: torch.Tensor) -> torch.Tensor:
    """Returns target minus value, `[B]`."""
    return target_tm1 - q_tm1


def huber_loss(q_tm1: torch.Tensor, target_tm1: torch.Tensor, kappa: float = 1.0) -> torch.Tensor:
    """Computes the loss of each value `[B]`: quadratic up to `kappa`, linear beyond: Huber 1964.

    ``0.5 e**2`` where ``|e| <= kappa``, else ``kappa (|e| - 0.5 kappa)``. Gradients are not stopped
    here: detach the target. Raises ValueError unless kappa is positive.
    """
    if not kappa > 0.0:
        raise ValueError(f"kappa is {kappa}, expected a positive number")
    return functional.huber_loss(q_tm1, target_tm1, reduction="none", delta=kappa)


def squared_loss(q_tm1: torch.Tensor, target_tm1: torch.Tensor) -> torch.Tensor:
    """Returns half the squared error of each value, `[B]`: the Huber loss without a linear part."""
    return 0.5 * (target_tm1 - q_tm1) ** 2


def clipped_value_loss(
    v_tm1: torch.Tensor, old_v_tm1: torch.Tensor, target_tm1: torch.Tensor, clip: float
) -> torch.Tensor:
    """Returns half the squared error of each value, of any shape, without gain from large steps.

    It is the larger of two errors: of the value, and of the value clipped to within `clip` of the
    old value; the value loss of PPO as OpenAI's baselines compute it. Raises ValueError unless
    `clip` is positive.
    """
    if not clip > 0.0:
        raise ValueError(f"clip is {clip}, expected a positive number")
    kept = old_v_tm1 + (v_tm1 - old_v_tm1).clamp(-clip, clip)
    return torch.maximum(squared_loss(v_tm1, target_tm1), squared_loss(kept, target_tm1))


def expectile_loss(error: torch.Tensor, tau: float) -> torch.Tensor:
    """Returns the squared errors, those above 0 times `tau` and those below times `1 - tau`.

    Kostrikov et al. 2021, Offline Reinforcement Learning with Implicit Q-Learning, equation 4. Any
    shape.

    Raises:
        ValueError: tau is not between 0 and 1.
    """
    if not 0.0 < tau < 1.0:
        raise ValueError(f"tau is {tau}, expected a number between 0 and 1")
    weights = torch.where(error < 0.0, 1.0 - tau, tau)
    return weights * error.square()


def conservative_loss(q_tm1: torch.Tensor, a_tm1: torch.Tensor) -> torch.Tensor:
    """Returns log-sum-exp of the values `[B, A]` less the value of the taken action, `[B]`.

    It lowers values of actions that the data does not contain: Kumar et al. 2020, equation 4.
    """
    return q_tm1.logsumexp(-1) - taken_value(q_tm1, a_tm1)


def sampled_conservative_loss(
    q_sampled: torch.Tensor, log_density: torch.Tensor, q_tm1: torch.Tensor
) -> torch.Tensor:
    """Returns log-sum-exp of the values of sampled actions less the value of the taken one, `[B]`.

    That of continuous actions: Kumar et al. 2020, appendix F, CQL(H). The sum stands for an
    integral, so each value counts by the inverse of its action's density. As in the paper's code,
    the sum is not divided by K, which adds log K.

    Args:
        q_sampled: values of K sampled actions, `[B, K]`.
        log_density: log-densities with which these were drawn, `[B, K]`.
        q_tm1: values of the taken actions, `[B]`.
    """
    return (q_sampled - log_density).logsumexp(-1) - q_tm1
