"""Losses and priorities of sequences: golden numbers, and rows that must not count."""

import pytest
import torch

from surreal_like.loss.value import sequence_loss, sequence_priority

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
