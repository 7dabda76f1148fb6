"""The adaptive step size: golden numbers, bounds, saved state."""

import math

import pytest

from session.errors import ConfigError
from surreal_like.learner.target import AdaptiveStep


def test_it_follows_the_divergence() -> None:
    step = AdaptiveStep(3e-4, kl=0.01)
    found = []
    for kl in (0.003, 0.004, 0.012, 0.03, 0.05):
        step.adapt(kl)
        found.append(step.value)
    assert found == pytest.approx([4.5e-4, 6.75e-4, 6.75e-4, 4.5e-4, 3e-4], rel=1e-9)


@pytest.mark.parametrize(
    ("share", "change"),
    [(0.49, 1.5), (0.51, 1.0), (1.0, 1.0), (1.5, 1.0), (1.99, 1.0), (2.01, 1 / 1.5)],
)
def test_within_a_factor_of_two_of_the_target_it_stays(share: float, change: float) -> None:
    step = AdaptiveStep(3e-4, kl=0.01)
    step.adapt(share * 0.01)
    assert step.value == pytest.approx(change * 3e-4, rel=1e-9)


@pytest.mark.parametrize(("kl", "end"), [(0.0, 1e-3), (1.0, 1e-4), (math.inf, 1e-4)])
def test_it_stays_within_bounds(kl: float, end: float) -> None:
    step = AdaptiveStep(3e-4, kl=0.01, low=1e-4, high=1e-3)
    for _ in range(20):
        step.adapt(kl)
    assert step.value == end


@pytest.mark.parametrize(
    ("start", "low", "high"), [(3e-4, 1e-3, 1e-2), (0.05, 1e-6, 1e-2), (0.0, 0.0, 1e-2), (1, 2, 1)]
)
def test_a_start_beyond_the_bounds_is_refused(start: float, low: float, high: float) -> None:
    """Its first step would be towards a bound, whatever the divergence is."""
    with pytest.raises(ConfigError, match=f"low {low} and high {high}: expected 0 < low <= "):
        AdaptiveStep(start, kl=0.01, low=low, high=high)


def test_a_start_on_a_bound_stays_there() -> None:
    step = AdaptiveStep(1e-3, kl=0.01, low=1e-3, high=1e-3)
    for kl in (0.0, 1.0):
        step.adapt(kl)
        assert step.value == 1e-3


def test_a_nan_changes_nothing() -> None:
    step = AdaptiveStep(3e-4, kl=0.01)
    step.adapt(math.nan)
    assert step.value == 3e-4


def test_it_is_restored() -> None:
    step, other = AdaptiveStep(3e-4, kl=0.01), AdaptiveStep(3e-4, kl=0.01)
    step.adapt(0.0)
    other.load_state_dict(step.state_dict())
    assert other.value == step.value == pytest.approx(4.5e-4)
