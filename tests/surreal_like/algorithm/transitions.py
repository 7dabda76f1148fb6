"""Batches of transitions for algorithms with continuous actions."""

from typing import Any

import torch
from torch import nn

from surreal_like.data.batch import Batch
from tests.surreal_like.algorithm.unrolls import configs

ACTION = {"type": "continuous", "dim": [2], "low": [-2.0, 0.0], "high": [2.0, 4.0]}
SIZE = 6


def options(algorithm: Any, **changed: Any) -> Any:
    return configs(algorithm, ACTION, **changed)


def make_transitions(seed: int = 0) -> Batch:
    """Inner steps, a time limit, and one that ends in a termination."""
    torch.manual_seed(seed)
    discounts = torch.full((SIZE,), 0.9)
    discounts[0] = 0.0
    return Batch(
        obs=torch.randn(SIZE, 4),
        obs_next=torch.randn(SIZE, 4),
        actions=torch.rand(SIZE, 2) * 4.0 + torch.tensor([-2.0, 0.0]),
        rewards=torch.randn(SIZE),
        discounts=discounts,
        dones=(discounts == 0).float(),
        weights=torch.rand(SIZE),
        indices=torch.arange(SIZE),
        extras={},
    )


def check_moved(before: nn.Module, towards: nn.Module, now: nn.Module, share: float) -> None:
    """A network has moved by this share of the way towards another one."""
    networks = (each.parameters() for each in (before, towards, now))
    for was, there, moved in zip(*networks, strict=True):
        torch.testing.assert_close(moved, torch.lerp(was, there, share))
