"""What a run keeps of the code that made it: the user's own algorithm file, the package list."""

from __future__ import annotations

import hashlib
import shutil
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from session.config import Config
from session.folder import RunFolder, write_atomically


def own_file(config: Config) -> Path | None:
    """The file in which the algorithm is, None where it was found by name."""
    place = Path(str(config.algorithm).partition(":")[0])
    return place.expanduser() if place.suffix == ".py" else None


def own_file_changed(config: Config, folder: RunFolder) -> bool:
    """True if the user's algorithm file differs from the one that the run began with."""
    file = own_file(config)
    if file is None or not file.is_file():
        return False
    kept = folder.code / file.name
    return kept.is_file() and kept.read_bytes() != file.read_bytes()


def keep_algorithm(config: Config, folder: RunFolder) -> None:
    """Copies the user's algorithm file into the run folder: components take it from there.

    The config records its hash, by which another machine knows that it has the same file.
    """
    file = own_file(config)
    if file is not None and file.is_file():
        folder.code.mkdir(exist_ok=True)
        shutil.copyfile(file, folder.code / file.name)
        recorded = dict(config.get("recorded") or {})
        config["recorded"] = {**recorded, "algorithm_sha256": file_hash(file)}


def file_hash(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def keep_package_list(folder: RunFolder) -> None:
    """Writes the installed distributions with their versions, as pip would list them.

    Without it a run is as good; a full disk is no reason to end one.
    """
    lines = sorted(
        {f"{each.name}=={each.version}" for each in metadata.distributions() if each.name},
        key=str.lower,
    )
    with suppress(OSError):
        folder.code.mkdir(exist_ok=True)
        write_atomically(folder.code / "packages.txt", "\n".join(lines) + "\n")
