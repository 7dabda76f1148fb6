"""Append-only file of whole blocks that tolerates a full disk."""

from __future__ import annotations

import os
from collections import deque
from itertools import islice
from pathlib import Path

_KEPT_FILES = 3


class AppendFile:
    """Collects blocks (lines, records) and appends them; a failed write leaves no partial block.

    The file is open only during a flush, so hundreds of them need no descriptors. ``problem`` is
    the reason of the last failed flush, ``lost`` the number of blocks dropped for lack of space.

    Args:
        path: created, with its folders, by the first flush.
        rotate_bytes: the file is renamed to ``<name>.1`` (and that to ``.2``, ...) before it
            would exceed this size; 0: never.
        limit_bytes: maximum of buffered data while writes fail; newer blocks are dropped.
        lines: the blocks are lines; the first one begins a new line, also behind a line that an
            earlier process has left incomplete.
    """

    def __init__(
        self,
        path: Path,
        *,
        rotate_bytes: int = 0,
        limit_bytes: int = 4 << 20,
        lines: bool = False,
    ) -> None:
        self.path = path
        self.lost = 0
        self.problem = ""
        self.held_bytes = 0
        self._rotate_bytes = rotate_bytes
        self._limit_bytes = limit_bytes
        self._blocks: deque[bytes] = deque()
        self._complete_line = lines

    @property
    def waiting(self) -> int:
        """Number of blocks that are not yet written."""
        return len(self._blocks)

    def add(self, block: bytes) -> None:
        """Buffers one block; the next flush writes it."""
        full = bool(self._blocks) and self.held_bytes + len(block) > self._limit_bytes
        # A failed write is retried by the next flush, not for every block.
        if full and (self.problem or not self.flush()):
            self.lost += 1
            return
        self._blocks.append(block)
        self.held_bytes += len(block)

    def flush(self) -> bool:
        """Writes all buffered blocks; False if some remain after a disk error."""
        try:
            while self._blocks:
                self._append(self._fitting())
            self.problem = ""
        except OSError as error:
            self.problem = error.strerror or str(error)
        return not self.problem

    def _fitting(self) -> int:
        """Number of blocks that fit into the file, at least 1; rotates the file if none fits."""
        if not self._rotate_bytes:
            return len(self._blocks)
        size = self.path.stat().st_size if self.path.exists() else 0
        if size and size + len(self._blocks[0]) > self._rotate_bytes:
            self._rotate()
            size = 0
        count = 0
        for block in self._blocks:
            size += len(block)
            if count and size > self._rotate_bytes:
                break
            count += 1
        return count

    def _rotate(self) -> None:
        for number in range(_KEPT_FILES - 1, 0, -1):
            old = self.path.with_name(f"{self.path.name}.{number}")
            if old.exists():
                old.replace(self.path.with_name(f"{self.path.name}.{number + 1}"))
        self.path.replace(self.path.with_name(f"{self.path.name}.1"))

    def _append(self, count: int) -> None:
        data = b"".join(islice(self._blocks, count))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b", buffering=0) as file:
            start = file.seek(0, os.SEEK_END)
            if self._complete_line and start:
                file.seek(start - 1)
                data = data if file.read(1) == b"\n" else b"\n" + data
            rest = memoryview(data)
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            except OSError:
                file.truncate(start)
                raise
        self._complete_line = False
        for _ in range(count):
            self.held_bytes -= len(self._blocks.popleft())
