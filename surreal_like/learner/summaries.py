"""Tensors whose histograms a learner reports: parameters, gradients, and the batch of an update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import torch
from torch import nn

from surreal_like.dataflow.items import Trained, columns_of

# Of a larger tensor evenly spaced numbers are taken: the histogram of all looks the same.
_MOST = 65_536
# These columns say which row it is.
_LABELS = ("indices", "version")


def summaries_of(attributes: Mapping[str, Any], update: Trained) -> dict[str, torch.Tensor]:
    """Returns tensors by tag, such as ``parameters/policy/torso.0.weight`` and ``batch/rewards``.

    Args:
        attributes: of a learner; those that are modules count, under their names.
        update: the newest one, to which the gradients belong.
    """
    found: dict[str, torch.Tensor] = {}
    for key, module in attributes.items():
        if isinstance(module, nn.Module):
            for name, parameter in module.named_parameters():
                if parameter.requires_grad and parameter.grad is not None:
                    found[f"parameters/{key}/{name}"] = parameter.detach()
                    found[f"gradients/{key}/{name}"] = parameter.grad
    for name, column in columns_of(update.batch).items():
        if name not in _LABELS and isinstance(column, torch.Tensor):
            found[f"batch/{name}"] = column
    if update.priorities is not None:
        found["batch/priorities"] = update.priorities
    return found


def thinned(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Returns at most 65,536 evenly spaced numbers of a tensor, ``[M]``, in memory of the CPU."""
    flat = tensor.detach().reshape(-1)
    return flat[:: -(-len(flat) // _MOST) or 1].cpu().numpy()
