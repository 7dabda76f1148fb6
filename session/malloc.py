"""How a process keeps the memory that it frees and needs again a moment later."""

from __future__ import annotations

import ctypes

# Numbers of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 2**31 - 1


def keep_freed_memory() -> None:
    """Has the C library keep large blocks that are freed; where it cannot, nothing changes.

    By default glibc gives blocks of some megabytes back to the system at once, and the next batch,
    which needs the same ones, is handed new pages that the system has to clear first. It costs no
    memory at the peak, but what was needed once stays with the process: mallopt(3).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST)
        mallopt(_TRIM_THRESHOLD, _LARGEST)
