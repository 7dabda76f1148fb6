"""Files of a trial on two machines: which there are, which blocks are missing, and their change.

A side that has newer files lists them with the checksums of their blocks; the other side asks for
the blocks that it lacks, and then changes its files. Code is never among them, and a worker sends
no config: results and checkpoints come back, the settings of a trial are those of its tuning.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

from session.addons.copies.run_files import (
    BLOCK_BYTES,
    RunFiles,
    StoredFile,
    checksum,
    write_file,
)
from session.atomic_file import write_atomically
from session.checkpoint import STATE
from session.errors import WireError
from session.folder import RunFolder
from session.wire.schema import Count, Fields, ListOf, MapOf, Type
from surreal_like.addons.tuning.exploit_files import DONOR

_FILES_LIMIT = 10_000
# Of all files of a trial together.
SIZE_LIMIT = 1 << 36
_CHECKSUM = re.compile(r"[0-9a-f]{32}")
_NAME_LENGTH = 250
_FOLDERS = ("checkpoints", "tensorboard", "logs")
CONFIG = "config.yaml"
_RESULT = "result.json"
_NAMES = ("progress.jsonl", "events.jsonl", "metrics.csv", _RESULT, CONFIG)
# Files that are read as a whole [bytes].
_READ_BYTES = 1 << 26
# Moved at the end of a part of the trial only.
_LATE = ("tensorboard/", "logs/")
# Only the tuner writes it.
_DONOR = f"checkpoints/{DONOR}/"


def is_run_file(value: Any) -> bool:
    """Returns True for the path of a file that a run writes, in its folder; code is none."""
    if type(value) is not str or len(value) > _NAME_LENGTH:
        return False
    if not (value.isascii() and value.isprintable()):
        return False
    parts = PurePosixPath(value).parts
    if "/".join(parts) != value or any(part.startswith(".") for part in parts):
        return False
    return value in _NAMES or (len(parts) > 1 and parts[0] in _FOLDERS)


def _is_checksum(value: Any) -> bool:
    return type(value) is str and _CHECKSUM.fullmatch(value) is not None


CHECKSUM = Type("a checksum of 32 hexadecimal digits", _is_checksum)
BLOCKS = ListOf(CHECKSUM, SIZE_LIMIT // BLOCK_BYTES)
_FILE = Fields({"bytes": Count(0, SIZE_LIMIT), "blake2b": CHECKSUM, "blocks": BLOCKS})
FILES = MapOf(Type("a file of a run", is_run_file), _FILE, _FILES_LIMIT)
Files = Mapping[str, StoredFile]
# Returns True for the files that move.
Moves = Callable[[str], bool]


def is_result(name: str) -> bool:
    """Returns True for the files of a worker at the end of a part of a trial."""
    return is_run_file(name) and name != CONFIG and not name.startswith(_DONOR)


def is_news(name: str) -> bool:
    """Returns True for the files of a worker before that: no logs, no event files."""
    return is_result(name) and not name.startswith(_LATE)


def is_exploit(name: str) -> bool:
    """Returns True for the files of an exploit."""
    return name == CONFIG or (is_run_file(name) and name.startswith(_DONOR))


def dump_files(files: Files) -> dict[str, Any]:
    """Returns files as a field of a message, see :data:`FILES`."""
    return {name: asdict(each) | {"blocks": list(each.blocks)} for name, each in files.items()}


def load_files(field: Mapping[str, Any]) -> Files:
    """Reads files from a field of a message.

    Raises:
        WireError: they are larger than all files of a trial may be, or one that is read as a whole.
    """
    files = {name: StoredFile.load(each) for name, each in field.items()}
    if sum(len(each.blocks) for each in files.values()) * BLOCK_BYTES > SIZE_LIMIT:
        raise WireError(f"the files of a trial have more than {SIZE_LIMIT} bytes")
    for name, each in files.items():
        read = name == _RESULT or name.endswith(f"/{STATE}")
        if read and max(each.bytes, (len(each.blocks) - 1) * BLOCK_BYTES) > _READ_BYTES:
            raise WireError(f"{name} has more than {_READ_BYTES} bytes")
    return files


class TrialFiles(RunFiles):
    """The files of one trial on this machine, which become those of another machine.

    Args:
        run: folder of the trial; it need not exist.
        incoming: folder for blocks of files that are not complete yet.
    """

    def __init__(self, run: RunFolder, incoming: Path) -> None:
        super().__init__(run, logs=True)
        self._incoming = incoming
        # Blocks that the other side was asked for.
        self._wanted: set[str] = set()

    def missing(self, files: Files, moves: Moves) -> list[str]:
        """Returns the blocks of the files that move that are not on this machine.

        Blocks of files that were listed before, and are not any more, are removed: otherwise lists
        that are given up would fill the disk.
        """
        own = {block for stored in self.find(is_run_file).values() for block in stored.blocks}
        listed = (each.blocks for name, each in files.items() if moves(name))
        wanted = dict.fromkeys(block for blocks in listed for block in blocks)
        self._wanted = {*wanted} - own
        kept = {path.name for path in self._incoming.glob("*")}
        for block in kept - self._wanted:
            (self._incoming / block).unlink(missing_ok=True)
        return [block for block in wanted if block in self._wanted - kept]

    def forget(self) -> None:
        """Removes the blocks of files that are not complete."""
        self._wanted = set()
        shutil.rmtree(self._incoming, ignore_errors=True)

    def put(self, block: str, data: bytes) -> None:
        """Keeps a block until :meth:`change`.

        Raises:
            WireError: it was not missing, or is damaged.
        """
        if block not in self._wanted or len(data) > BLOCK_BYTES or checksum(data) != block:
            raise WireError(f"block {block} is damaged, or was not asked for")
        self._keep(block, data)

    def _keep(self, block: str, data: bytes) -> None:
        self._incoming.mkdir(parents=True, exist_ok=True)
        write_atomically(self._incoming / block, data)

    def change(self, files: Files, moves: Moves) -> None:
        """Makes the files that move equal to the given ones, of which no block is missing.

        Raises:
            WireError, CheckpointError: a block is missing, or a file has not its checksum; the
                files before it are written.
        """
        there = self.find(moves)
        new = {
            name: each for name, each in files.items() if moves(name) and there.get(name) != each
        }
        for name, stored in new.items():
            own = there[name].blocks if name in there else ()
            for block in set(stored.blocks).difference(own):
                if not (self._incoming / block).is_file():
                    # It is part of another file here, which may be replaced first.
                    self._keep(block, self._find(block, name))
        for name, stored in new.items():
            blocks = (self._find(block, name) for block in stored.blocks)
            write_file(self._run.path / name, stored, blocks, name)
        for name in there.keys() - files.keys():
            (self._run.path / name).unlink(missing_ok=True)
            with suppress(OSError):
                (self._run.path / name).parent.rmdir()
        self.forget()

    def _find(self, block: str, name: str) -> bytes:
        with suppress(OSError):
            return (self._incoming / block).read_bytes()
        if (data := self.read(block)) is None:
            raise WireError(f"block {block} of {name} is missing")
        return data
