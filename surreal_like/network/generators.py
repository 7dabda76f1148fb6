"""States of random generators, as plain data and tensors for checkpoints."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

Generator = torch.Generator | np.random.Generator | random.Random


def generators_of(owner: object) -> dict[str, Generator]:
    """Returns the random generators among the attributes of an object, by name."""
    return {name: each for name, each in vars(owner).items() if isinstance(each, Generator)}


def states_of(generators: Mapping[str, Generator]) -> dict[str, Any]:
    """Returns copies of the states of generators, by name."""
    return {name: {"kind": _kind(each), "state": _state(each)} for name, each in generators.items()}


def restore_states(generators: Mapping[str, Generator], states: Mapping[str, Any]) -> None:
    """Restores a result of `states_of`.

    Generators that it has no state of, or only that of another kind or device, remain as they are.
    """
    for name, generator in generators.items():
        found = states.get(name)
        if found is None or found["kind"] != _kind(generator):
            continue
        if isinstance(generator, torch.Generator):
            # A checkpoint is read to the device of the learner; states are on the CPU.
            generator.set_state(found["state"].cpu())
        elif isinstance(generator, random.Random):
            generator.setstate(found["state"])
        else:
            generator.bit_generator.state = found["state"]


def global_states() -> dict[str, Any]:
    """Returns the states of the generators that `numpy.random` and `random` share."""
    shared = np.random.get_state(legacy=False)  # noqa: NPY002 - the one that authors may draw from
    return {"numpy": _plain(shared), "random": random.getstate()}


def restore_global_states(states: Mapping[str, Any]) -> None:
    """Restores a result of `global_states`."""
    np.random.set_state(states["numpy"])  # noqa: NPY002 - as above
    random.setstate(states["random"])


def _kind(generator: Generator) -> str:
    if isinstance(generator, torch.Generator):
        return f"torch {generator.device.type}"
    if isinstance(generator, random.Random):
        return "random"
    return type(generator.bit_generator).__name__


def _state(generator: Generator) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.Random):
        return generator.getstate()
    return _plain(generator.bit_generator.state)


def _plain(value: Any) -> Any:
    """Returns the state of a bit generator without arrays, which checkpoints do not hold."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value
