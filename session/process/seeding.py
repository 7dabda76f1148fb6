"""Derives a seed for every component and every start, and seeds the global generators with it."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

# numpy.random takes smaller seeds only.
_NUMPY_SEEDS = 1 << 32

Built = TypeVar("Built")


def component_seed(seed: int, name: str, starts: int, *, part: int = 1) -> int:
    """Returns the seed of component `name` at its start number `starts`, in [0, 2**31).

    It is the same in every process and on every machine, and valid as a seed of environments. A
    restart of the component, or a new `part` of the run after a resume, changes it: the noise of an
    earlier start must not be repeated.
    """
    digest = hashlib.sha256(name.encode()).digest()
    whole = [seed, int.from_bytes(digest[:8], "little"), starts]
    sequence = np.random.SeedSequence(whole if part == 1 else [*whole, part])
    return int(sequence.generate_state(1)[0]) >> 1


def seed_globals(seed: int) -> None:
    """Seeds the generators that a process has one of: ``random``, ``numpy.random``, and torch's.

    An author's code may use them, and forked processes inherit identical ones. Torch is seeded
    where it is loaded; this does not load it.
    """
    random.seed(seed)
    np.random.seed(seed % _NUMPY_SEEDS)  # noqa: NPY002
    _seed_torch(seed)


def build_seeded(seed: int, build: Callable[[], Built]) -> Built:
    """Seeds the global generators and returns the result of ``build``.

    Torch, whose generator begins with the same numbers in every process, is seeded even if
    ``build`` is the first to load it.
    """
    seed_globals(seed)
    loaded = "torch" in sys.modules
    built = build()
    if not loaded:
        _seed_torch(seed)
    return built


@contextmanager
def seed_all(seed: int) -> Iterator[None]:
    """Seeds the global generators for a while; afterwards they continue where they were."""
    torch = sys.modules.get("torch")
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    tensors = None if torch is None else torch.get_rng_state()
    seed_globals(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        if torch is not None:
            torch.set_rng_state(tensors)


def _seed_torch(seed: int) -> None:
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed % _NUMPY_SEEDS)
