"""The losses of action values against the same formulas written out number by number."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.loss.value import (
    clipped_value_loss,
    conservative_loss,
    double_q_value,
    expectile_loss,
    greedy_value,
    huber_loss,
    sampled_conservative_loss,
    squared_loss,
    taken_value,
    td_error,
    td_target,
)

NUMBERS = st.floats(-50, 50, width=32)
Q_TM1 = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def slow_huber(q: float, target: float, kappa: float) -> float:
    error = abs(target - q)
    return 0.5 * error**2 if error <= kappa else kappa * (error - 0.5 * kappa)


def test_taken_value_is_the_value_of_the_action_of_each_row() -> None:
    assert taken_value(Q_TM1, torch.tensor([2, 0])).tolist() == [3.0, 4.0]


def test_greedy_value_is_the_largest_of_each_row() -> None:
    assert greedy_value(Q_TM1.flip(1)).tolist() == [3.0, 6.0]


def test_double_q_chooses_with_one_network_and_values_with_the_other() -> None:
    selector = torch.tensor([[9.0, 0.0, 0.0], [0.0, 9.0, 0.0]])
    assert double_q_value(Q_TM1, selector).tolist() == [1.0, 5.0]


def test_double_q_of_one_network_is_the_greedy_value() -> None:
    assert torch.equal(double_q_value(Q_TM1, Q_TM1), greedy_value(Q_TM1))


def test_td_target_bootstraps_a_truncation_and_not_a_termination() -> None:
    # n = 3, gamma = 0.5: an inner step, a truncation two steps on, a termination.
    r_t = torch.tensor([1.75, 1.5, 1.5])
    discount_t = torch.tensor([0.125, 0.25, 0.0])
    v_t = torch.tensor([8.0, 8.0, 8.0])
    assert td_target(r_t, discount_t, v_t).tolist() == [2.75, 3.5, 1.5]


def test_td_error_is_positive_where_the_target_lies_above() -> None:
    assert td_error(torch.tensor([1.0, 5.0]), torch.tensor([3.0, 4.0])).tolist() == [2.0, -1.0]


@given(NUMBERS, NUMBERS, st.floats(0.1, 10))
def test_huber_loss_is_the_formula(q: float, target: float, kappa: float) -> None:
    loss = huber_loss(torch.tensor([q]), torch.tensor([target]), kappa).item()
    assert loss == pytest.approx(slow_huber(q, target, kappa), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("q", "target", "kappa", "gradient"),
    [(0.0, 0.5, 1.0, -0.5), (0.0, 7.0, 1.0, -1.0), (0.0, -7.0, 2.0, 2.0), (3.0, 3.0, 1.0, 0.0)],
)
def test_huber_gradient_is_the_error_clipped(
    q: float, target: float, kappa: float, gradient: float
) -> None:
    q_tm1 = torch.tensor([q], requires_grad=True)
    huber_loss(q_tm1, torch.tensor([target]), kappa).sum().backward()  # type: ignore[no-untyped-call]
    assert q_tm1.grad is not None
    assert q_tm1.grad.tolist() == [gradient]


@given(NUMBERS, NUMBERS)
def test_squared_loss_is_huber_without_a_linear_part(q: float, target: float) -> None:
    loss = squared_loss(torch.tensor([q]), torch.tensor([target])).item()
    assert loss == pytest.approx(slow_huber(q, target, math.inf), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("kappa", [0.0, -1.0, math.nan])
def test_huber_refuses_a_kappa_that_is_not_positive(kappa: float) -> None:
    with pytest.raises(ValueError, match="kappa"):
        huber_loss(torch.zeros(1), torch.zeros(1), kappa)


def slow_clipped(v: float, old: float, target: float, clip: float) -> float:
    kept = min(max(v, old - clip), old + clip)
    return max(0.5 * (v - target) ** 2, 0.5 * (kept - target) ** 2)


@given(NUMBERS, NUMBERS, NUMBERS, st.floats(0.1, 10))
def test_clipped_value_loss_is_the_larger_error(
    v: float, old: float, target: float, clip: float
) -> None:
    tensors = [torch.tensor([[x]]) for x in (v, old, target)]
    loss = clipped_value_loss(tensors[0], tensors[1], tensors[2], clip)
    assert loss.shape == (1, 1)
    expected = slow_clipped(v, old, target, clip)
    assert loss.item() == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    ("v", "target", "gradient"),
    # Towards the target beyond the clip: no gain. Away from it: the way back is free.
    [(1.5, 3.0, 0.0), (0.5, 3.0, -2.5), (1.5, -3.0, 4.5)],
)
def test_a_clipped_value_gains_nothing_by_a_large_step(
    v: float, target: float, gradient: float
) -> None:
    value = torch.tensor([v], requires_grad=True)
    loss = clipped_value_loss(value, torch.zeros(1), torch.tensor([target]), 1.0)
    loss.sum().backward()  # type: ignore[no-untyped-call]
    assert value.grad is not None
    assert value.grad.tolist() == [gradient]


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan])
def test_a_value_clip_must_be_positive(clip: float) -> None:
    with pytest.raises(ValueError, match="clip is"):
        clipped_value_loss(torch.zeros(1), torch.zeros(1), torch.zeros(1), clip)


def test_the_conservative_loss_is_the_golden_one() -> None:
    q_tm1 = torch.tensor([[1.0, 2.0, 0.0]]).expand(2, 3)
    losses = conservative_loss(q_tm1, torch.tensor([0, 1]))
    assert losses.tolist() == pytest.approx([1.407606, 0.407606], rel=1e-5)


def test_the_expectile_loss_is_the_golden_one() -> None:
    losses = expectile_loss(torch.tensor([2.0, -2.0, 0.5]), 0.7)
    assert losses.tolist() == pytest.approx([2.8, 1.2, 0.175], rel=1e-5)
    with pytest.raises(ValueError, match="tau is 1"):
        expectile_loss(torch.zeros(1), 1.0)


def test_the_conservative_loss_of_samples_counts_each_by_the_inverse_of_its_density() -> None:
    values, densities, taken = [1.0, 2.0, 0.0], [0.5, 0.25, 2.0], 1.5
    expected = math.log(sum(math.exp(q) / p for q, p in zip(values, densities, strict=True)))
    q_sampled = torch.tensor([values, [5.0] * 3])
    log_density = torch.tensor([densities, [1.0] * 3]).log()
    losses = sampled_conservative_loss(q_sampled, log_density, torch.tensor([taken, 5.0]))
    assert losses.tolist() == pytest.approx([expected - taken, math.log(3)], rel=1e-5)
