"""Base classes of networks: parameters are sent as one block, observations are normalized."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from surreal_like.data.parameters import Manifest, parameter_hash
from surreal_like.network.files import load_parameters, save_parameters
from surreal_like.network.flat import (
    check_manifest,
    load_flat,
    manifest_of,
    named_tensors,
    read_flat,
)
from surreal_like.network.masks import make_mask
from surreal_like.transform.normalizer import Normalizer


class Module(nn.Module):
    """A `torch.nn.Module` whose parameters and buffers can be read and loaded as one block.

    Calls and loading exclude each other by a lock, so a thread that acts never uses a partly loaded
    version.
    """

    def __init__(self) -> None:
        super().__init__()
        self.parameter_lock = threading.RLock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs `forward`; loading of parameters waits meanwhile."""
        with self.parameter_lock:
            return super().__call__(*args, **kwargs)

    @property
    def manifest(self) -> Manifest:
        """Names, dtypes and shapes of parameters and buffers, in the order of the flat buffer."""
        return manifest_of(named_tensors(self))

    def read_flat(self) -> npt.NDArray[np.uint8]:
        """Copies parameters and buffers into one new buffer of bytes."""
        return read_flat(self)

    def load_flat(self, flat: npt.NDArray[np.uint8]) -> None:
        """Copies a buffer made by `read_flat` into parameters and buffers.

        Raises SpecError if its size differs.
        """
        load_flat(self, flat)

    def hash(self) -> str:
        """Returns the hash of parameters and buffers that `fetch_parameter_info` also returns."""
        return parameter_hash(self.read_flat())

    def freeze(self) -> Self:
        """Switches off gradients and training mode. Returns itself."""
        self.requires_grad_(False)
        return self.eval()

    def unfreeze(self) -> Self:
        """Undoes `freeze`: gradients and training mode. Returns itself."""
        self.requires_grad_(True)
        return self.train()

    @property
    def is_cuda(self) -> bool:
        """True if its parameters are on a CUDA device; False without parameters."""
        return any(parameter.is_cuda for parameter in self.parameters())

    def clip_grad_norm(self, max_norm: float) -> float:
        """Scales all gradients together to at most this norm; returns the norm before."""
        return float(nn.utils.clip_grad_norm_(self.parameters(), max_norm))

    def clip_grad_value(self, limit: float) -> None:
        """Limits each entry of the gradients to [-limit, limit]."""
        nn.utils.clip_grad_value_(self.parameters(), limit)

    def copy_from(self, other: Module) -> Self:
        """Copies parameters and buffers of a module of the same shape. Returns itself.

        Raises SpecError if they do not fit.
        """
        check_manifest(self.manifest, other.manifest)
        with other.parameter_lock:
            flat = other.read_flat()
        with self.parameter_lock:
            self.load_flat(flat)
        return self

    def copy_to(self, other: Module) -> None:
        """Copies its parameters and buffers into a module of the same shape; see `copy_from`."""
        other.copy_from(self)

    def clone(self) -> Self:
        """Returns a copy that shares no memory with this module."""
        with self.parameter_lock:
            return copy.deepcopy(self)

    def save(self, file_path: str | Path) -> None:
        """Writes parameters and buffers to a safetensors file."""
        with self.parameter_lock:
            save_parameters(self, file_path)

    def load(self, file_path: str | Path) -> None:
        """Reads a file of `save`.

        Raises CheckpointError if the file cannot be read, SpecError if its tensors do not fit.
        """
        with self.parameter_lock:
            load_parameters(self, file_path)

    def __getstate__(self) -> dict[str, Any]:
        # A lock can be neither copied nor pickled.
        return {key: value for key, value in self.__dict__.items() if key != "parameter_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.parameter_lock = threading.RLock()


class ObsModule(Module):
    """A `Module` that normalises observations if its model has `normalize_obs`.

    A mask of actions never reaches its layers.

    Args:
        obs_spec: observations spec from the environment config.
        model: model from `learner_config`; without the key nothing is normalised.

    Attributes:
        normalizer: normalizer of observations, updated only by the learner; None without one.
        mask: reads the masks of actions; None if observations have none.
    """

    def __init__(self, obs_spec: Mapping[str, Any], model: Mapping[str, Any]) -> None:
        super().__init__()
        self.normalizer = Normalizer(obs_spec) if model.get("normalize_obs", False) else None
        self.mask = make_mask(obs_spec)

    def seen(self, obs: Any) -> Any:
        """Returns the nest of observations `[..., *shape]` as input of the layers."""
        if self.mask is not None:
            obs = self.mask.features(obs)
        return obs if self.normalizer is None else self.normalizer(obs)

    def learn_moments(self, obs: Any) -> None:
        """Updates the normaliser with rows `[M, ...]`, unless there is none, or it is frozen."""
        if self.normalizer is not None and self.normalizer.training:
            self.normalizer.update(obs)

    def merge_moments(self, moments: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Updates it with rows whose `Normalizer.moments` were computed elsewhere."""
        if self.normalizer is not None and self.normalizer.training:
            self.normalizer.merge(moments)
