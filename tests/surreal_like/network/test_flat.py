"""Modules as one piece of memory: what is read comes back, and the optimiser sees all of it."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from surreal_like.errors import SpecError
from surreal_like.network.flat import (
    check_manifest,
    flatten_parameters,
    load_flat,
    manifest_of,
    named_tensors,
    read_flat,
)


def make_odd() -> nn.Module:
    """Parameters of odd sizes, and buffers of other dtypes."""
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 1, bias=False))


def tensors_equal(one: nn.Module, two: nn.Module) -> bool:
    pairs = zip(named_tensors(one).values(), named_tensors(two).values(), strict=True)
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


def test_what_is_read_can_be_loaded_buffers_included() -> None:
    source, target = make_odd(), make_odd()
    source(torch.randn(8, 3))
    assert not tensors_equal(source, target)
    load_flat(target, read_flat(source))
    assert tensors_equal(source, target)
    assert int(target.get_buffer("1.num_batches_tracked")) == 1


def test_loading_writes_in_place() -> None:
    module = make_odd()
    before = [each.data_ptr() for each in named_tensors(module).values()]
    load_flat(module, read_flat(make_odd()))
    assert [each.data_ptr() for each in named_tensors(module).values()] == before


def test_a_read_only_buffer_is_loaded_without_a_warning() -> None:
    source, target = make_odd(), make_odd()
    load_flat(target, np.frombuffer(read_flat(source).tobytes(), np.uint8))
    assert tensors_equal(source, target)


def test_several_modules_are_one_buffer_with_their_names_in_front() -> None:
    modules = {"actor": nn.Linear(2, 1), "critic": nn.Linear(3, 1)}
    manifest = manifest_of(named_tensors(modules))
    names = ["actor/weight", "actor/bias", "critic/weight", "critic/bias"]
    assert [entry.name for entry in manifest] == names
    twins = {"actor": nn.Linear(2, 1), "critic": nn.Linear(3, 1)}
    load_flat(twins, read_flat(modules))
    assert all(tensors_equal(modules[key], twins[key]) for key in modules)


def test_the_manifest_says_where_each_tensor_lies() -> None:
    module = make_odd()
    flat = read_flat(module)
    for entry, tensor in zip(
        manifest_of(named_tensors(module)), named_tensors(module).values(), strict=True
    ):
        part = flat[entry.offset_bytes : entry.offset_bytes + entry.size_bytes]
        array = part.view(entry.dtype).reshape(entry.shape)
        assert np.array_equal(array, tensor.numpy())


def test_a_buffer_of_another_size_is_refused() -> None:
    with pytest.raises(SpecError, match="8 bytes, this network"):
        load_flat(make_odd(), np.zeros(8, np.uint8))


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        (nn.Linear(3, 4), r"it has 'weight' float32 \[2, 3\], they have 'weight' float32 \[4, 3\]"),
        (nn.Linear(3, 2, bias=False), r"it has 'bias' float32 \[2\], they have nothing more"),
        (nn.Linear(3, 2).double(), r"they have 'weight' float64 \[2, 3\]"),
    ],
)
def test_a_manifest_that_differs_is_refused_with_both_sides(theirs: nn.Module, words: str) -> None:
    mine = manifest_of(named_tensors(nn.Linear(3, 2)))
    check_manifest(mine, manifest_of(named_tensors(nn.Linear(3, 2))))
    with pytest.raises(SpecError, match=words):
        check_manifest(mine, manifest_of(named_tensors(theirs)))


def test_flattened_parameters_compute_the_same_and_share_one_gradient() -> None:
    module = make_odd()
    twin = copy.deepcopy(module)
    flat, gradient = flatten_parameters(module)
    x = torch.randn(8, 3)
    for each in (module, twin):
        each(x).square().sum().backward()
    expected = [each.grad.reshape(-1) for each in twin.parameters() if each.grad is not None]
    assert flat.grad is gradient
    assert torch.equal(gradient, torch.cat(expected))
    with torch.no_grad():
        flat.zero_()
    assert all(not each.any() for each in module.parameters())


def test_frozen_parameters_stay_out_of_the_flat_one() -> None:
    module = make_odd()
    module[0].requires_grad_(False)  # type: ignore[index]
    assert flatten_parameters(module)[0].numel() == 5 + 5 + 5


@pytest.mark.parametrize(
    "module", [nn.ReLU(), nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1).double())]
)
def test_parameters_that_do_not_fit_one_tensor_are_refused(module: nn.Module) -> None:
    with pytest.raises(ValueError, match="one dtype on one device"):
        flatten_parameters(module)
