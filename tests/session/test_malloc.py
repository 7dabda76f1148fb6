"""Memory that a learner's update has freed is there for the next one, without new pages."""

import platform
import subprocess
import sys

import pytest

_UPDATES = """
import resource, sys
import torch
from session.malloc import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()
torch.set_num_threads(1)
for update in range(12):
    if update == 6:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(16 * 2**20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def new_pages(how: str) -> int:
    command = [sys.executable, "-c", _UPDATES, how]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_later_updates_need_no_new_pages() -> None:
    # One of the six may find its place taken by something small.
    assert new_pages("keep") < new_pages("leave") / 3
