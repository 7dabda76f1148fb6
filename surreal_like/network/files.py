"""Parameters of modules in a file, in the format of safetensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError

from session.errors import CheckpointError
from surreal_like.network.flat import Modules, check_manifest, manifest_of, named_tensors


def save_parameters(modules: Modules, file_path: str | Path) -> None:
    """Writes parameters and buffers under their names, such as ``q/torso.0.weight``.

    Raises:
        CheckpointError: the disk refused.
    """
    # Copies, because the format refuses tensors that share memory, as tied weights do.
    tensors = {
        name: tensor.detach().cpu().contiguous().clone()
        for name, tensor in named_tensors(modules).items()
    }
    try:
        # Not save_file: what that writes only its owner may read, whatever the umask says.
        Path(file_path).write_bytes(safetensors.torch.save(tensors))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot write parameters to {file_path}: {error}") from None


def load_parameters(modules: Modules, file_path: str | Path) -> None:
    """Reads what :func:`save_parameters` wrote into modules of the same shapes.

    Raises:
        CheckpointError: the file cannot be read.
        SpecError: its tensors do not fit these modules; nothing has been changed then.
    """
    set_parameters(modules, read_parameters(modules, file_path))


def read_parameters(modules: Modules, file_path: str | Path) -> dict[str, torch.Tensor]:
    """The tensors of a file by name, checked against modules that stay as they are.

    Raises:
        CheckpointError: the file cannot be read.
        SpecError: its tensors do not fit these modules.
    """
    try:
        # safetensors says of a file that it may not read that there is none.
        with Path(file_path).open("rb"):
            tensors = safetensors.torch.load_file(str(file_path))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read parameters from {file_path}: {error}") from None
    own = named_tensors(modules)
    # The file has an order of its own.
    ordered = {name: tensors.pop(name) for name in own if name in tensors} | tensors
    check_manifest(manifest_of(own), manifest_of(ordered))
    return ordered


def set_parameters(modules: Modules, tensors: Mapping[str, torch.Tensor]) -> None:
    """Copies tensors of the same names and shapes into modules, in place."""
    with torch.no_grad():
        for name, tensor in named_tensors(modules).items():
            tensor.copy_(tensors[name])
