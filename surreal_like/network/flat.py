"""Tensors of modules as one block of memory, and tensors that share the memory of arrays."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from session import nest
from surreal_like.data.parameters import (
    Manifest,
    ParameterEntry,
    make_manifest,
    manifest_size_bytes,
)
from surreal_like.errors import SpecError

Modules = nn.Module | Mapping[str, nn.Module]


def named_tensors(modules: Modules) -> dict[str, torch.Tensor]:
    """Returns name -> parameter or persistent buffer, which share memory with the modules.

    With several modules the names are `<module>/<tensor>`.
    """
    if isinstance(modules, nn.Module):
        return dict(modules.state_dict())
    return {
        f"{key}/{name}": tensor
        for key, module in modules.items()
        for name, tensor in module.state_dict().items()
    }


def weights_of(modules: Modules) -> frozenset[str]:
    """Returns the names, as of :func:`named_tensors`, of the parameters that are trained.

    Moments, scales, counters and tables are buffers, or parameters without a gradient.
    """
    return frozenset(name for name, each in named_weights(modules).items() if each.requires_grad)


def named_weights(modules: Modules) -> dict[str, nn.Parameter]:
    """Returns name, as of :func:`named_tensors`, -> parameter, with a gradient or without."""
    parts = {"": modules} if isinstance(modules, nn.Module) else modules
    return {
        f"{key}/{name}" if key else name: each
        for key, module in parts.items()
        for name, each in module.named_parameters(remove_duplicate=False)
    }


def manifest_of(tensors: Mapping[str, torch.Tensor]) -> Manifest:
    """Returns the position of each tensor in a flat buffer: name, dtype, shape and offset."""
    return make_manifest(
        [
            (name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
            for name, tensor in tensors.items()
        ]
    )


def check_manifest(mine: Manifest, theirs: Manifest) -> None:
    """Raises SpecError, which shows both sides, if parameters of `theirs` do not fit `mine`."""
    if mine == theirs:
        return
    for here, there in zip_longest(map(_describe, mine), map(_describe, theirs)):
        if here != there:
            raise SpecError(
                f"parameters do not fit this network: it has {here or 'nothing more'}, they have"
                f" {there or 'nothing more'}; agent and learner must build their modules alike"
            )


def read_flat(modules: Modules) -> npt.NDArray[np.uint8]:
    """Copies all tensors into one new buffer of bytes on the CPU; gaps between tensors are zero.

    A `Module` cannot be called meanwhile.
    """
    with _hold(modules):
        return pack_tensors(named_tensors(modules))


def pack_tensors(tensors: Mapping[str, torch.Tensor]) -> npt.NDArray[np.uint8]:
    """Copies tensors into one new buffer of bytes on the CPU; gaps between them are zero."""
    manifest = manifest_of(tensors)
    flat = torch.zeros(manifest_size_bytes(manifest), dtype=torch.uint8)
    for tensor, view in _views(tensors, manifest, flat):
        view.copy_(tensor)
    return flat.numpy()


def load_flat(
    modules: Modules, flat: npt.NDArray[np.uint8], theirs: Manifest | None = None
) -> None:
    """Copies a buffer made by `read_flat` into the tensors, in place: one copy for each.

    A `Module` cannot be called meanwhile. Raises SpecError if the size of the buffer differs, or
    `theirs`, the manifest of the buffer.
    """
    tensors = named_tensors(modules)
    manifest = manifest_of(tensors)
    if theirs is not None:
        check_manifest(manifest, theirs)
    expected = manifest_size_bytes(manifest)
    if flat.nbytes != expected:
        raise SpecError(f"parameters have {flat.nbytes} bytes, this network {expected}")
    # torch warns about read-only memory, such as received frames.
    writable = flat if flat.flags.writeable else flat.copy()
    with _hold(modules), torch.no_grad():
        for tensor, view in _views(tensors, manifest, torch.from_numpy(writable)):
            tensor.copy_(view)


def flatten_parameters(module: nn.Module) -> tuple[nn.Parameter, torch.Tensor]:
    """Moves all trainable parameters into one contiguous tensor; they become views of it.

    Returns that tensor as one parameter `[size]`, and its gradient, also contiguous: `backward` on
    the module adds to it in place (zero it, never set the module's gradients to None). Gradient
    clipping and an optimizer then need one call each instead of one per layer; such calls are a
    third of the update time of a small network. Raises ValueError if parameters differ in dtype or
    device, or if none is trainable.
    """
    parameters = [each for each in module.parameters() if each.requires_grad]
    kinds = {f"{each.dtype} on {each.device}" for each in parameters}
    if len(kinds) != 1:
        raise ValueError(f"parameters must be of one dtype on one device, found {sorted(kinds)}")
    with torch.no_grad():
        data = torch.cat([each.reshape(-1) for each in parameters])
        gradient = torch.zeros_like(data)
        start = 0
        for each in parameters:
            end = start + each.numel()
            each.data = data[start:end].view(each.shape)
            each.grad = gradient[start:end].view(each.shape)
            start = end
    flat = nn.Parameter(data)
    flat.grad = gradient
    return flat, gradient


@contextmanager
def _hold(modules: Modules) -> Iterator[None]:
    """Prevents calls of those modules that have a lock."""
    with ExitStack() as locks:
        for module in [modules] if isinstance(modules, nn.Module) else modules.values():
            locks.enter_context(getattr(module, "parameter_lock", nullcontext()))
        yield


def _views(
    tensors: Mapping[str, torch.Tensor], manifest: Manifest, flat: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields each tensor with its view of the flat buffer."""
    for tensor, entry in zip(tensors.values(), manifest, strict=True):
        place = flat[entry.offset_bytes : entry.offset_bytes + tensor.nbytes]
        yield tensor, place.view(tensor.dtype).view(tensor.shape)


def _describe(entry: ParameterEntry) -> str:
    return f"{entry.name!r} {entry.dtype} {list(entry.shape)}"


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
