"""Losses and priorities of sequences: golden numbers, and rows that must not count."""

import pytest
import torch

from surreal_like.addons.r2d2.r2d2 import rescale, sequence_loss, sequence_priority, unscale
from surreal_like.loss.returns import n_step_returns

DELTA = torch.tensor([[0.5], [-2.0], [1.0], [0.25], [9.0], [3.0]])
MASK = torch.tensor([[1.0], [1.0], [1.0], [1.0], [0.0], [0.0]])


def test_a_priority_is_the_golden_one() -> None:
    assert sequence_priority(DELTA, MASK).tolist() == pytest.approx([1.89375], rel=1e-6)
    assert sequence_priority(DELTA, MASK, eta=0.0).tolist() == pytest.approx([0.9375])


def test_a_loss_is_the_weighted_mean_of_means() -> None:
    delta = torch.cat((DELTA, torch.ones(6, 1)), 1)
    mask = torch.cat((MASK, torch.ones(6, 1)), 1)
    # Half the squares of the first: 0.125 + 2 + 0.5 + 0.03125, over 4 rows; of the second: 0.5.
    loss = sequence_loss(delta, mask, torch.tensor([1.0, 3.0]))
    assert loss.item() == pytest.approx((0.6640625 + 3.0 * 0.5) / 2)


def test_rows_of_mask_0_and_empty_sequences_add_nothing() -> None:
    delta = DELTA.clone().requires_grad_()
    sequence_loss(delta, MASK, torch.ones(1)).backward()  # type: ignore[no-untyped-call]
    assert delta.grad is not None
    assert delta.grad[4:].tolist() == [[0.0], [0.0]]
    empty = torch.zeros_like(MASK)
    assert sequence_loss(DELTA, empty, torch.ones(1)).item() == 0.0
    assert sequence_priority(DELTA, empty).tolist() == [0.0]


@pytest.mark.parametrize(
    ("x", "expected"),
    [(1.0, 0.415213562), (8.0, 2.008), (-15.0, -3.015), (1000.0, 31.638584), (1e6, 1999.0005)],
)
def test_rescaled_values_are_the_golden_ones(x: float, expected: float) -> None:
    assert rescale(torch.tensor(x).double(), 1e-3).item() == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(("x", "expected"), [(2.0, 7.95234914), (-3.0, -14.8811721)])
def test_unscaled_values_are_the_golden_ones(x: float, expected: float) -> None:
    assert unscale(torch.tensor(x).double(), 1e-3).item() == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(("dtype", "within"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
@pytest.mark.parametrize("epsilon", [1e-3, 1e-2, 0.0])
def test_unscale_inverts_rescale(dtype: torch.dtype, within: float, epsilon: float) -> None:
    size = torch.logspace(-6, 6, 500, dtype=dtype)
    values = torch.cat((-size, torch.zeros(1, dtype=dtype), size))
    for there, back in ((rescale, unscale), (unscale, rescale)):
        again = back(there(values, epsilon), epsilon)
        torch.testing.assert_close(again, values, rtol=within, atol=0.0)


def test_targets_of_rescaled_values() -> None:
    def target(r: float, discount: float, q: float) -> float:
        value = unscale(torch.tensor(q).double(), 1e-3)
        return rescale(r + discount * value, 1e-3).item()

    assert target(1.0, 0.99, 2.0) == pytest.approx(2.15097812, rel=1e-8)


def test_n_step_targets_of_rescaled_values_in_a_sequence() -> None:
    q = unscale(torch.tensor([[0.5], [0.4], [0.3], [0.2]]).double(), 1e-3)
    rewards = torch.tensor([[1.0], [0.0], [2.0]]).double()
    discounts = torch.full((3, 1), 0.9).double()
    targets = rescale(n_step_returns(rewards, discounts, q[:-1], q[-1], n=2), 1e-3)
    expected = [0.60076069, 0.77854144, 0.84496175]
    assert targets.squeeze(1).tolist() == pytest.approx(expected, rel=1e-7)
