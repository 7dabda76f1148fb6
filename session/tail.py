"""Follows a file of JSON lines, or of text lines, reading only what is new."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_CATCH_UP_BYTES = 1 << 16


class Tail:
    """The new end of a file that others append to.

    Args:
        path: it need not exist yet; if it becomes shorter it is read from its start.
        catch_up_bytes: of what stands there before the first look, so much is read, from a line's
            start; None reads everything.
    """

    def __init__(self, path: Path, catch_up_bytes: int | None = _CATCH_UP_BYTES) -> None:
        self._path = path
        self._catch_up_bytes = catch_up_bytes
        self._place: int | None = None
        self._inode = 0
        self._rest = b""

    def lines(self) -> list[str]:
        """The complete lines that have come since the last call."""
        try:
            with self._path.open("rb") as file:
                return self._read(file)
        except OSError:
            return []

    def objects(self) -> list[dict[str, Any]]:
        """The same lines as JSON objects; what is none is left out."""
        found = []
        for line in self.lines():
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                found.append(value)
        return found

    def _read(self, file: Any) -> list[str]:
        status = self._path.stat()
        if self._place is None:
            self._place = self._first_place(file, status.st_size)
        elif status.st_ino != self._inode or status.st_size < self._place:
            # Rotated, or begun anew.
            self._place, self._rest = 0, b""
        self._inode = status.st_ino
        file.seek(self._place)
        text = self._rest + file.read()
        self._place = file.tell()
        *whole, self._rest = text.split(b"\n")
        return [line.decode("utf-8", "replace") for line in whole]

    def _first_place(self, file: Any, size_bytes: int) -> int:
        if self._catch_up_bytes is None or size_bytes <= self._catch_up_bytes:
            return 0
        file.seek(size_bytes - self._catch_up_bytes)
        file.readline()
        place: int = file.tell()
        return place


def last_object(path: Path) -> dict[str, Any] | None:
    """The last JSON object of a file of them, None if it has none."""
    found = Tail(path).objects()
    return found[-1] if found else None
