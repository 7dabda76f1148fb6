"""The losses of policies against the formulas written out number by number."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.loss.policy import (
    adapted_kl_coefficient,
    advantage_weights,
    clipped_surrogate_loss,
    deterministic_policy_loss,
    kl_estimate,
    masked_mean,
    normalize_advantages,
    policy_gradient_loss,
    soft_policy_loss,
    soft_value,
    surrogate_loss,
    temperature_loss,
    value_scale,
)

NUMBERS = st.floats(-5, 5, width=32)
ROWS = st.lists(st.tuples(NUMBERS, st.sampled_from([0.0, 1.0])), min_size=1, max_size=8)


def scalar(x: float, *, learns: bool = False) -> torch.Tensor:
    return torch.tensor([x], dtype=torch.float64, requires_grad=learns)


def gradient(loss: torch.Tensor, of: torch.Tensor) -> float:
    (found,) = torch.autograd.grad(loss.sum(), of)
    return float(found)


def slow_clipped(log_ratio: float, advantage: float, clip: float) -> float:
    ratio = math.exp(log_ratio)
    kept = min(max(ratio, 1 - clip), 1 + clip)
    return -min(ratio * advantage, kept * advantage)


@given(ROWS)
def test_a_masked_mean_leaves_rows_out(rows: list[tuple[float, float]]) -> None:
    kept = [x for x, mask in rows if mask]
    x, mask = torch.tensor(rows, dtype=torch.float64).unbind(1)
    expected = sum(kept) / len(kept) if kept else 0.0
    assert masked_mean(x, mask).item() == pytest.approx(expected, abs=1e-9)


@given(ROWS)
def test_normalized_looks_at_rows_of_mask_1_only(rows: list[tuple[float, float]]) -> None:
    x, mask = torch.tensor(rows, dtype=torch.float64).unbind(1)
    found = normalize_advantages(x, mask)
    kept = np.array([number for number, keep in rows if keep])
    expected = iter((kept - kept.mean()) / (kept.std() + 1e-8) if kept.size else [])
    for (_, keep), value in zip(rows, found.tolist(), strict=True):
        assert value == pytest.approx(next(expected) if keep else 0.0, abs=1e-6)


def test_the_deviation_of_a_sample_is_that_of_other_libraries() -> None:
    """Golden: minibatches of advantages 1 -2 .5 3 0 -1."""
    advantages = torch.tensor([1.0, -2.0, 0.5, 3.0, 0.0, -1.0])
    # The fourth row does not count.
    mask = torch.tensor([1.0, 1.0, 1.0, 0.0])
    for rows, expected in (
        ([0, 3, 5, 1], [0.0, 1.0, -1.0, 0.0]),
        ([1, 2, 4, 3], [-1.133893, 0.755929, 0.377964, 0.0]),
    ):
        found = normalize_advantages(advantages[rows], mask, sample=True)
        assert found.tolist() == pytest.approx(expected, abs=1e-6)
    for only in (torch.eye(4)[0], torch.zeros(4)):
        assert not normalize_advantages(advantages[:4], only, sample=True).any()


@given(NUMBERS, NUMBERS)
def test_policy_gradient_is_the_score_times_the_advantage(x: float, advantage: float) -> None:
    log_prob = scalar(x, learns=True)
    loss = policy_gradient_loss(log_prob, scalar(advantage, learns=True))
    assert loss.item() == pytest.approx(-x * advantage)
    assert gradient(loss, log_prob) == pytest.approx(-advantage)


@given(NUMBERS, NUMBERS, st.floats(0.0, 0.9))
def test_surrogates_are_the_formulas(log_ratio: float, advantage: float, clip: float) -> None:
    ratio = scalar(log_ratio)
    found = surrogate_loss(ratio, scalar(advantage)).item()
    assert found == pytest.approx(-math.exp(log_ratio) * advantage)
    found = clipped_surrogate_loss(ratio, scalar(advantage), clip).item()
    assert found == pytest.approx(slow_clipped(log_ratio, advantage, clip))


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    # At the old policy the score itself; beyond the clip nothing is gained, but the way back is.
    [(1.0, 2.0, -2.0), (1.3, 2.0, 0.0), (0.7, 2.0, -1.4), (0.7, -2.0, 0.0), (1.3, -2.0, 2.6)],
)
def test_a_clipped_ratio_has_no_gradient(ratio: float, advantage: float, expected: float) -> None:
    log_ratio = scalar(math.log(ratio), learns=True)
    loss = clipped_surrogate_loss(log_ratio, scalar(advantage), 0.2)
    assert gradient(loss, log_ratio) == pytest.approx(expected)


def test_no_gradient_flows_into_advantages() -> None:
    advantage, log_ratio = scalar(2.0, learns=True), scalar(0.1, learns=True)
    for loss in (
        policy_gradient_loss(log_ratio, advantage),
        surrogate_loss(log_ratio, advantage),
        clipped_surrogate_loss(log_ratio, advantage, 0.2),
    ):
        (found,) = torch.autograd.grad(loss.sum(), advantage, allow_unused=True)
        assert found is None


def test_the_estimate_of_kl_has_the_right_mean() -> None:
    old = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    new = torch.tensor([0.2, 0.6, 0.2], dtype=torch.float64)
    log_ratio = (new / old).log()
    estimates = kl_estimate(log_ratio)
    assert (estimates >= 0).all()
    assert float((old * estimates).sum()) == pytest.approx(float(-(old * log_ratio).sum()))


@pytest.mark.parametrize(
    ("kl", "coefficient"),
    [(0.0, 0.5), (0.0066, 0.5), (0.0067, 1.0), (0.01, 1.0), (0.015, 1.0), (0.0151, 2.0)],
)
def test_a_kl_coefficient_follows_its_target(kl: float, coefficient: float) -> None:
    assert adapted_kl_coefficient(1.0, kl, 0.01) == coefficient


@pytest.mark.parametrize(("kl", "end", "other", "back"), [(0, 1e-6, 1, 2e-6), (1, 1e6, 0, 5e5)])
def test_a_kl_coefficient_comes_back_from_its_bounds(
    kl: float, end: float, other: float, back: float
) -> None:
    coefficient = 1.0
    for _ in range(2000):
        coefficient = adapted_kl_coefficient(coefficient, kl, 0.01)
    assert coefficient == end
    assert adapted_kl_coefficient(coefficient, other, 0.01) == back


@pytest.mark.parametrize("outside", [0.0, 1e-7, 1e7])
def test_a_kl_coefficient_beyond_a_bound_goes_no_further(outside: float) -> None:
    fallen = adapted_kl_coefficient(outside, 0.0, 0.01)
    risen = adapted_kl_coefficient(outside, 1.0, 0.01)
    assert fallen <= outside <= risen
    assert outside in (fallen, risen)


def test_a_deterministic_policy_climbs_its_critic() -> None:
    action = scalar(0.3, learns=True)
    assert gradient(deterministic_policy_loss(3.0 * action), action) == -3.0


@given(NUMBERS, NUMBERS, st.floats(0, 2))
def test_soft_value_counts_entropy_in(q: float, log_prob: float, temperature: float) -> None:
    found = soft_value(scalar(q), scalar(log_prob), temperature).item()
    assert found == pytest.approx(q - temperature * log_prob)
    assert soft_policy_loss(scalar(q), scalar(log_prob), temperature).item() == -found


@pytest.mark.parametrize(("log_prob", "expected"), [(-1.0, 3.0), (-4.0, 0.0), (-6.0, -2.0)])
def test_a_temperature_rises_while_there_is_too_little_entropy(
    log_prob: float, expected: float
) -> None:
    # The entropy wanted is 4; gradient descent lowers what has a positive gradient.
    log_temperature = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    of_policy = scalar(log_prob, learns=True)
    loss = temperature_loss(log_temperature, of_policy, 4.0)
    (found,) = torch.autograd.grad(loss.sum(), of_policy, allow_unused=True, retain_graph=True)
    assert found is None
    assert loss.item() == pytest.approx(-0.5 * (log_prob + 4.0))
    assert gradient(loss, log_temperature) == pytest.approx(-expected)


REFUSED: list[tuple[Callable[[float], object], str]] = [
    (lambda x: clipped_surrogate_loss(scalar(0), scalar(0), x), "clip is"),
    (lambda x: adapted_kl_coefficient(1.0, 1.0, x), "target is"),
    (lambda x: adapted_kl_coefficient(1.0, 1.0, x + 1.0), "target is"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
@pytest.mark.parametrize("number", [-1.0, math.nan])
def test_what_must_not_be_negative(
    call: Callable[[float], object], words: str, number: float
) -> None:
    with pytest.raises(ValueError, match=words):
        call(number)


def test_the_scale_of_values_is_the_golden_one() -> None:
    q = torch.tensor([4.0, -2.0, 6.0], requires_grad=True)
    scale = value_scale(q, 2.5)
    assert scale.item() == pytest.approx(0.625)
    assert not scale.requires_grad
    assert math.isfinite(value_scale(torch.zeros(3), 2.5).item())


def test_the_weights_of_advantages_are_the_golden_ones() -> None:
    advantage = torch.tensor([0.5, -1.0, 2.0, 1e6], requires_grad=True)
    weights = advantage_weights(advantage, 3.0)
    assert weights.tolist() == pytest.approx([4.481689, 0.049787, 100.0, 100.0], rel=1e-5)
    assert not weights.requires_grad
