"""Tuning of malloc for processes that free and allocate large blocks all the time."""

from __future__ import annotations

import ctypes

# Numbers of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 2**31 - 1


def keep_freed_memory() -> None:
    """Makes the C library keep freed large blocks; does nothing if mallopt is missing.

    By default glibc returns blocks of some megabytes to the system at once; the next batch then
    gets new pages, which the system has to clear first. The peak memory does not change, but the
    process keeps it: mallopt(3).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST)
        mallopt(_TRIM_THRESHOLD, _LARGEST)
