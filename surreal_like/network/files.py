"""Saves and loads parameters of modules as safetensors files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError

from session.errors import CheckpointError
from session.json_file import open_file
from surreal_like.network.flat import (
    Modules,
    check_manifest,
    manifest_of,
    named_tensors,
    named_weights,
)


def save_parameters(modules: Modules, file_path: str | Path) -> None:
    """Writes parameters and buffers under their names, such as ``q/torso.0.weight``.

    Raises:
        CheckpointError: the disk reported an error.
    """
    # Copies, because the format refuses tensors that share memory, as tied weights do.
    tensors = {
        name: tensor.detach().cpu().contiguous().clone()
        for name, tensor in named_tensors(modules).items()
    }
    try:
        # Not save_file: it creates files that only their owner may read, regardless of the umask.
        Path(file_path).write_bytes(safetensors.torch.save(tensors))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot write parameters to {file_path}: {error}") from None


def load_parameters(modules: Modules, file_path: str | Path) -> None:
    """Reads a file of :func:`save_parameters` into modules of the same shapes.

    Raises:
        CheckpointError: the file cannot be read.
        SpecError: its tensors do not fit these modules; nothing is changed then.
    """
    set_parameters(modules, read_parameters(modules, file_path))


def read_parameters(modules: Modules, file_path: str | Path) -> dict[str, torch.Tensor]:
    """Returns the tensors of a file by name, checked against modules, which are not changed.

    Halves become numbers of the type that the modules have.

    Raises:
        CheckpointError: the file cannot be read, or has weights that are not finite.
        SpecError: its tensors do not fit these modules.
    """
    tensors, own = read_tensors(file_path), named_tensors(modules)
    # The file has another order.
    ordered = {name: tensors.pop(name) for name in own if name in tensors} | tensors
    ordered |= {name: whole(ordered[name], own[name]) for name in own if name in ordered}
    check_manifest(manifest_of(own), manifest_of(ordered))
    # Buffers may hold infinity, as masks do. Parameters of agents have no gradient.
    for name in named_weights(modules):
        if name in ordered and not ordered[name].isfinite().all():
            raise CheckpointError(
                f"{file_path}: {name} has values that are not finite: take another checkpoint"
            )
    return ordered


def whole(tensor: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """Returns halves as numbers of the type of another tensor; others as they are."""
    return tensor.to(own.dtype) if tensor.dtype == torch.float16 else tensor


def read_tensors(file_path: str | Path) -> dict[str, torch.Tensor]:
    """Returns the tensors of a file by name.

    Raises:
        CheckpointError: the file cannot be read.
    """
    try:
        # Opened first, because safetensors reports an unreadable file as missing.
        with open_file(file_path):
            return dict(safetensors.torch.load_file(str(file_path)))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read parameters from {file_path}: {error}") from None


def set_parameters(modules: Modules, tensors: Mapping[str, torch.Tensor]) -> None:
    """Copies tensors of the same names and shapes into modules, in place."""
    with torch.no_grad():
        for name, tensor in named_tensors(modules).items():
            tensor.copy_(tensors[name])
