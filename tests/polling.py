"""Waits in tests: polling with a deadline."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

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


def readable(places: Sequence[Any], seconds: float = DEADLINE_SECONDS) -> list[Any]:
    """Waits until something can be read, and returns those of which it can.

    Unlike ``select.select`` it takes descriptors above 1023, too, which a long session has.

    Args:
        places: descriptors, or files and sockets that have one.
        seconds: after which none is returned.
    """
    poller = select.poll()
    found = {each if isinstance(each, int) else each.fileno(): each for each in places}
    for descriptor in found:
        poller.register(descriptor, select.POLLIN)
    return [found[descriptor] for descriptor, _ in poller.poll(1000 * seconds)]
