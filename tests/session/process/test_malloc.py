"""Large blocks that a process has freed are there for the next one, without new pages."""

import platform
import subprocess
import sys

import pytest

_BLOCK = 64 * 2**20

# The C library is called directly: torch and numpy make small allocations of their own between
# the large ones, and one of these may take the place of a block that was freed.
_BLOCKS = f"""
import ctypes, resource, sys
from session.process.entry import keep_freed_memory

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def one_block():
    block = libc.malloc({_BLOCK})
    ctypes.memset(block, 1, {_BLOCK})
    libc.free(block)

if sys.argv[1] == "keep":
    keep_freed_memory()
one_block()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(6):
    one_block()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def new_pages(how: str) -> int:
    command = [sys.executable, "-c", _BLOCKS, how]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_later_blocks_need_no_new_pages() -> None:
    assert new_pages("keep") < new_pages("leave") / 3
