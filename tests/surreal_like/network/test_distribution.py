"""Distributions against torch's own, against sums over all actions, and against frequencies."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributions

from surreal_like.network.distribution import (
    ActionScale,
    Beta,
    Bounded,
    Categorical,
    Distribution,
    Gaussian,
    MultiCategorical,
    SquashedGaussian,
)

NUMS = (3, 2)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def make(kind: str, *leading: int, seed: int = 0) -> Any:
    if kind == "categorical":
        return Categorical(2.0 * normal(*leading, 4, seed=seed))
    if kind == "multi":
        return MultiCategorical(2.0 * normal(*leading, sum(NUMS), seed=seed), NUMS)
    if kind == "beta":
        return Beta(*(1.0 + 2.0 * normal(*leading, 6, seed=seed).abs()).chunk(2, -1))
    mean, log_std = normal(*leading, 3, seed=seed), 0.3 * normal(3, seed=seed + 9)
    return Gaussian(mean, log_std) if kind == "gaussian" else SquashedGaussian(mean, log_std)


def theirs(mine: Any) -> Any:
    """The same as torch.distributions has it."""
    if isinstance(mine, Categorical):
        return distributions.Categorical(logits=mine.logits)
    if isinstance(mine, Beta):
        return distributions.Independent(distributions.Beta(mine.alpha, mine.beta), 1)
    gaussian = mine.gaussian if isinstance(mine, SquashedGaussian) else mine
    known: Any = distributions.Normal(gaussian.mean, gaussian.log_std.exp())
    if isinstance(mine, SquashedGaussian):
        # More exact than the float64 rounding of 1 - tanh**2 in these tests.
        tanh = distributions.TanhTransform(cache_size=1)
        known = distributions.TransformedDistribution(known, [tanh])
    return distributions.Independent(known, 1)


@pytest.mark.parametrize("kind", ["categorical", "gaussian", "squashed", "beta"])
@pytest.mark.parametrize("leading", [(), (5,), (4, 5)])
def test_log_probabilities_are_those_of_torch(kind: str, leading: tuple[int, ...]) -> None:
    mine = make(kind, *leading)
    actions = mine.sample(torch.Generator().manual_seed(1))
    found = mine.log_prob(actions)
    assert found.shape == leading
    assert torch.allclose(found, theirs(mine).log_prob(actions), atol=1e-6)


@pytest.mark.parametrize("kind", ["categorical", "gaussian", "beta"])
def test_entropy_and_kl_are_those_of_torch(kind: str) -> None:
    one, other = make(kind, 4, 5), make(kind, 4, 5, seed=3)
    assert torch.allclose(one.entropy(), theirs(one).entropy())
    expected = distributions.kl_divergence(theirs(one), theirs(other))
    assert torch.allclose(one.kl(other), expected)
    assert torch.allclose(one.kl(one), torch.zeros(4, 5).double(), atol=1e-12)


def test_several_choices_are_one_over_all_pairs() -> None:
    several, other = make("multi", 5), make("multi", 5, seed=3)
    pairs = torch.tensor([[i, j] for i in range(NUMS[0]) for j in range(NUMS[1])])
    log_probs = torch.stack([several.log_prob(pair.expand(5, 2)) for pair in pairs])
    others = torch.stack([other.log_prob(pair.expand(5, 2)) for pair in pairs])
    probs = log_probs.exp()
    assert torch.allclose(probs.sum(0), torch.ones(5).double())
    assert torch.allclose(several.entropy(), -(probs * log_probs).sum(0))
    assert torch.allclose(several.kl(other), (probs * (log_probs - others)).sum(0))
    assert torch.equal(several.mode(), pairs[probs.argmax(0)])


def test_constants_added_to_logits_change_nothing() -> None:
    logits = normal(6, 4)
    one, other = Categorical(logits), Categorical(logits + 1000.0)
    actions = one.sample()
    assert torch.allclose(one.log_prob(actions), other.log_prob(actions))
    assert torch.allclose(one.kl(other), torch.zeros(6).double(), atol=1e-9)


@pytest.mark.parametrize("kind", ["categorical", "multi"])
def test_actions_are_drawn_as_often_as_they_are_likely(kind: str) -> None:
    count = 20_000
    one = make(kind)
    many: Distribution = Categorical(one.logits.expand(count, -1))
    if kind == "multi":
        many = MultiCategorical(one.logits.expand(count, -1), NUMS)
    actions = many.sample(torch.Generator().manual_seed(0)).reshape(count, -1)
    assert actions.dtype == torch.int64
    rows, counts = np.unique(actions.numpy(), axis=0, return_counts=True)
    for row, seen in zip(torch.from_numpy(rows), counts.tolist(), strict=True):
        expected = count * float(one.log_prob(row if kind == "multi" else row[0]).exp())
        assert abs(seen - expected) < 5.0 * math.sqrt(expected)


@pytest.mark.parametrize("kind", ["gaussian", "squashed"])
def test_continuous_actions_are_drawn_as_their_density_says(kind: str) -> None:
    mean, log_std = torch.full((40_000, 1), 0.4).double(), torch.tensor([-0.5]).double()
    one = (Gaussian if kind == "gaussian" else SquashedGaussian)(mean, log_std)
    drawn = np.sort(one.sample(torch.Generator().manual_seed(0)).numpy().ravel())
    before = np.arctanh(drawn) if kind == "squashed" else drawn
    z = (before - 0.4) / math.exp(-0.5)
    expected = np.array([0.5 * (1 + math.erf(x / math.sqrt(2))) for x in z[::400]])
    assert np.abs(expected - np.linspace(0, 1, len(drawn))[::400]).max() < 0.02


def test_a_squashed_density_has_mass_1_and_its_draws_know_their_own() -> None:
    one = SquashedGaussian(torch.tensor([0.5]).double(), torch.tensor([-0.2]).double())
    grid = torch.linspace(-1, 1, 200_001, dtype=torch.float64)[1:-1]
    density = one.log_prob(grid.unsqueeze(-1)).exp()
    assert float(density.sum() * (grid[1] - grid[0])) == pytest.approx(1.0, abs=1e-4)
    many = make("squashed", 500)
    actions, log_prob = many.draw(torch.Generator().manual_seed(2))
    assert torch.allclose(log_prob, many.log_prob(actions), atol=1e-6)


@pytest.mark.parametrize("mean", [-30.0, -12.0, 0.0, 12.0, 30.0])
def test_a_squashed_draw_far_out_is_exact_in_float32(mean: float) -> None:
    """There 1 - tanh**2 is 0 in float32, and its logarithm would be infinite."""
    one = SquashedGaussian(torch.full((1, 1), mean), torch.full((1,), -1.0).requires_grad_())
    _, log_prob = one.draw(torch.Generator().manual_seed(0))
    noise = float(torch.empty(1, 1).normal_(generator=torch.Generator().manual_seed(0)))
    before = mean + math.exp(-1) * noise
    gaussian = -0.5 * noise**2 + 1 - 0.5 * math.log(2 * math.pi)
    log_slope = 2 * (math.log(2) - abs(before) - math.log1p(math.exp(-2 * abs(before))))
    assert log_prob.item() == pytest.approx(gaussian - log_slope, abs=1e-3)
    (gradient,) = torch.autograd.grad(log_prob.sum(), one.gaussian.log_std, allow_unused=True)
    assert gradient is None or torch.isfinite(gradient).all()


def test_the_ends_of_a_squashed_action_have_a_finite_density() -> None:
    one = SquashedGaussian(torch.zeros(2, 1), torch.zeros(1))
    found = one.log_prob(torch.tensor([[1.0], [-1.0]]))
    assert torch.isfinite(found).all()
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["gaussian", "squashed"])
def test_a_draw_has_the_gradient_of_its_mean_and_a_sample_none(kind: str) -> None:
    mean = normal(5, 3).requires_grad_()
    one = (Gaussian if kind == "gaussian" else SquashedGaussian)(mean, torch.zeros(3).double())
    drawn = one.draw()
    actions = drawn[0] if isinstance(drawn, tuple) else drawn
    (gradient,) = torch.autograd.grad(actions.sum(), mean)
    slope = 1 - actions.detach() ** 2 if kind == "squashed" else torch.ones_like(mean)
    assert torch.allclose(gradient, slope)
    assert not one.sample().requires_grad


@pytest.mark.parametrize("kind", ["categorical", "multi", "gaussian", "squashed", "beta"])
def test_the_mode_is_likelier_than_what_is_drawn(kind: str) -> None:
    one: Distribution = make(kind, 200)
    if kind == "squashed":
        # Of a squashed Gaussian the mode is the median; the likeliest has no closed form.
        assert torch.equal(one.mode(), one.gaussian.mean.tanh())  # type: ignore[attr-defined]
        return
    assert (one.log_prob(one.mode()) >= one.log_prob(one.sample())).all()


@pytest.mark.parametrize("kind", ["categorical", "gaussian", "squashed", "beta"])
def test_one_generator_gives_one_draw(kind: str) -> None:
    one = make(kind, 50)
    first, second = (one.sample(torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, one.sample(torch.Generator().manual_seed(5)))


def test_the_golden_beta() -> None:
    one, other = (Beta(torch.tensor([a]).double(), torch.tensor([5.0 - a])) for a in (2.0, 3.0))
    assert one.mode().tolist() == pytest.approx([1 / 3], rel=1e-5)
    assert one.log_prob(torch.tensor([0.5])).item() == pytest.approx(0.405465, rel=1e-5)
    assert one.entropy().item() == pytest.approx(-0.234907, rel=1e-5)
    assert one.kl(other).item() == pytest.approx(0.5, rel=1e-5)


def test_the_golden_squashed_gaussian() -> None:
    one = SquashedGaussian(torch.tensor([0.3]), torch.tensor([-0.5]))
    assert one.log_prob(torch.tensor([0.6])).item() == pytest.approx(-0.182727, rel=1e-5)


def test_beta_actions_are_drawn_as_their_density_says() -> None:
    one = Beta(torch.full((40_000, 1), 2.0), torch.full((40_000, 1), 3.0))
    drawn = np.sort(one.sample(torch.Generator().manual_seed(0)).numpy().ravel())[::400]
    # Distribution function of Beta(2, 3).
    expected = 6 * drawn**2 - 8 * drawn**3 + 3 * drawn**4
    assert np.abs(expected - np.linspace(0, 1, 100, endpoint=False)).max() < 0.02


def test_a_uniform_beta_is_finite_at_its_ends() -> None:
    one = Beta(torch.ones(3, 1), torch.ones(3, 1))
    assert one.mode().flatten().tolist() == [0.5, 0.5, 0.5]
    assert one.log_prob(torch.tensor([[0.0], [0.5], [1.0]])).tolist() == pytest.approx([0.0] * 3)
    assert one.entropy().tolist() == pytest.approx([0.0] * 3, abs=1e-6)
    steep = Beta(torch.full((1, 1), 9.0), torch.full((1, 1), 9.0))
    assert torch.isfinite(steep.log_prob(torch.tensor([[1.0]]))).all()


def test_the_entropy_of_squashed_draws_is_right_on_average_and_has_a_gradient() -> None:
    torch.manual_seed(0)
    log_std = torch.tensor([-0.5]).double().requires_grad_()
    one = SquashedGaussian(torch.full((40_000, 1), 0.3).double(), log_std)
    actions = torch.linspace(-1, 1, 20_001).double()[1:-1].unsqueeze(1)
    log_probs = SquashedGaussian(torch.tensor([0.3]).double(), log_std).log_prob(actions)
    expected, entropy = -(log_probs.exp() * log_probs).sum() * 1e-4, one.entropy().mean()
    assert entropy.item() == pytest.approx(expected.item(), abs=0.02)
    gradients = [torch.autograd.grad(each, log_std)[0].item() for each in (entropy, expected)]
    assert gradients[0] == pytest.approx(gradients[1], abs=0.02)


def test_the_divergence_of_squashed_gaussians_is_that_before_squashing() -> None:
    one, other = make("squashed", 5), make("squashed", 5, seed=3)
    assert torch.equal(one.kl(other), one.gaussian.kl(other.gaussian))


@pytest.mark.parametrize("kind", ["squashed", "beta"])
def test_bounded_actions_are_scaled_and_their_densities_are_not(kind: str) -> None:
    spec = {"type": "continuous", "dim": [3], "low": [-2.0, 0.0, 5.0], "high": [2.0, 1.0, 9.0]}
    scale = ActionScale(spec, from_zero=kind == "beta")
    unit = make(kind, 400)
    one = Bounded(unit, scale)
    inside = unit.sample(torch.Generator().manual_seed(1))
    actions = one.sample(torch.Generator().manual_seed(1))
    low, high = torch.tensor(spec["low"]), torch.tensor(spec["high"])
    share = inside if kind == "beta" else (inside + 1.0) / 2.0
    assert torch.allclose(actions, low + share * (high - low))
    assert ((low <= actions) & (actions <= high)).all()
    assert torch.allclose(one.log_prob(actions), unit.log_prob(inside), atol=1e-6)
    assert torch.allclose(one.log_prob(one.mode()), unit.log_prob(unit.mode()), atol=1e-6)
    other = make(kind, 400, seed=3)
    assert torch.equal(one.kl(Bounded(other, scale)), unit.kl(other))
    assert one.columns().keys() == unit.columns().keys()
    assert one.entropy().shape == (400,)
