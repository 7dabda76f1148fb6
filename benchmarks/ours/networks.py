"""The networks whose parameters are published: 6.7 MB, what DQN plays Atari with, and 71 kB."""

from __future__ import annotations

from torch import nn


def make_small_network() -> nn.Module:
    """Two layers of 128, in front of four numbers."""
    return nn.Sequential(
        nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2)
    )


def make_network(actions: int = 6) -> nn.Module:
    """Mnih and others 2015: three convolutions, one layer of 512."""
    return nn.Sequential(
        nn.Conv2d(4, 32, 8, 4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, 2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3136, 512),
        nn.ReLU(),
        nn.Linear(512, actions),
    )
