"""Batches on their way to the learner's device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from surreal_like.learner.link import DeviceFeed


def columns(number: int) -> dict[str, np.ndarray]:
    return {
        "obs": np.full((64, 8), number, np.float32),
        "actions": np.full(64, number, np.int64),
        "dones": np.full(64, number % 2, np.bool_),
    }


def test_on_the_cpu_nothing_is_copied() -> None:
    given = columns(3)
    tensors = DeviceFeed(torch.device("cpu"))(given)
    assert {name: tensor.dtype for name, tensor in tensors.items()} == {
        "obs": torch.float32,
        "actions": torch.int64,
        "dones": torch.bool,
    }
    given["obs"][0, 0] = 7.0
    assert tensors["obs"][0, 0] == 7.0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_on_cuda_arrays_may_be_used_again_at_once() -> None:
    feed, given, sums = DeviceFeed(torch.device("cuda")), columns(0), []
    for number in range(1, 50):
        for name, column in columns(number).items():
            given[name][...] = column
        tensors = feed(given)
        sums.append(tensors["obs"].sum() + tensors["actions"].sum())
    assert [float(total) for total in sums] == [64 * 9 * number for number in range(1, 50)]
