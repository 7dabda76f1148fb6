"""Checkpoints of the learner: content, schedule, restoring, and the best parameters."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy
import torch
from torch import nn

from session.checkpoint import earlier_ones, move_up, read_state, save_one, set_aside
from session.errors import CheckpointError, SurrealError
from session.folder import RunFolder
from session.newest_checkpoint import Checkpoints, Note
from session.process.clock import Clock
from surreal_like.data.parameters import Manifest
from surreal_like.data.policy_names import DEFAULT_POLICY, PolicyId
from surreal_like.errors import SpecError
from surreal_like.learner.learner import Learner
from surreal_like.learner.target import TargetNetwork
from surreal_like.learner.updates import Saveable
from surreal_like.network.files import (
    read_parameters,
    read_tensors,
    save_parameters,
    set_parameters,
)
from surreal_like.network.flat import named_tensors, read_flat
from surreal_like.network.generators import (
    global_states,
    restore_global_states,
    restore_states,
    states_of,
)
from surreal_like.network.parts import check_parts, choose_parts, list_parts

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
        rest = _read_rest(learner, file)
        missing = [name for name in learner.checkpointed() if name not in rest["saveables"]]
        if missing:
            raise CheckpointError(f"{file} has no state of '{missing[0]}'")
        if networks_only:
            return cls(tensors, {"saveables": rest["saveables"]})
        return cls(tensors, rest)

    @classmethod
    def read_parts(cls, learner: Learner, folder: Path, parts: Sequence[str]) -> Content:
        """Returns the networks of a learner, with some parts of a checkpoint, also of another kind.

        Raises:
            CheckpointError: a file cannot be read.
            ConfigError: the learner has no such part.
            SpecError: the checkpoint has no such part, or one of other shapes.
        """
        saved = learner.checkpointed()
        others = {name: each for name, each in saved.items() if isinstance(each, nn.Module)}
        networks = {**learner.module_dict(), **others}
        check_parts(parts, list_parts(networks.values()), "--parts")
        given, file = read_tensors(folder / PARAMETERS), folder / OPTIMIZER
        states = _read_rest(learner, file)["saveables"] if file.exists() else {}
        for name, state in states.items():
            given |= {f"{name}/{k}": x for k, x in state.items() if isinstance(x, torch.Tensor)}
        try:
            chosen = choose_parts(named_tensors(networks), given, parts)
        except SpecError as error:
            raise SpecError(f"--parts {','.join(parts)}: {error}") from None
        found = {
            name: {key: chosen[f"{name}/{key}"] for key in each.state_dict()}
            for name, each in others.items()
        }
        own = {name: chosen[name] for name in named_tensors(learner.module_dict())}
        return cls(own, {"saveables": found})

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
        # Targets last: one without a state is a copy of its network.
        saved = learner.checkpointed().items()
        for name, saveable in sorted(saved, key=lambda item: isinstance(item[1], TargetNetwork)):
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


def _read_rest(learner: Learner, file: Path) -> dict[str, Any]:
    try:
        rest = torch.load(file, weights_only=True, map_location=learner.device)
    except Exception as error:  # noqa: BLE001 - torch names no class for a bad file
        raise CheckpointError(f"cannot read {file}: {error}") from None
    return dict(rest)


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


def read_content(learner: Learner, path: Path) -> None:
    """Restores a checkpoint into a learner; of its folder nothing is changed.

    Raises:
        CheckpointError: it is damaged, or does not fit.
    """
    state = read_state(path)
    _check_numbers(path, state)
    Content.read(learner, path).give(learner)
    learner.iteration = state["iteration"]


# After a disk error the next attempt waits.
_RETRY_SECONDS = 1.0
# The first checkpoint comes earlier, so that an early crash loses little.
_FIRST_SECONDS = 10.0
# Longest share of time spent on saving; a slow save prolongs the interval.
_SHARE = 0.01
_NUMBERS = ("iteration", "version", "env_steps")


class Saver:
    """Saves and restores one learner.

    Args:
        learner: learner to save.
        folder: the run folder.
        config: ``session_config.checkpoint``.
        clock: clock for the time between two checkpoints, and the duration of saving.
        note: called with a line for each checkpoint that is set aside.
        run: section ``run`` of the config.
        policy: name of the policy.

    Attributes:
        best_return: best return of the best stored parameters, None if there are none.
    """

    def __init__(
        self,
        learner: Learner,
        folder: RunFolder,
        config: Mapping[str, Any],
        clock: Clock,
        note: Note = lambda text: None,
        run: Mapping[str, Any] = MappingProxyType({}),
        *,
        policy: str = DEFAULT_POLICY,
    ) -> None:
        self.best_return: float | None = None
        self._folder, self._run = folder, run
        # True until the first checkpoint of a generation is saved.
        self._begins = False
        self._learner = learner
        own = PolicyId(policy)
        self._best = folder.checkpoints / own.best
        self._checkpoints = Checkpoints(
            folder.checkpoints / own.checkpoints, keep_history=config["keep_history"], note=note
        )
        self._note = note
        self._period: int = config["period"]
        self._seconds: float = config["seconds"]
        self._keep_best: int = config["keep_best"]
        self._clock = clock
        self._saved = (learner.iteration, clock.now())
        self._wait_seconds = min(_FIRST_SECONDS, self._seconds)
        self._retry_at = -math.inf

    def due(self) -> bool:
        """True once enough iterations or seconds have passed since the last checkpoint.

        After a failed one, at least 1 s must have passed, too.
        """
        iteration, seconds = self._saved
        updates, now = self._learner.iteration - iteration, self._clock.now()
        if updates <= 0 or now < self._retry_at:
            return False
        by_updates = 0 < self._period <= updates
        return by_updates or (self._seconds > 0 and now - seconds >= self._wait_seconds)

    def save(
        self,
        version: int,
        env_steps: int,
        run_id: str,
        record: Mapping[str, Any] | None = None,
        *,
        ends: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ) -> Path:
        """Writes a checkpoint of the current weights, optimizer and random state.

        Args:
            version: version of the newest published parameters.
            env_steps: environment steps of the whole run.
            run_id: run id of the run.
            record: statistics of the run, in case their own file is damaged.
            ends: ends of the replay shards, for a roll-back of their rows.

        Raises:
            CheckpointError: the disk reported an error.
        """
        learner, now = self._learner, self._clock.now()
        self._saved, self._retry_at = (learner.iteration, now), now + _RETRY_SECONDS
        state = {
            "iteration": learner.iteration,
            "version": version,
            "env_steps": env_steps,
            "hash": self.digest(),
            "run_id": run_id,
            "time": self._clock.time(),
            "record": record,
            "ends": {name: list(end) for name, end in ends.items()},
            "generation": self._run.get("generation", 0),
        }
        saved = self._checkpoints.save(
            learner.iteration, state, lambda folder: write_content(learner, folder)
        )
        self._wait_seconds = max(self._seconds, (self._clock.now() - now) / _SHARE)
        self._retry_at = -math.inf
        if self._begins:
            self._checkpoints.keep_only(saved)
            self._begins = False
        return saved

    def digest(self) -> str:
        """Returns the SHA-256 of the present weights, as they are published."""
        flat = read_flat(self._learner.module_dict())
        return hashlib.sha256(flat.data).hexdigest()

    def load(self, learner: Learner, run: Mapping[str, Any]) -> Mapping[str, Any]:
        """Restores the checkpoint of the donor into another learner, which is saved from now on.

        Args:
            learner: learner with the new settings.
            run: section ``run`` of the new config.

        Raises:
            CheckpointError: the copy of the donor's checkpoint is damaged, or does not fit.
        """
        self._learner, self._run = learner, run
        return self._restore_donor()

    def _restore_donor(self) -> Mapping[str, Any]:
        path, learner = self._folder.path / self._run["load_from"], self._learner
        state = read_state(path)
        _check_numbers(path, state)
        Content.read(learner, path).give(learner, random_state=False)
        learner.iteration = state["iteration"]
        self._saved = (learner.iteration, self._clock.now())
        self._begins = True
        return {**state, "donor": path}

    def _is_older(self) -> bool:
        """Returns True if the newest checkpoint is of an older generation than the config.

        Newest is the largest pair of generation and iteration: what lies above it is set aside.
        """
        generation, above = self._run.get("generation", 0), list[Path]()
        for path in self._checkpoints.newest_first() if generation else ():
            try:
                found = read_state(path).get("generation", 0)
            except CheckpointError:
                continue
            if found == generation:
                for each in above:
                    self._note(f"{each} is of an older generation; {set_aside(each)}")
                return False
            above.append(path)
        return bool(generation)

    def restore(self) -> Mapping[str, Any] | None:
        """Restores the newest complete checkpoint that fits; sets aside the others before it.

        If that is of an older generation than the config, restores the donor's instead.

        Returns:
            Its state, with ``donor`` if it is the donor's; None if there is none: then the learner
            is unchanged.

        Raises:
            CheckpointError: the copy of the donor's checkpoint is damaged.
        """
        if self._is_older():
            donor = self._restore_donor()
            self._restore_best()
            return donor
        learner = self._learner
        initial: Content | None = None

        def read(path: Path, state: Mapping[str, Any]) -> None:
            nonlocal initial
            _check_numbers(path, state)
            if parts := state.get("parts"):
                content = Content.read_parts(learner, path, parts)
            else:
                content = Content.read(learner, path, networks_only="start_from" in state)
            initial = initial or Content.of(learner)
            try:
                content.give(learner)
            except Exception:
                initial.give(learner)
                raise

        state = self._checkpoints.restore(read)
        if state is not None:
            learner.iteration = state["iteration"]
            self._saved = (learner.iteration, self._clock.now())
            if "start_from" not in state:
                self._wait_seconds = self._seconds
        self._restore_best()
        return state

    def _restore_best(self) -> None:
        """Finds the best stored parameters; sets aside those of another network."""
        for path in earlier_ones(self._best):
            try:
                state = read_state(path)
                read_parameters(self._learner.module_dict(), path / PARAMETERS)
                score = float(state["mean_return"])
            except (SurrealError, KeyError, TypeError, ValueError) as error:
                text = " ".join(str(error).split())
                self._note(f"{path}: {text}; {set_aside(path)}")
                continue
            if self.best_return is None:
                self.best_return = score
        move_up(self._best)

    def save_best(
        self,
        flat: npt.NDArray[np.uint8],
        manifest: Manifest,
        score: Mapping[str, Any],
    ) -> None:
        """Writes the parameters with the best evaluation, and their score.

        Args:
            flat: parameters returned by the evaluator, uint8 ``[bytes]``.
            manifest: manifest of this learner's parameters.
            score: content of ``state.json``.

        Raises:
            CheckpointError: the disk reported an error, or the buffer does not fit the manifest.
        """
        if self._keep_best > 0:
            tensors = _tensors(flat, manifest)

            def write(folder: Path) -> None:
                try:
                    safetensors.numpy.save_file(tensors, str(folder / PARAMETERS))
                except safetensors.SafetensorError as error:
                    raise CheckpointError(f"cannot write {folder / PARAMETERS}: {error}") from None

            save_one(self._best, score, write, keep=self._keep_best)
        self.best_return = float(score["mean_return"])


def _check_numbers(path: Path, state: Mapping[str, Any]) -> None:
    for name in _NUMBERS:
        if type(state.get(name)) is not int:
            raise CheckpointError(
                f"checkpoint {path} has {name} {state.get(name)!r}, expected a whole number"
            )


def _tensors(flat: npt.NDArray[np.uint8], manifest: Manifest) -> dict[str, npt.NDArray[Any]]:
    """Returns views on the tensors of a flat buffer."""
    try:
        return {
            entry.name: np.ascontiguousarray(
                flat[entry.offset_bytes : entry.offset_bytes + entry.size_bytes]
            )
            .view(entry.dtype)
            .reshape(entry.shape)
            for entry in manifest
        }
    except ValueError as error:
        raise CheckpointError(f"the best parameters do not fit the learner: {error}") from None
