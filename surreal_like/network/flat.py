"""The tensors of modules as one contiguous piece of memory: for the wire, and for the optimiser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import zip_longest

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from surreal_like.data.parameters import (
    Manifest,
    ParameterEntry,
    make_manifest,
    manifest_size_bytes,
)
from surreal_like.errors import SpecError

Modules = nn.Module | Mapping[str, nn.Module]


def named_tensors(modules: Modules) -> dict[str, torch.Tensor]:
    """Gives name -> parameter or persistent buffer, sharing memory with the modules.

    Of several modules the names are `<module>/<tensor>`.
    """
    if isinstance(modules, nn.Module):
        return dict(modules.state_dict())
    return {
        f"{key}/{name}": tensor
        for key, module in modules.items()
        for name, tensor in module.state_dict().items()
    }


def manifest_of(tensors: Mapping[str, torch.Tensor]) -> Manifest:
    """Where each tensor lies in a flat buffer: name, dtype, shape and offset."""
    return make_manifest(
        [
            (name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
            for name, tensor in tensors.items()
        ]
    )


def check_manifest(mine: Manifest, theirs: Manifest) -> None:
    """Raises SpecError, showing both sides, if parameters of `theirs` do not fit `mine`."""
    for here, there in zip_longest(map(_describe, mine), map(_describe, theirs)):
        if here != there:
            raise SpecError(
                f"parameters do not fit this network: it has {here or 'nothing more'}, they have"
                f" {there or 'nothing more'}; agent and learner must build their modules alike"
            )


def read_flat(modules: Modules) -> npt.NDArray[np.uint8]:
    """Copies all tensors into one new buffer of bytes on the CPU; gaps between tensors are zero.

    A `Module` is not called meanwhile.
    """
    tensors = named_tensors(modules)
    manifest = manifest_of(tensors)
    flat = torch.zeros(manifest_size_bytes(manifest), dtype=torch.uint8)
    with _hold(modules):
        for tensor, view in _views(tensors, manifest, flat):
            view.copy_(tensor)
    return flat.numpy()


def load_flat(modules: Modules, flat: npt.NDArray[np.uint8]) -> None:
    """Copies a buffer made by `read_flat` into the tensors, in place: one copy for each.

    A `Module` is not called meanwhile. Raises SpecError if its size differs.
    """
    tensors = named_tensors(modules)
    manifest = manifest_of(tensors)
    expected = manifest_size_bytes(manifest)
    if flat.nbytes != expected:
        raise SpecError(f"parameters have {flat.nbytes} bytes, this network {expected}")
    # torch warns of memory that it may not write to, as frames from the wire are.
    writable = flat if flat.flags.writeable else flat.copy()
    with _hold(modules), torch.no_grad():
        for tensor, view in _views(tensors, manifest, torch.from_numpy(writable)):
            tensor.copy_(view)


def flatten_parameters(module: nn.Module) -> tuple[nn.Parameter, torch.Tensor]:
    """Moves all parameters that learn into one contiguous tensor, of which they become views.

    Gives that tensor as one parameter `[size]`, and its gradient, contiguous too: `backward` on the
    module adds to it in place (zero it, never set the module's gradients to None). Clipping and an
    optimiser then make one call each instead of one per layer, and such calls are a third of the
    update of a small network. Raises ValueError if parameters differ in dtype or device, or if none
    learns.
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
    """Keeps those modules that have a lock from being called meanwhile."""
    with ExitStack() as locks:
        for module in [modules] if isinstance(modules, nn.Module) else modules.values():
            locks.enter_context(getattr(module, "parameter_lock", nullcontext()))
        yield


def _views(
    tensors: Mapping[str, torch.Tensor], manifest: Manifest, flat: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Each tensor with its place in the flat buffer."""
    for tensor, entry in zip(tensors.values(), manifest, strict=True):
        place = flat[entry.offset_bytes : entry.offset_bytes + entry.size_bytes]
        yield tensor, place.view(tensor.dtype).view(tensor.shape)


def _describe(entry: ParameterEntry) -> str:
    return f"{entry.name!r} {entry.dtype} {list(entry.shape)}"
