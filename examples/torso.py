"""A torso of your own: the network between observations and the heads of an algorithm."""

import torch
from torch import nn


class Squares(nn.Module):
    """Sees observations and their squares, with one layer."""

    def __init__(self, obs_spec, *, width=64):
        super().__init__()
        self.layer = nn.Linear(2 * obs_spec["dim"][0], width)
        self.out_features = width

    def forward(self, obs):
        # [B, 4] -> [B, width]
        return torch.relu(self.layer(torch.cat((obs, obs.square()), -1)))
