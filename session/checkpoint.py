"""One checkpoint: a folder, written atomically, with size and checksum of every file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from session.atomic_file import write_atomically
from session.errors import CheckpointError, ConfigError
from session.json_file import COUNT, TEXT, MapOf, fault, open_file, parse_object, read_object

STATE = "state.json"
ASIDE = "aside"
_KEPT_ASIDE = 4
# Number of the form of sealed files; of another number nothing is read.
FORMAT = 1
_SEALED = {"blake2b": TEXT}
_LISTED = {"files": MapOf({"bytes": COUNT, "blake2b": TEXT})}


def save_one(
    path: Path, state: Mapping[str, Any], write: Callable[[Path], None], *, keep: int = 1
) -> None:
    """Writes one checkpoint under a fixed name; earlier ones become ``<name>-2``, ``<name>-3``.

    Args:
        path: folder of the checkpoint.
        state: plain data, for ``state.json``.
        write: called with a folder; writes the other files into it.
        keep: maximum number of checkpoints, the new one included.

    Raises:
        CheckpointError: a disk error; the old ones stay intact.
    """
    beside = path.with_name(f".{path.name}.saving")
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        write(beside)
        files = {
            file.name: {"bytes": file.stat().st_size, "blake2b": _checksum(file)}
            for file in sorted(beside.iterdir())
        }
        write_sealed(beside / STATE, {**state, "files": files})
        mode = (beside / STATE).stat().st_mode
        for file in beside.iterdir():
            # Some libraries create files that only their owner may read.
            file.chmod(mode)
            _flush(file)
        _put(beside, path, keep)
        _flush(path.parent)
    except (OSError, CheckpointError) as error:
        # On a full disk the partial checkpoint would take the space that others need.
        shutil.rmtree(beside, ignore_errors=True)
        raise CheckpointError(f"checkpoint {path} was not saved: {error}") from None


def earlier_ones(path: Path) -> list[Path]:
    """Checkpoints of :func:`save_one` under a name, newest first: ``best``, ``best-2``, ..."""
    names = path.parent.glob(f"{path.name}-*") if path.parent.is_dir() else ()
    behind = [each for each in names if each.name.rpartition("-")[2].isdecimal()]
    behind.sort(key=lambda each: int(each.name.rpartition("-")[2]))
    return [each for each in (path, *behind) if each.is_dir()]


def move_up(path: Path) -> None:
    """Renames the newest of :func:`earlier_ones` to the name itself if that name is free."""
    newest = next(iter(earlier_ones(path)), path)
    if newest != path:
        with suppress(OSError):
            newest.rename(path)


def set_aside(path: Path, *, keep: int = _KEPT_ASIDE) -> str:
    """Moves an unused file or folder into ``aside/`` beside it.

    It stays there as ``<name>.<k>`` for inspection; beyond ``keep`` of them the oldest is removed.

    Returns:
        Description of the move.
    """
    aside = path.parent / ASIDE
    try:
        aside.mkdir(exist_ok=True)
        there = sorted(aside.iterdir(), key=_turn)
        new = aside / f"{path.name}.{_turn(there[-1]) + 1 if there else 1}"
        path.rename(new)
    except OSError as error:
        return f"it cannot be set aside: {error}"
    text = f"set aside as {ASIDE}/{new.name}"
    for old in there[: max(0, len(there) + 1 - keep)]:
        shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)
        text += f", {ASIDE}/{old.name} removed"
    return text


def _turn(path: Path) -> int:
    turn = path.name.rpartition(".")[2]
    return int(turn) if turn.isdecimal() else 0


def read_state(path: Path) -> dict[str, Any]:
    """Returns the state of a checkpoint after checking size and checksum of every file.

    Raises:
        CheckpointError: a file is missing, truncated or changed; the message names it.
    """
    state = read_sealed(path / STATE)
    try:
        for name, file in listed_files(state, path).items():
            _check(path / name, file["bytes"], file["blake2b"])
    except OSError as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {error!r}") from None
    return state


def listed_files(state: dict[str, Any], where: object) -> Mapping[str, Mapping[str, Any]]:
    """Removes the list of files from a state and returns it: name -> ``bytes``, ``blake2b``.

    Raises:
        CheckpointError: there is none, or a name leads out of the checkpoint's folder.
    """
    if wrong := fault(state, _LISTED):
        raise CheckpointError(f"checkpoint {where} cannot be read: {wrong}")
    files: Mapping[str, Mapping[str, Any]] = state.pop("files")
    for name in files:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise CheckpointError(f"checkpoint {where} cannot be read: {name!r} is no file of it")
    return files


def _check(file: Path, size: int, checksum: str) -> None:
    found = file.stat().st_size if file.exists() else 0
    if found != size:
        raise CheckpointError(f"checkpoint file {file} has {found} bytes, it was saved with {size}")
    if _checksum(file) != checksum:
        raise CheckpointError(f"checkpoint file {file} was changed after it was saved")


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Writes plain data as JSON with a checksum, so that :func:`read_sealed` detects damage.

    Raises:
        OSError: a disk error; the old file stays intact.
    """
    write_atomically(path, seal(content))


def seal(content: Mapping[str, Any]) -> str:
    """Returns plain data as JSON with a checksum, for :func:`unseal`."""
    content = {"format": FORMAT, **content}
    return json.dumps({**content, "blake2b": _checksum_of(json.dumps(content))})


def read_sealed(path: Path) -> dict[str, Any]:
    """Reads data that :func:`write_sealed` wrote.

    Raises:
        CheckpointError: the file cannot be read, or was changed after it was saved.
    """
    try:
        return _check_seal(read_object(path, _SEALED), path)
    except ConfigError as error:
        raise CheckpointError(str(error)) from None


def unseal(text: str | bytes, where: str) -> dict[str, Any]:
    """Reads data that :func:`seal` made.

    Args:
        text: the data.
        where: place of the data, for the message.

    Raises:
        CheckpointError: the data were changed.
    """
    try:
        return _check_seal(parse_object(text, _SEALED), where)
    except ValueError as error:
        raise CheckpointError(f"{where} is damaged: {error}") from None


def _check_seal(content: dict[str, Any], where: object) -> dict[str, Any]:
    checksum = content.pop("blake2b")
    if _checksum_of(json.dumps(content)) != checksum:
        raise CheckpointError(f"{where} was changed after it was saved")
    # Those of before have no number.
    if (found := content.pop("format", FORMAT)) != FORMAT:
        raise CheckpointError(
            f"{where} has format {found}, this version reads format {FORMAT}: use the version of "
            "surreal-like that has written it"
        )
    return content


def _checksum_of(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _checksum(file: Path) -> str:
    with open_file(file) as content:
        return hashlib.file_digest(content, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _put(new: Path, path: Path, keep: int) -> None:
    """Renames a folder into place; a rename cannot replace a full folder, so earlier ones move."""
    behind = [path.with_name(f"{path.name}-{number}") for number in range(keep + 1, 1, -1)]
    for older, newer in zip(behind, [*behind[1:], path], strict=True):
        shutil.rmtree(older, ignore_errors=True)
        if newer.exists():
            newer.rename(older)
    new.rename(path)
    for old in earlier_ones(path)[keep:]:
        shutil.rmtree(old, ignore_errors=True)


def _flush(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
