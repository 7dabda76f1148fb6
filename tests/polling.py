"""Waits in tests: polling with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

# Generous, for the machine may be shared; nothing waits for so long when all is well.
DEADLINE_SECONDS = 90.0

T = TypeVar("T")


def until(
    look: Callable[[], T | None],
    *,
    seconds: float = DEADLINE_SECONDS,
    what: Callable[[], object] = str,
    step: Callable[[], object] = lambda: time.sleep(0.02),
) -> T:
    """Polls until ``look`` returns something that is true, and returns that.

    Args:
        look: what is awaited.
        seconds: until the test fails.
        what: tells then why it did not come.
        step: called between two looks, so that it can come; sleeps by default.
    """
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"nothing came within {seconds:g} s: {what()}"
        step()
    return found
