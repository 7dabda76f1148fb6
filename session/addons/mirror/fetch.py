"""Fetches runs from their mirrors, and checks every byte."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from session.addons.copies.run_files import StoredFile, checksum, write_file
from session.addons.mirror.storage import Manifest, Storage, refuse_missing
from session.errors import CheckpointError, UsageError
from session.folder import RunFolder

# A generation may be replaced while it is read.
_TRIES = 5
# What a table of runs shows.
_FACTS = ("config.yaml", "result.json")


class _MissingBlockError(Exception):
    """A block is not there any more."""


def fetch_run(url: str, path: Path | None = None) -> Path:
    """Copies the newest generation of a run from its mirror; returns the folder.

    Args:
        url: URL of the run.
        path: folder of the copy, which must not exist or be empty; None: a temporary one, which is
            removed when this process ends.

    Raises:
        ConfigError, MissingExtra: no file system of this installation can open the URL.
        UsageError: there is no run, or the folder is not empty.
        WireError: the mirror does not answer.
        CheckpointError: a file does not have its checksum; the message names it.
    """
    storage = Storage(url)
    if path is not None:
        return _fetch_to(storage, path)
    # Not at the top: it imports ZeroMQ, and commands are fast without it.
    from session.wire.contexts import close_at_exit

    kept = Path(tempfile.mkdtemp(prefix="sl-mirror-"))
    close_at_exit(lambda: shutil.rmtree(kept, ignore_errors=True))
    return _fetch_to(storage, kept / storage.url.rpartition("/")[2])


def _fetch_to(storage: Storage, path: Path) -> Path:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(
            f"folder {path} is not empty: go on with what is there by --resume --folder {path}, or "
            "choose another folder"
        )
    beside = path.with_name(f".{path.name}.fetching")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        _fetch_newest(storage, beside)
        beside.replace(path)
    except OSError as error:
        raise UsageError(f"cannot fetch {storage.url} into {path}: {error.strerror}") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return path


def _fetch_newest(storage: Storage, path: Path, names: Collection[str] = ()) -> Manifest:
    """Writes the files of the newest generation; begins anew if it is replaced meanwhile.

    Args:
        storage: the mirror.
        path: new folder.
        names: names of the files; empty: all.
    """
    missing = ""
    for _ in range(_TRIES):
        manifest = storage.read_manifest()
        if manifest is None:
            raise refuse_missing(storage.url)
        path.mkdir(parents=True, exist_ok=True)
        wanted = [name for name in manifest.files if name in (names or manifest.files)]
        fetched = (_fetch(storage, name, manifest.files[name], path) for name in wanted)
        missing = next((name for name, there in zip(wanted, fetched, strict=True) if not there), "")
        if not missing:
            return manifest
        shutil.rmtree(path)
    raise CheckpointError(f"mirror {storage.url}: a block of {missing} is missing")


def _fetch(storage: Storage, name: str, stored: StoredFile, folder: Path) -> bool:
    """Writes one file; returns False if a block is missing.

    Raises:
        CheckpointError: its content is not that of which the manifest has the checksum.
    """
    blocks = _read_blocks(storage, name, stored)
    try:
        write_file(folder / name, stored, blocks, f"mirror {storage.url}: {name}")
    except _MissingBlockError:
        return False
    return True


def _read_blocks(storage: Storage, name: str, stored: StoredFile) -> Iterator[bytes]:
    for block in stored.blocks:
        data = storage.get(block)
        if data is None:
            raise _MissingBlockError
        if checksum(data) != block:
            raise CheckpointError(
                f"mirror {storage.url}: {name} was changed after it was copied: blocks/{block} "
                f"has the checksum {checksum(data)}"
            )
        yield data


def list_runs(url: str) -> Iterator[tuple[str, float, RunFolder]]:
    """Yields the runs at a URL or below it: URL, time of the copy [s], folder with their facts.

    A folder has config and result only, and is removed when the next one is asked for.

    Args:
        url: URL of a run, of a folder of runs, or of a folder of tunings.

    Raises:
        ConfigError, MissingExtra, WireError: as :func:`fetch_run`.
    """
    for storage in _find_runs(Storage(url), depth=2):
        with tempfile.TemporaryDirectory(prefix="sl-mirror-") as scratch:
            path = Path(scratch) / storage.url.rpartition("/")[2]
            manifest = _fetch_newest(storage, path, _FACTS)
            yield storage.url, manifest.time, RunFolder(path)


def _find_runs(storage: Storage, depth: int) -> Iterator[Storage]:
    if storage.read_manifest() is not None:
        yield storage
    elif depth:
        for below in storage.below():
            yield from _find_runs(Storage(below), depth - 1)
