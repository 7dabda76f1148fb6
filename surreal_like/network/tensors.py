"""Converts between nests of numpy arrays and nests of torch tensors that share their memory."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from session import nest


def _cause_warning() -> None:
    """Triggers torch's one-time warning about read-only arrays, because received ones are."""
    array = np.zeros(1)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        torch.from_numpy(array)


_cause_warning()


def to_tensor(arrays: Any, device: torch.device | str = "cpu") -> Any:
    """Converts a nest of arrays to tensors; on the CPU nothing is copied.

    Args:
        arrays: nest of numpy arrays; read-only ones must not be written through the tensors.
        device: device of the tensors.
    """
    return nest.map(lambda array: torch.from_numpy(array).to(device, non_blocking=True), arrays)


def to_float_tensor(arrays: Any, device: torch.device | str = "cpu") -> Any:
    """Converts a nest of arrays or numbers of any dtype to float32 tensors."""
    return nest.map(lambda a: torch.from_numpy(np.asarray(a)).to(device, torch.float32), arrays)
