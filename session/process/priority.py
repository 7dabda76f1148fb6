"""Priority of a process for the processor."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

# A process of this niceness gets a third of the time of one of niceness 0.
_NICE = 5


def give_way() -> None:
    """Lets processes of normal priority go first where processors are short.

    For components of which there are many: otherwise they would take the processor from the few
    that all of them wait for.
    """
    os.nice(_NICE)
    # Linux shares the processor between sessions first, and each component is a session. Some
    # systems have no such groups, or refuse changes that follow each other too fast: sched(7).
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_NICE))
