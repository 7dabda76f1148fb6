"""The learner's checkpoints: what is in them, when they are due, how they are restored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy
import torch

from session.checkpoint import Checkpoints, read_state, save_one
from session.clock import Clock
from session.errors import CheckpointError, SurrealError
from session.folder import RunFolder
from surreal_like.data.parameters import Manifest
from surreal_like.learner.base import Learner

_PARAMETERS = "params.safetensors"
_OPTIMIZER = "optimizer.pt"
# A disk that has refused one checkpoint will not take the next a moment later.
_RETRY_SECONDS = 1.0


class Saver:
    """Saves and restores one learner.

    Args:
        learner: what is saved.
        folder: the run folder.
        config: ``session_config.checkpoint``.
        clock: for the longest time between two checkpoints.
    """

    def __init__(
        self, learner: Learner, folder: RunFolder, config: Mapping[str, Any], clock: Clock
    ) -> None:
        self.record = folder.checkpoints / "learner" / "record.json"
        self._learner = learner
        self._best = folder.checkpoints / "best"
        self._checkpoints = Checkpoints(
            folder.checkpoints / "learner", keep_history=config["keep_history"]
        )
        self._period: int = config["period"]
        self._seconds: float = config["seconds"]
        self._keep_best: int = config["keep_best"]
        self._clock = clock
        self._saved = (learner.iteration, clock.now())
        self._retry_at = -math.inf

    def due(self) -> bool:
        """True once enough iterations or seconds have passed since the last checkpoint.

        After one that failed a second has to pass, too.
        """
        iteration, seconds = self._saved
        updates = self._learner.iteration - iteration
        if updates <= 0 or self._clock.now() < self._retry_at:
            return False
        by_updates = 0 < self._period <= updates
        return by_updates or 0 < self._seconds <= self._clock.now() - seconds

    def save(self, version: int, env_steps: int, run_id: str) -> Path:
        """Writes a checkpoint of the present weights, optimiser and random state.

        Raises:
            CheckpointError: the disk refused.
        """
        learner, now = self._learner, self._clock.now()
        self._saved, self._retry_at = (learner.iteration, now), now + _RETRY_SECONDS
        state = {
            "iteration": learner.iteration,
            "version": version,
            "env_steps": env_steps,
            "run_id": run_id,
            "time": self._clock.time(),
        }
        saved = self._checkpoints.save(learner.iteration, state, self._write)
        self._retry_at = -math.inf
        return saved

    def _write(self, folder: Path) -> None:
        learner = self._learner
        learner.save(folder / _PARAMETERS)
        rest: dict[str, Any] = {
            "saveables": {n: s.state_dict() for n, s in learner.saveables().items()},
            "torch_rng": torch.get_rng_state(),
        }
        if torch.cuda.is_available():
            rest["cuda_rng"] = torch.cuda.get_rng_state_all()
        try:
            torch.save(rest, folder / _OPTIMIZER)
        except RuntimeError as error:  # what a full disk is to torch
            line = str(error).splitlines()[0]
            raise CheckpointError(f"cannot write {folder / _OPTIMIZER}: {line}") from None

    def restore(self) -> tuple[Mapping[str, Any] | None, list[str]]:
        """Restores the newest checkpoint that is whole.

        Returns:
            Its state, None where there is none, and what was wrong with newer ones.
        """
        complaints: list[str] = []
        for path in self._checkpoints.newest_first():
            try:
                state = read_state(path)
                self._read(path)
            except SurrealError as error:
                complaints.append(str(error))
                continue
            self._learner.iteration = int(state["iteration"])
            self._saved = (self._learner.iteration, self._clock.now())
            return state, complaints
        return None, complaints

    def _read(self, folder: Path) -> None:
        learner = self._learner
        learner.load(folder / _PARAMETERS)
        try:
            rest = torch.load(folder / _OPTIMIZER, weights_only=True, map_location=learner.device)
        except Exception as error:  # noqa: BLE001 - torch names no class for a bad file
            raise CheckpointError(f"cannot read {folder / _OPTIMIZER}: {error}") from None
        for name, saveable in learner.saveables().items():
            if name not in rest["saveables"]:
                raise CheckpointError(f"{folder / _OPTIMIZER} has no state of '{name}'")
            try:
                saveable.load_state_dict(rest["saveables"][name])
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                raise CheckpointError(
                    f"{folder / _OPTIMIZER}: state of '{name}' does not fit: {error!r}"
                ) from None
        torch.set_rng_state(rest["torch_rng"].cpu())
        if "cuda_rng" in rest and torch.cuda.is_available():
            torch.cuda.set_rng_state_all([state.cpu() for state in rest["cuda_rng"]])

    def save_best(
        self,
        flat: npt.NDArray[np.uint8],
        manifest: Manifest,
        score: Mapping[str, Any],
    ) -> None:
        """Writes the parameters that an evaluator played best, with their score.

        Args:
            flat: as the evaluator sent them back, uint8 ``[bytes]``.
            manifest: of this learner's parameters.
            score: goes into ``state.json``.

        Raises:
            CheckpointError: the disk refused, or the buffer does not fit the manifest.
        """
        if self._keep_best < 1:
            return
        try:
            tensors = {
                entry.name: np.ascontiguousarray(
                    flat[entry.offset_bytes : entry.offset_bytes + entry.size_bytes]
                )
                .view(entry.dtype)
                .reshape(entry.shape)
                for entry in manifest
            }
        except ValueError as error:
            raise CheckpointError(f"the best parameters do not fit the learner: {error}") from None

        def write(folder: Path) -> None:
            try:
                safetensors.numpy.save_file(tensors, str(folder / _PARAMETERS))
            except safetensors.SafetensorError as error:
                raise CheckpointError(f"cannot write {folder / _PARAMETERS}: {error}") from None

        save_one(self._best, score, write)
