"""Between numpy and torch: nests of arrays and nests of tensors that share their memory."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from session import nest


def _cause_warning() -> None:
    """Received arrays are read-only views; torch has no such tensors, and says so, once."""
    array = np.zeros(1)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        torch.from_numpy(array)


_cause_warning()


def to_tensor(arrays: Any, device: torch.device | str = "cpu") -> Any:
    """A nest of tensors over a nest of arrays; nothing is copied on the CPU.

    Args:
        arrays: nest of numpy arrays; read-only ones must not be written through the tensors.
        device: where the tensors are to be.
    """
    return nest.map(lambda array: torch.from_numpy(array).to(device, non_blocking=True), arrays)


def to_float_tensor(arrays: Any, device: torch.device | str = "cpu") -> Any:
    """A nest of float32 tensors from a nest of arrays or numbers of any dtype."""
    return nest.map(lambda a: torch.from_numpy(np.asarray(a)).to(device, torch.float32), arrays)


def to_array(tensors: Any) -> Any:
    """A nest of arrays from a nest of tensors, arrays or numbers, without gradient."""
    return nest.map(_array, tensors)


def _array(value: Any) -> npt.NDArray[Any]:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy()
    return np.asarray(value)
