"""Replaces files atomically: a process that is killed meanwhile leaves the old or the new one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def write_atomically(
    path: Path, content: str | bytes | Iterable[bytes], *, private: bool = False
) -> None:
    """Replaces a file; a reader sees the old or the new content, never a part.

    Args:
        path: the file; its folder must exist.
        content: the whole content, or its parts in order; text is encoded as UTF-8. An error of
            the iterator leaves the old file.
        private: only the owner can read the file.

    Raises:
        OSError: it cannot be written; the old file is whole then.
    """
    whole = content.encode() if isinstance(content, str) else content
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    try:
        # O_EXCL: never writes through a file or link that another user has made.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(beside, flags, 0o600 if private else 0o666), "wb") as file:
            file.writelines([whole] if isinstance(whole, bytes) else whole)
        beside.replace(path)
    except BaseException:
        # On a full disk the partial file would take space that later writes need.
        beside.unlink(missing_ok=True)
        raise
