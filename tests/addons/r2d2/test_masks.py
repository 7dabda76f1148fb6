"""Masks of actions in sequences: targets, and the values of the network."""

from __future__ import annotations

import torch

from surreal_like.addons.r2d2.r2d2 import R2D2, R2D2Learner
from surreal_like.network.masks import MASKED_VALUE
from surreal_like.network.q_network import RECURRENT_Q_CONFIG, QNetwork
from tests.surreal_like.algorithm.test_masks import bait, setting, unrolls
from tests.surreal_like.algorithm.unrolls import B, T
from tests.surreal_like.network.test_masks import SPEC as OF_THREE
from tests.surreal_like.network.test_masks import B as WIDTH
from tests.surreal_like.network.test_masks import make_obs


def test_sequences_bootstrap_from_legal_actions() -> None:
    replay = {"sequence": {"burn_in": 1, "length": T - 1}, "priority": {"eta": 0.9}}
    learner = R2D2Learner(
        **setting(R2D2, n_step=1, rescale=0.0, dueling=False, learner={"replay": replay})
    )
    bait(learner)
    batch = unrolls()
    batch["weights"] = torch.ones(B)
    state = learner.q_network.core.initial_state(B)
    batch["extras"] = {"memory": state.expand(T, B, -1).clone()}
    loss = learner.loss(batch)
    # Every value is 1, of the second action: it is the best legal one everywhere.
    delta = batch.rewards + batch.discounts * batch.obs["action_mask"][1:, :, 1] - 1.0
    mask = batch.mask[1:]
    expected = (delta[1:].abs() * mask).sum() / mask.sum()
    torch.testing.assert_close(loss.metrics["td_error"], expected)


def test_a_mask_changes_values_of_sequences_only_where_it_forbids() -> None:
    torch.manual_seed(0)
    network = QNetwork(OF_THREE, 3, model=RECURRENT_Q_CONFIG, dueling=True)
    state, first = network.core.initial_state(WIDTH), torch.zeros(5, WIDTH, dtype=torch.bool)
    free, masked = (
        network.unroll(make_obs(mask, 5, WIDTH), state, first) for mask in ([1, 1, 1], [0, 1, 1])
    )
    assert torch.equal(free[1], masked[1])
    assert torch.equal(free[0][..., 1:], masked[0][..., 1:])
    assert (masked[0][..., 0] == MASKED_VALUE).all()
