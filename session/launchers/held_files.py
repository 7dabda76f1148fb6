"""Files in memory that a launcher holds for components, so that these can be killed."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from session.process.component import Topology

# Kinds of components that use such a file.
_KINDS = ("replay",)
_NAME = "surreal-like-rows"


class HeldMemory:
    """One anonymous file for each component that uses one; all vanish with this process.

    Their pages belong to the kernel, and are there as long as a process has the file open.
    """

    def __init__(self) -> None:
        self._files: list[int] = []

    def give(self, topology: Topology) -> Topology:
        """Returns the topology with a file for each component that uses one."""
        if sys.platform != "linux":
            return topology
        return Topology(
            (
                replace(each, memory=self._open()) if each.kind in _KINDS else each
                for each in topology
            ),
            topology.outside,
        )

    def _open(self) -> str:
        self._files.append(os.memfd_create(_NAME, os.MFD_CLOEXEC))
        return f"/proc/{os.getpid()}/fd/{self._files[-1]}"

    def close(self) -> None:
        """Gives the memory back, as soon as no component uses it any more."""
        for file in self._files:
            os.close(file)
        self._files.clear()
