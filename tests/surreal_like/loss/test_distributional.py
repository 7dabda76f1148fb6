"""Losses of distributions: golden numbers, and the papers' formulas atom by atom."""

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from surreal_like.loss.distributional import (
    categorical_divergence,
    categorical_loss,
    categorical_projection,
    clipped_mass,
    quantile_loss,
    taken_distribution,
)

ATOMS = torch.linspace(-2.0, 2.0, 5)
PROBS = torch.tensor([[0.1, 0.2, 0.4, 0.2, 0.1]])
UNIFORM = torch.zeros(1, 5)
# Reward, discount, projection (V2), mass beyond the ends.
PROJECTIONS: list[tuple[float, float, list[float], float]] = [
    (0.5, 0.9, [0.03, 0.15, 0.32, 0.32, 0.18], 0.1),
    (1.0, 0.0, [0.0, 0.0, 0.0, 1.0, 0.0], 0.0),
    (3.0, 0.9, [0.0, 0.0, 0.0, 0.08, 0.92], 0.9),
]


def slow_projection(probs: list[float], atoms: list[float], r: float, d: float) -> list[float]:
    """Algorithm 1 of Bellemare et al. 2017, with its lower and upper neighbour."""
    spacing = (atoms[-1] - atoms[0]) / (len(atoms) - 1)
    result = [0.0] * len(atoms)
    for p, z in zip(probs, atoms, strict=True):
        # Rounded, the place of the last atom can lie just beyond it.
        place = (min(max(r + d * z, atoms[0]), atoms[-1]) - atoms[0]) / spacing
        place = min(place, len(atoms) - 1.0)
        low, high = math.floor(place), math.ceil(place)
        if low == high:
            result[low] += p
        else:
            result[low] += p * (high - place)
            result[high] += p * (place - low)
    return result


@pytest.mark.parametrize(("reward", "discount", "expected", "beyond"), PROJECTIONS)
def test_projections_are_the_golden_ones(
    reward: float, discount: float, expected: list[float], beyond: float
) -> None:
    r_t, discount_t = torch.tensor([reward]), torch.tensor([discount])
    found = categorical_projection(PROBS, ATOMS, r_t, discount_t)
    assert found[0].tolist() == pytest.approx(expected, abs=1e-6)
    mass = clipped_mass(PROBS, ATOMS, r_t, discount_t)
    assert mass.tolist() == pytest.approx([beyond], abs=1e-6)


@example([1.0] * 8, 0.0, 0.0, -5.0, 0.999)
@given(
    st.lists(st.floats(0.01, 1), min_size=2, max_size=9),
    st.floats(-20, 20),
    st.floats(0, 1),
    st.floats(-10, 5),
    st.floats(0.5, 20),
)
def test_a_projection_is_algorithm_1(
    weights: list[float], r: float, discount: float, v_min: float, width: float
) -> None:
    probs = [each / sum(weights) for each in weights]
    atoms = torch.linspace(v_min, v_min + width, len(probs), dtype=torch.float64)
    numbers = [torch.tensor([x], dtype=torch.float64) for x in (r, discount)]
    found = categorical_projection(torch.tensor([probs], dtype=torch.float64), atoms, *numbers)[
        0
    ].tolist()
    assert found == pytest.approx(slow_projection(probs, atoms.tolist(), r, discount), abs=1e-6)
    assert sum(found) == pytest.approx(1.0)


def test_the_loss_against_uniform_predictions_and_its_divergence() -> None:
    target = torch.tensor([PROJECTIONS[0][2]])
    loss = categorical_loss(UNIFORM, target)
    assert loss.tolist() == pytest.approx([1.609438], rel=1e-5)
    assert categorical_divergence(loss, target).tolist() == pytest.approx([0.181772], rel=1e-5)


def test_a_divergence_is_0_for_the_target_itself_and_never_less() -> None:
    target = torch.softmax(torch.randn(200, 7), -1)
    divergence = categorical_divergence(categorical_loss(target.log(), target), target)
    assert 0.0 <= float(divergence.min()) <= float(divergence.max()) < 1e-6


def test_only_the_predictions_have_a_gradient() -> None:
    logits, probs = torch.randn(1, 5, requires_grad=True), PROBS.clone().requires_grad_()
    target = categorical_projection(probs, ATOMS, torch.zeros(1), torch.ones(1))
    categorical_loss(logits, target).sum().backward()  # type: ignore[no-untyped-call]
    assert not target.requires_grad
    assert logits.grad is not None
    assert torch.allclose(logits.grad, torch.softmax(logits.detach(), -1) - target, atol=1e-6)


THETA, TARGETS = torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[0.5, 1.5, 4.0]])


@pytest.mark.parametrize(
    ("theta", "kappa", "expected"),
    [(THETA, 1.0, 1.194444), (THETA, 2.0, 0.868056), (THETA.flip(1), 1.0, 2.138889)],
)
def test_quantile_losses_are_the_golden_ones(
    theta: torch.Tensor, kappa: float, expected: float
) -> None:
    assert quantile_loss(theta, TARGETS, kappa).tolist() == pytest.approx([expected], rel=1e-5)


def slow_quantile_loss(theta: list[float], targets: list[float], kappa: float) -> float:
    total = 0.0
    for i, quantile in enumerate(theta):
        for target in targets:
            u = target - quantile
            size = abs(u)
            huber = (
                size if not kappa else 0.5 * u * u / kappa if size <= kappa else size - kappa / 2
            )
            total += abs((i + 0.5) / len(theta) - (u < 0)) * huber / len(targets)
    return total


@given(
    st.lists(st.floats(-9, 9), min_size=1, max_size=5),
    st.lists(st.floats(-9, 9), min_size=1, max_size=5),
    st.sampled_from([0.0, 0.5, 1.0, 3.0]),
)
def test_a_quantile_loss_is_the_formula(
    theta: list[float], targets: list[float], kappa: float
) -> None:
    given, goal = (torch.tensor([each], dtype=torch.float64) for each in (theta, targets))
    found = quantile_loss(given, goal, kappa)
    assert found.tolist() == pytest.approx([slow_quantile_loss(theta, targets, kappa)])


@pytest.mark.parametrize("kappa", [0.0, 0.7, 2.0])
def test_the_gradient_of_a_quantile_loss_is_that_of_the_formula(kappa: float) -> None:
    generator = torch.Generator().manual_seed(0)
    theta, targets = (3.0 * torch.randn(4, size, generator=generator) for size in (5, 7))
    theta.requires_grad_(True)
    [found] = torch.autograd.grad(quantile_loss(theta, targets, kappa).sum(), theta)
    for row, goals, slopes in zip(theta.tolist(), targets.tolist(), found.tolist(), strict=True):
        for i, slope in enumerate(slopes):
            ends = [[*row[:i], row[i] + step, *row[i + 1 :]] for step in (-1e-4, 1e-4)]
            low, high = (slow_quantile_loss(end, goals, kappa) for end in ends)
            assert slope == pytest.approx((high - low) / 2e-4, abs=1e-4)


def test_quantiles_move_to_those_of_the_targets() -> None:
    theta = torch.zeros(1, 4, requires_grad=True)
    targets = torch.arange(100.0).unsqueeze(0)
    optimizer = torch.optim.SGD([theta], lr=20.0)
    for _ in range(400):
        optimizer.zero_grad()
        quantile_loss(theta, targets, 0.0).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert theta[0].tolist() == pytest.approx([12.0, 37.0, 62.0, 87.0], abs=3.0)


def test_a_negative_kappa_is_refused() -> None:
    with pytest.raises(ValueError, match="kappa is -1"):
        quantile_loss(THETA, TARGETS, -1.0)


def test_the_distribution_of_the_taken_action() -> None:
    x_tm1 = torch.arange(12.0).reshape(2, 3, 2)
    assert taken_distribution(x_tm1, torch.tensor([2, 0])).tolist() == [[4.0, 5.0], [6.0, 7.0]]


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["reward", "discount", "probability"])
def test_a_projection_of_what_is_no_number_is_none(place: str, wrong: float) -> None:
    """The loss is not finite then, so the update is set aside; nothing is raised."""
    probs, reward, discount = PROBS.repeat(2, 1), torch.zeros(2), torch.ones(2)
    {"reward": reward, "discount": discount, "probability": probs[:, 2]}[place][1] = wrong
    found = categorical_projection(probs, ATOMS, reward, discount)
    assert torch.allclose(found[0], PROBS[0])
    if math.isnan(wrong) or place != "reward":
        assert not found[1].isfinite().all()


@pytest.mark.parametrize("atoms", [[], [1.0], [1.0, 1.0, 1.0], [2.0, 1.0], [math.nan, 1.0]])
def test_atoms_that_do_not_rise_are_refused(atoms: list[float]) -> None:
    probs = torch.full((1, len(atoms)), 0.5)
    with pytest.raises(ValueError, match="two atoms or more, rising"):
        categorical_projection(probs, torch.tensor(atoms), torch.zeros(1), torch.ones(1))
