"""Module: one piece to read, load, compare, copy and keep."""

import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from session.errors import CheckpointError
from surreal_like.errors import SpecError
from surreal_like.network.flat import flatten_parameters, load_flat, read_flat
from surreal_like.network.module import Module


class Net(Module):
    """Two layers, a buffer, weights that are used twice."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.first = nn.Linear(3, width)
        self.tied = nn.Linear(width, width)
        self.again = nn.Linear(width, width)
        self.again.weight = self.tied.weight
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.again(self.tied(self.first(x)))
        return y


def test_a_module_is_a_torch_module_and_any_torch_module_can_be_read() -> None:
    assert isinstance(Net(), nn.Module)
    assert read_flat(nn.Linear(1, 1)).nbytes == 16


def test_what_one_reads_another_loads_and_the_hash_says_so() -> None:
    one, two = Net(), Net()
    assert one.hash() != two.hash()
    two.load_flat(one.read_flat())
    assert one.hash() == two.hash()
    assert one.manifest == two.manifest


def test_the_hash_covers_buffers() -> None:
    net = Net()
    before = net.hash()
    net.get_buffer("count").add_(1)
    assert net.hash() != before


def test_a_frozen_module_has_no_gradient_and_evaluates() -> None:
    net = Net().freeze()
    assert not net.training
    assert not net(torch.ones(1, 3)).requires_grad


def test_a_clone_shares_nothing() -> None:
    net = Net()
    flatten_parameters(net)
    twin = net.clone()
    before = net.hash()
    assert twin.hash() == before
    with torch.no_grad():
        for each in twin.parameters():
            each.add_(1.0)
    assert net.hash() == before
    assert twin.again.weight is twin.tied.weight


def test_a_loaded_module_is_the_saved_one(tmp_path: Path) -> None:
    one, two = Net(), Net()
    flatten_parameters(one)
    one.save(tmp_path / "net.safetensors")
    two.load(tmp_path / "net.safetensors")
    assert one.hash() == two.hash()


def test_a_file_of_another_network_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    Net(width=5).save(tmp_path / "net.safetensors")
    net = Net()
    before = net.hash()
    with pytest.raises(SpecError, match=r"float32 \[4, 3\], they have .* float32 \[5, 3\]"):
        net.load(tmp_path / "net.safetensors")
    assert net.hash() == before


def test_a_file_cut_short_or_missing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    Net().save(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=r"cannot read parameters from .*net\.safetensors"):
        Net().load(path)
    with pytest.raises(CheckpointError, match="missing"):
        Net().load(tmp_path / "missing.safetensors")


def test_loading_waits_for_a_forward_pass_that_is_under_way() -> None:
    class Slow(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            entered.set()
            seen.append(self.first.weight.sum().item())
            assert leave.wait(10)
            seen.append(self.first.weight.sum().item())
            return x

    entered, leave, loaded = threading.Event(), threading.Event(), threading.Event()
    seen: list[float] = []
    net, other = Slow(), Net()

    def load() -> None:
        # As an agent does it: all of its modules at once.
        load_flat({"net": net}, other.read_flat())
        loaded.set()

    forward = threading.Thread(target=net, args=(torch.ones(1, 3),))
    forward.start()
    assert entered.wait(10)
    loading = threading.Thread(target=load)
    loading.start()
    assert not loaded.wait(0.05)
    leave.set()
    forward.join(10)
    loading.join(10)
    assert loaded.is_set()
    assert seen[0] == seen[1]
    assert net.hash() == other.hash()


class Small(Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("mean", torch.randn(2))


def test_unfreeze_undoes_freeze() -> None:
    net = Small().freeze()
    assert net.unfreeze() is net
    assert net.training
    assert all(parameter.requires_grad for parameter in net.parameters())


def test_gradients_are_clipped() -> None:
    net = Small()
    for parameter in net.parameters():
        parameter.grad = torch.full_like(parameter, 2.0)
    count = sum(parameter.numel() for parameter in net.parameters())
    assert net.clip_grad_norm(1.0) == pytest.approx(2.0 * count**0.5)
    gradients = torch.cat([parameter.grad.flatten() for parameter in net.parameters()])  # type: ignore[union-attr]
    assert float(gradients.norm()) == pytest.approx(1.0, rel=1e-4)
    net.clip_grad_value(0.1)
    assert all(float(p.grad.abs().max()) <= 0.1001 for p in net.parameters() if p.grad is not None)


def test_modules_copy_each_other() -> None:
    one, other, third = Small(), Small(), Small()
    assert one.hash() != other.hash()
    assert one.copy_from(other) is one
    other.copy_to(third)
    assert one.hash() == other.hash() == third.hash()
    assert torch.equal(one.get_buffer("mean"), other.get_buffer("mean"))
    assert not one.is_cuda
    with pytest.raises(SpecError):
        one.copy_from(Module())
