"""Content of a learner's checkpoint: tensors by name, optimizers, random states."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from session.errors import CheckpointError
from surreal_like.learner.base import Learner, Saveable
from surreal_like.learner.target import TargetNetwork
from surreal_like.network.files import read_parameters, save_parameters, set_parameters
from surreal_like.network.flat import named_tensors
from surreal_like.network.generators import (
    global_states,
    restore_global_states,
    restore_states,
    states_of,
)

PARAMETERS = "params.safetensors"
OPTIMIZER = "optimizer.pt"


@dataclass(frozen=True, slots=True)
class Content:
    """State from which a learner can continue.

    Args:
        tensors: published parameters and buffers by name.
        rest: ``saveables`` (name -> state), ``generators`` (name -> state) and ``global`` (numpy,
            random), which checkpoints of older releases lack, ``torch_rng`` and with CUDA
            ``cuda_rng``; without ``torch_rng`` only networks are restored, and optimizers start
            anew.
    """

    tensors: Mapping[str, torch.Tensor]
    rest: Mapping[str, Any]

    @classmethod
    def of(cls, learner: Learner) -> Content:
        """Copies the state of a learner; state dicts share memory with their owners."""
        tensors = named_tensors(learner.module_dict()).items()
        copied = {name: each.detach().clone() for name, each in tensors}
        return cls(copied, copy.deepcopy(_rest(learner)))

    @classmethod
    def read(cls, learner: Learner, folder: Path, *, networks_only: bool = False) -> Content:
        """Reads a checkpoint; checks it as far as possible without changing the learner.

        Raises:
            CheckpointError: a file cannot be read, or lacks the state of a saveable.
            SpecError: the tensors do not fit the learner's modules.
        """
        tensors = read_parameters(learner.module_dict(), folder / PARAMETERS)
        file = folder / OPTIMIZER
        if networks_only and not file.exists():
            return cls(tensors, {"saveables": {}})
        try:
            rest = torch.load(file, weights_only=True, map_location=learner.device)
        except Exception as error:  # noqa: BLE001 - torch names no class for a bad file
            raise CheckpointError(f"cannot read {file}: {error}") from None
        missing = [name for name in learner.checkpointed() if name not in rest["saveables"]]
        if missing:
            raise CheckpointError(f"{file} has no state of '{missing[0]}'")
        if networks_only:
            return cls(tensors, {"saveables": rest["saveables"]})
        return cls(tensors, rest)

    def give(self, learner: Learner, *, random_state: bool = True) -> None:
        """Restores the state into a learner.

        Args:
            learner: it fits the state, as :meth:`read` has checked.
            random_state: also those of torch and of all generators.

        Raises:
            CheckpointError: the state of a saveable does not fit; the learner is partly restored
                then.
        """
        set_parameters(learner.module_dict(), self.tensors)
        whole = "torch_rng" in self.rest
        for name, saveable in learner.checkpointed().items():
            if whole or isinstance(saveable, nn.Module | TargetNetwork):
                self._give_one(name, saveable)
        if whole and random_state:
            torch.set_rng_state(self.rest["torch_rng"].cpu())
            restore_states(learner.checkpointed_generators(), self.rest.get("generators", {}))
            if "global" in self.rest:
                restore_global_states(self.rest["global"])
        if random_state and "cuda_rng" in self.rest and torch.cuda.is_available():
            torch.cuda.set_rng_state_all([state.cpu() for state in self.rest["cuda_rng"]])

    def _give_one(self, name: str, saveable: Saveable) -> None:
        states = self.rest["saveables"]
        if name not in states:
            if isinstance(saveable, TargetNetwork):
                saveable.copy_online()
            return
        try:
            saveable.load_state_dict(states[name])
        except Exception as error:  # noqa: BLE001 - an author's saveable may raise any error
            raise CheckpointError(f"the state of '{name}' does not fit: {error!r}") from None


def write_content(learner: Learner, folder: Path) -> None:
    """Writes the state of a learner, for :meth:`Content.read`.

    Raises:
        CheckpointError: the disk reported an error.
    """
    save_parameters(learner.module_dict(), folder / PARAMETERS)
    try:
        torch.save(_rest(learner), folder / OPTIMIZER)
    except RuntimeError as error:  # torch raises it on a full disk
        line = str(error).splitlines()[0]
        raise CheckpointError(f"cannot write {folder / OPTIMIZER}: {line}") from None


def _rest(learner: Learner) -> dict[str, Any]:
    rest: dict[str, Any] = {
        "saveables": {n: s.state_dict() for n, s in learner.checkpointed().items()},
        "generators": states_of(learner.checkpointed_generators()),
        "global": global_states(),
        "torch_rng": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        rest["cuda_rng"] = torch.cuda.get_rng_state_all()
    return rest
