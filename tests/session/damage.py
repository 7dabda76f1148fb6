"""Damage that disks, crashes and people do to files, as data; and seals that fit again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from session.checkpoint import write_sealed

Damage = Callable[[Path], object]


def _flip(path: Path, share: float) -> None:
    content = bytearray(path.read_bytes())
    content[min(int(len(content) * share), len(content) - 1)] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Damage] = {
    "gone": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "a byte": lambda path: _flip(path, 0.6),
    "last byte": lambda path: _flip(path, 1.0),
    "other JSON": lambda path: path.write_text('{"iteration": "three", "files": {}}'),
    "nested": lambda path: path.write_text("[" * 100_000),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


def seal_again(folder: Path, **changes: Any) -> None:
    """Makes the files of a checkpoint as they are now, and changes of its state, valid."""
    state = json.loads((folder / "state.json").read_text())
    del state["blake2b"]
    for name in state["files"]:
        content = (folder / name).read_bytes()
        checksum = hashlib.blake2b(content, digest_size=16).hexdigest()
        state["files"][name] = {"bytes": len(content), "blake2b": checksum}
    write_sealed(folder / "state.json", {**state, **changes})
