"""Follows a file of JSON lines, or of text lines, reading only what is new."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from session.json_file import OBJECT, Shape, open_file, parse_object

_CATCH_UP_BYTES = 1 << 16


class Tail:
    """Reads the new end of a file to which other processes append.

    Args:
        path: need not exist yet; if it becomes shorter it is read from its start.
        catch_up_bytes: maximum size read of the content before the first call, from the start of
            a line; None: everything.
        shape: shape of each line that :meth:`objects` returns.
    """

    def __init__(
        self,
        path: Path,
        catch_up_bytes: int | None = _CATCH_UP_BYTES,
        shape: Shape = OBJECT,
    ) -> None:
        self._path = path
        self._shape = shape
        self._catch_up_bytes = catch_up_bytes
        self._place: int | None = None
        self._inode = 0
        self._rest = b""

    def lines(self) -> list[str]:
        """Returns the complete lines added since the last call."""
        return [line.decode("utf-8", "replace") for line in self._new_lines()]

    def _new_lines(self) -> list[bytes]:
        try:
            with open_file(self._path) as file:
                return self._read(file)
        except OSError:
            return []

    def objects(self) -> list[dict[str, Any]]:
        """Returns the new lines that are objects of the shape; leaves all others out."""
        found = []
        for line in self._new_lines():
            try:
                found.append(parse_object(line, self._shape))
            except ValueError:
                continue
        return found

    def _read(self, file: Any) -> list[bytes]:
        status = self._path.stat()
        if self._place is None:
            self._place = self._first_place(file, status.st_size)
        elif status.st_ino != self._inode or status.st_size < self._place:
            # The file was rotated or overwritten.
            self._place, self._rest = 0, b""
        self._inode = status.st_ino
        file.seek(self._place)
        text = self._rest + file.read()
        self._place = file.tell()
        whole: list[bytes]
        *whole, self._rest = text.split(b"\n")
        return whole

    def _first_place(self, file: Any, size_bytes: int) -> int:
        if self._catch_up_bytes is None or size_bytes <= self._catch_up_bytes:
            return 0
        file.seek(size_bytes - self._catch_up_bytes)
        file.readline()
        place: int = file.tell()
        return place
