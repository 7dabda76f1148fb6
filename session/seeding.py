"""One seed of the experiment becomes one of its own for every component and every start."""

from __future__ import annotations

import hashlib

import numpy as np

from session.errors import ConfigError


def component_seed(seed: int, name: str, starts: int, *, part: int = 1) -> int:
    """The seed of component `name` at its start number `starts`, in [0, 2**31).

    It is the same in every process and on every machine, and fits what environments take as a seed.
    A restarted component gets another one, and so does everybody in the next `part` of a run, which
    begins when it is resumed: nobody must repeat the noise of a former life.
    Raises ConfigError if `seed` is negative.
    """
    if seed < 0:
        raise ConfigError(f"session_config.seed is {seed}, expected 0 or more")
    digest = hashlib.sha256(name.encode()).digest()
    whole = [seed, int.from_bytes(digest[:8], "little"), starts]
    sequence = np.random.SeedSequence(whole if part == 1 else [*whole, part])
    return int(sequence.generate_state(1)[0]) >> 1
