"""One seed of the experiment becomes one of its own for every component and every start."""

from __future__ import annotations

import hashlib

import numpy as np

from session.errors import ConfigError


def component_seed(seed: int, name: str, starts: int) -> int:
    """The seed of component `name` at its start number `starts`, in [0, 2**31).

    It is the same in every process and on every machine, and fits what environments take as a seed.
    A restarted component gets another one: it must not repeat the noise of its former life.
    Raises ConfigError if `seed` is negative.
    """
    if seed < 0:
        raise ConfigError(f"session_config.seed is {seed}, expected 0 or more")
    digest = hashlib.sha256(name.encode()).digest()
    sequence = np.random.SeedSequence([seed, int.from_bytes(digest[:8], "little"), starts])
    return int(sequence.generate_state(1)[0]) >> 1
