"""Saves and loads parameters of modules as safetensors files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError

from session.errors import CheckpointError
from session.json_file import open_file
from surreal_like.network.flat import Modules, check_manifest, manifest_of, named_tensors


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
        CheckpointError: the file cannot be read.
        SpecError: its tensors do not fit these modules.
    """
    tensors, own = read_tensors(file_path), named_tensors(modules)
    # The file has another order.
    ordered = {name: tensors.pop(name) for name in own if name in tensors} | tensors
    for name, tensor in own.items():
        if name in ordered and ordered[name].dtype == torch.float16:
            ordered[name] = ordered[name].to(tensor.dtype)
    check_manifest(manifest_of(own), manifest_of(ordered))
    return ordered


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
