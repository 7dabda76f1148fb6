"""The user's own files and modules, and their copies in the ``code/`` of a run."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from session.config import Config
from session.errors import ConfigError
from session.folder import RunFolder
from surreal_like.run.code_archive import archive_code, from_snapshot
from surreal_like.run.named_code import LIBRARY, OWN_FILE, named_places, split_place

# Modules of this library are not copied.
_LIBRARY = (*LIBRARY, "__main__")


def own_file(config: Config) -> Path | None:
    """Returns the file of the algorithm; None if the algorithm was found by name."""
    return _file(str(config.algorithm))


def _file(place: str) -> Path | None:
    path = split_place(place)[0]
    return Path(path).expanduser() if path.endswith(".py") else None


def own_files(config: Config) -> list[Path]:
    """Returns the user's own files that settings name, that of the algorithm first.

    Empty in a process that runs with a snapshot: it has them already.
    """
    if from_snapshot():
        return []
    files = [Path(place).expanduser() for place in named_places(config) if place.endswith(".py")]
    return list(dict.fromkeys(files))


def in_snapshot(place: str, folder: RunFolder) -> str:
    """Returns `file.py:name` with the copy of the file in the run's ``code/``, if there is one."""
    path, name = split_place(place)
    copy = folder.code / Path(path).name
    if not (path.endswith(".py") and os.path.isfile(copy)):
        return place
    return f"{copy}:{name}" if name else str(copy)


def with_kept_plan(config: Config, folder: RunFolder) -> Config:
    """Returns the config with the execution plan of the run's ``code/``, if it is a file."""
    plan = config.learner_config.execution_plan
    if plan is None:
        return config
    config = config.copy()
    config.learner_config.execution_plan = in_snapshot(plan, folder)
    return config


def edited_files(config: Config, folder: RunFolder) -> list[Path]:
    """Returns the files of the user that differ from their copies of the run's start."""
    edited = []
    for file in own_files(config):
        kept = folder.code / file.name
        if os.path.isfile(file) and os.path.isfile(kept) and kept.read_bytes() != file.read_bytes():
            edited.append(file)
    return edited


def own_modules(import_path: Iterable[str]) -> dict[str, str]:
    """Returns the user's modules that this process has imported from these folders.

    Returns:
        Path of the copy below ``code/`` -> absolute path of the file.
    """
    found: dict[str, str] = {}
    folders = [Path(folder).resolve() for folder in import_path]
    for name, module in sys.modules.copy().items():
        file, parts = getattr(module, "__file__", None), tuple(name.split("."))
        roots = folders
        if parts[0].startswith(OWN_FILE) and len(parts) > 1:
            # A relative import of the user's own file, whose folder is the package.
            roots, parts = [Path(str(sys.modules[parts[0]].__file__)).parent], parts[1:]
        if not roots or not str(file).endswith(".py") or parts[0] in _LIBRARY:
            continue
        if not os.path.isfile(str(file)):
            # Of an earlier run of this process, in a folder that is gone.
            continue
        place = Path(str(file)).resolve()
        for root in filter(place.is_relative_to, roots):
            below = place.relative_to(root)
            # Skips other files below a folder, such as a virtual environment with its packages.
            if below.with_suffix("").parts in (parts, (*parts, "__init__")):
                found.setdefault(below.as_posix(), str(place))
    return found


def keep_code(config: Config, folder: RunFolder) -> None:
    """Copies the user's own files and modules into the run folder, which may then be moved.

    Components load the algorithm from there; they load modules from there only if they are found
    nowhere else. The config records the hashes of the files, so that another machine can check its
    copies.
    """
    recorded = dict(config.get("recorded") or {})
    if from_snapshot():
        config["recorded"] = {**(folder.read_config().get("recorded") or {}), **recorded}
        return
    modules: dict[str, str] = recorded.pop("modules", {})
    own = [(each.name, each) for each in own_files(config) if os.path.isfile(each)]
    _copy_all([*own, *((below, Path(place)) for below, place in modules.items())], folder)
    file = own_file(config)
    if file is not None and os.path.isfile(file):
        recorded["algorithm_sha256"] = file_hash(file)
    if modules:
        kept = {below: file_hash(folder.code / below) for below in modules}
        recorded["modules_sha256"] = kept
    if sha256 := archive_code(config, folder):
        recorded["source_sha256"] = sha256
    if recorded:
        config["recorded"] = recorded


def keep_file(place: str, folder: RunFolder) -> None:
    """Copies the file of ``file.py:name`` into ``code/``, if it is there; a copy is kept.

    Raises:
        ConfigError: another file is kept under its name.
    """
    file = _file(place)
    if file is None or not os.path.isfile(file):
        return
    copy = folder.code / file.name
    if os.path.isfile(copy) and copy.read_bytes() != file.read_bytes():
        raise ConfigError(
            f"{file} differs from {copy}, the copy of the file with which {folder} began: put it "
            "back, or begin anew"
        )
    _copy(file, copy)


def _copy_all(files: Iterable[tuple[str, Path]], folder: RunFolder) -> None:
    """Copies files into ``code/``.

    Args:
        files: path of each copy below ``code/``, and the file.
        folder: of the run.

    Raises:
        ConfigError: two different files would have one copy.
    """
    kept: dict[str, Path] = {}
    for below, file in files:
        other = kept.setdefault(below, file)
        if other.read_bytes() != file.read_bytes():
            raise ConfigError(
                f"{other} and {file} are different files with one name, and a run keeps a copy of "
                "both in its code/: rename one of them"
            )
        _copy(file, folder.code / below)


def _copy(file: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if file.resolve() != place.resolve():
        shutil.copyfile(file, place)


def file_hash(path: Path) -> str:
    """Returns the SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
