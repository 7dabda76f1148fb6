"""Derives a seed for every component and every start from the experiment's seed."""

from __future__ import annotations

import hashlib

import numpy as np

from session.errors import ConfigError


def component_seed(seed: int, name: str, starts: int, *, part: int = 1) -> int:
    """Returns the seed of component `name` at its start number `starts`, in [0, 2**31).

    It is the same in every process and on every machine, and valid as a seed of environments. A
    restart of the component, or a new `part` of the run after a resume, changes it: the noise of an
    earlier start must not be repeated. Raises ConfigError if `seed` is negative.
    """
    if seed < 0:
        raise ConfigError(f"session_config.seed is {seed}, expected 0 or more")
    digest = hashlib.sha256(name.encode()).digest()
    whole = [seed, int.from_bytes(digest[:8], "little"), starts]
    sequence = np.random.SeedSequence(whole if part == 1 else [*whole, part])
    return int(sequence.generate_state(1)[0]) >> 1
