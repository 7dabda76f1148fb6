"""Transfers batches to the learner's device: shared memory on the CPU, asynchronous on CUDA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import torch

from surreal_like.network.tensors import to_tensor

Columns = Mapping[str, npt.NDArray[Any]]


class DeviceFeed:
    """Converts columns to tensors.

    On the CPU they share the memory of the arrays. To CUDA they are copied through pinned memory on
    a separate stream, so that the transfer overlaps with computation on the previous batch; the
    arrays may be reused as soon as the call returns.

    Args:
        device: device of the tensors.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cuda = _CudaFeed(device) if device.type == "cuda" else None

    def __call__(self, columns: Columns) -> dict[str, torch.Tensor]:
        """Returns the tensors of the columns, by the same names."""
        if self._cuda is not None:
            return self._cuda.send(columns)
        return {name: to_tensor(column, self._device) for name, column in columns.items()}


class _CudaFeed:
    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._staging = (_Staging(), _Staging())

    def send(self, columns: Columns) -> dict[str, torch.Tensor]:
        staging = self._staging[0]
        self._staging = self._staging[::-1]
        pinned = staging.fill(columns)
        with torch.cuda.stream(self._stream):
            tensors = {
                name: tensor.to(self._device, non_blocking=True) for name, tensor in pinned.items()
            }
            staging.left.record(self._stream)
        user = torch.cuda.current_stream(self._device)
        user.wait_stream(self._stream)
        for tensor in tensors.values():
            # Otherwise the allocator could give its memory to the next batch while it is in use.
            tensor.record_stream(user)
        return tensors


class _Staging:
    """Pinned memory for one batch; the event ``left`` marks the end of the device's copy."""

    def __init__(self) -> None:
        self.left = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._pinned: dict[str, torch.Tensor] = {}

    def fill(self, columns: Columns) -> dict[str, torch.Tensor]:
        self.left.synchronize()
        for name, column in columns.items():
            source = torch.from_numpy(column)
            known = self._pinned.get(name)
            if known is None or known.shape != source.shape or known.dtype != source.dtype:
                known = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
            self._pinned[name] = known.copy_(source)
        return {name: self._pinned[name] for name in columns}
