"""Draws from the generators that a process has one of, as an author's code may do."""

from __future__ import annotations

import random

# Loaded before a fork server forks, as gymnasium and torch do.
import numpy.random


def draw() -> list[float]:
    """Draw from `random` and `numpy.random`."""
    return [random.random(), float(numpy.random.random())]  # noqa: NPY002
