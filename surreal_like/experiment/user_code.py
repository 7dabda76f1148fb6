"""The user's own files and modules: copies in the ``code/`` of a run, and an archive of them."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NoReturn

from session.atomic_file import write_atomically
from session.config import Config
from session.config.named_code import LIBRARY, OWN_FILE, named_places, split_place
from session.errors import ConfigError, UsageError
from session.folder import UNPACKED, RunFolder
from session.json_file import read_file
from session.loggerplex.append_file import AppendFile

_PACKAGES = ("session", "surreal_like", "main")
_TOP = Path(__file__).resolve().parents[2]
# Of all archived files together; what exceeds it is left out, and reported as an event.
_LIMIT_BYTES = 10_000_000
_DIFF_LIMIT_BYTES = 1_000_000
_SKIPPED = ("__pycache__", "site-packages", "node_modules")
# Files of a run that describe its start but are no code.
_NO_CODE = ("source.tar.gz", "git.json", "packages.txt")
_GIT_SECONDS = 2
_UNPACKED_PREFIX = "sl-snapshot-"


def from_snapshot() -> bool:
    """Returns True if this process runs with the unpacked code of a run."""
    return UNPACKED in os.environ


def archive_files(folder: RunFolder) -> list[Path]:
    """Returns the files that :func:`archive_code` writes."""
    return [folder.code / name for name in _NO_CODE[:2]]


def archive_code(config: Config, folder: RunFolder) -> str:
    """Archives the code of the run, and describes the state of git; returns the SHA-256.

    Equal files give equal bytes. Without ``session_config.launcher.snapshot`` it removes the
    archive of an earlier part of the run, and returns an empty text.
    """
    archive, git = archive_files(folder)
    if not config.session_config.launcher.snapshot:
        archive.unlink(missing_ok=True)
        git.unlink(missing_ok=True)
        return ""
    files, left_out, size = {}, [], 0
    for name, path in _sources(config.session_config.import_path, folder):
        content = _content(path, _LIMIT_BYTES - size)
        if content is None:
            left_out.append(name)
        else:
            files[name] = content
            size += len(content)
    packed = _pack(files)
    folder.code.mkdir(parents=True, exist_ok=True)
    write_atomically(archive, packed)
    git.unlink(missing_ok=True)
    if state := _git_state():
        write_atomically(git, json.dumps(state, indent=1) + "\n")
    if left_out:
        _report_left_out(folder, left_out)
    return hashlib.sha256(packed).hexdigest()


def _sources(import_path: Iterable[str], folder: RunFolder) -> Iterator[tuple[str, Path]]:
    """Yields the name in the archive and the path of each file; the most important ones first."""
    for package in _PACKAGES:
        for path in _walk(_TOP / package):
            yield path.relative_to(_TOP).as_posix(), path
    for path in _walk(folder.code):
        if path.name not in _NO_CODE:
            yield f"code/{path.relative_to(folder.code).as_posix()}", path
    for number, place in enumerate(import_path):
        for path in _walk(Path(place)):
            if path.suffix == ".py":
                yield f"import_path/{number}/{path.relative_to(place).as_posix()}", path


def _content(path: Path, limit_bytes: int) -> bytes | None:
    """Returns the content of a file; None if it is larger, or cannot be read."""
    try:
        return read_file(path) if path.stat().st_size <= limit_bytes else None
    except OSError:
        return None


def _walk(top: Path) -> Iterator[Path]:
    """Yields the files below a folder in a fixed order, without those of virtual environments."""
    for place, folders, names in os.walk(top):
        here = Path(place)
        folders[:] = sorted(
            each
            for each in folders
            if each not in _SKIPPED
            and not each.startswith(".")
            and not (here / each / "pyvenv.cfg").exists()
            and not (here / each / "topology.json").exists()  # another run, with its own code
        )
        yield from (here / name for name in sorted(names) if not name.endswith(".pyc"))


def _pack(files: dict[str, bytes]) -> bytes:
    """Returns the archive; it has no times and owners, so that equal files give equal bytes."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size = len(files[name])
            tar.addfile(entry, io.BytesIO(files[name]))
    # Level 1 takes a third of the time of level 6, for a quarter more bytes.
    return gzip.compress(raw.getvalue(), 1, mtime=0)


def _git_state() -> dict[str, object]:
    """Returns revision, changed files and their difference; empty outside of a repository."""
    if not (revision := git_revision()):
        return {}
    changed = _git("status", "--porcelain", "--untracked-files=normal").splitlines()
    diff = _git("diff", "--no-ext-diff", "HEAD")
    cut = len(diff) > _DIFF_LIMIT_BYTES
    state = {"revision": revision, "changed": changed, "diff": diff[:_DIFF_LIMIT_BYTES]}
    return state | ({"diff_cut": True} if cut else {})


def git_revision() -> str:
    """Returns the revision of the current folder; empty outside of a repository."""
    return _git("rev-parse", "HEAD").strip()


def library_revision() -> str:
    """Returns the revision of the checkout of this library; empty if it is no checkout."""
    # Named, because a package may be installed below the repository of another project.
    return _git(f"--git-dir={_TOP / '.git'}", "rev-parse", "HEAD").strip()


def _git(*words: str) -> str:
    """Returns the output of a command of git; empty if it fails, or takes too long."""
    command = ["git", "--no-optional-locks", *words]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace")


def _report_left_out(folder: RunFolder, names: Sequence[str]) -> None:
    shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
    event = {
        "time": time.time(),
        "component": "launcher",
        "event": "snapshot",
        "detail": f"code/source.tar.gz lacks {len(names)} of the files: {shown}",
    }
    # No component runs yet: nothing else writes to the file.
    events = AppendFile(folder.events, lines=True)
    events.add((json.dumps(event) + "\n").encode())
    events.flush()


def keep_package_list(folder: RunFolder) -> None:
    """Writes the installed distributions with their versions, in the format of pip.

    Ignores errors of the disk: the list is not needed to run.
    """
    found = {_describe(each) for each in metadata.distributions()}
    lines = sorted(filter(None, found), key=str.lower)
    with suppress(OSError):
        folder.code.mkdir(exist_ok=True)
        write_atomically(folder.code / "packages.txt", "\n".join(lines) + "\n")


def _describe(package: metadata.Distribution) -> str:
    """Returns name==version; empty for one without a name.

    Read from the text: the standard library parses it as an e-mail, in ten times as long.
    """
    text = package.read_text("METADATA") or package.read_text("PKG-INFO") or ""
    name, version = (re.search(rf"^{field}:\s*(\S+)", text, re.M) for field in ("Name", "Version"))
    return f"{name[1]}=={version[1] if version else None}" if name else ""


def restart_archived(folder: RunFolder, argv: Sequence[str]) -> NoReturn:
    """Replaces this process by the command with the code of a run; never returns.

    Exit code and signals are then those of the command, which at its end removes what is unpacked.
    What killed commands have left is removed here.

    Args:
        folder: the run.
        argv: words of the command; ``--snapshot`` is left out.

    Raises:
        UsageError: the run has no archive, or not the one that was written at its start.
    """
    content = _checked(folder)
    _remove_abandoned()
    place = _make_locked_folder()
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
            tar.extractall(place, filter="data")
        imports = (place / "import_path").iterdir() if (place / "import_path").is_dir() else ()
        paths = [str(each) for each in (place, *sorted(imports, key=lambda path: int(path.name)))]
        paths += filter(None, [os.environ.get("PYTHONPATH")])
        environment = {**os.environ, UNPACKED: str(place), "PYTHONPATH": os.pathsep.join(paths)}
        sys.stdout.flush()
        sys.stderr.flush()
        words = [word for word in argv if word != "--snapshot"]
        command = [sys.executable, "-P", "-s", "-m", "main.cli", *words]
        os.execve(sys.executable, command, environment)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def _make_locked_folder() -> Path:
    """Creates a folder, and locks it until the command ends: exec keeps the lock."""
    while True:
        place = Path(tempfile.mkdtemp(prefix=_UNPACKED_PREFIX))
        lock = os.open(place, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Another command may have removed the folder before it was locked.
        if place.exists():
            os.set_inheritable(lock, True)
            return place
        os.close(lock)


def _remove_abandoned() -> None:
    """Removes the unpacked code of commands that were killed: their locks are free."""
    for place in Path(tempfile.gettempdir()).glob(f"{_UNPACKED_PREFIX}*"):
        # An OSError: the folder is in use, of another user, or gone.
        with suppress(OSError):
            lock = os.open(place, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(place, ignore_errors=True)
            finally:
                os.close(lock)


def _checked(folder: RunFolder) -> bytes:
    """Returns the content of the archive, whose hash is the recorded one."""
    archive = folder.code / _NO_CODE[0]
    recorded = (folder.read_config().get("recorded") or {}).get("source_sha256")
    if not recorded or not archive.is_file():
        raise UsageError(
            f"run {folder} has no snapshot of its code ({archive}): leave --snapshot out to use "
            "the installed code"
        )
    content = archive.read_bytes()
    if hashlib.sha256(content).hexdigest() != recorded:
        raise UsageError(
            f"{archive} is not the snapshot of the run's start: its SHA-256 differs from "
            f"recorded.source_sha256 in {folder.config}; put a copy of it back, or leave "
            "--snapshot out"
        )
    return content


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
    # Of each folder once: a process has thousands of modules.
    real_path = cache(os.path.realpath)
    for name, module in sys.modules.copy().items():
        file, parts = str(getattr(module, "__file__", None)), tuple(name.split("."))
        roots = folders
        if parts[0].startswith(OWN_FILE) and len(parts) > 1:
            # A relative import of the user's own file, whose folder is the package.
            roots, parts = [Path(str(sys.modules[parts[0]].__file__)).parent], parts[1:]
        if not roots or not file.endswith(".py") or parts[0] in _LIBRARY:
            continue
        if not os.path.isfile(file):
            # Of an earlier run of this process, in a folder that is gone.
            continue
        folder, last = os.path.split(file)
        folder = real_path(folder)
        place = os.path.realpath(file) if os.path.islink(file) else os.path.join(folder, last)
        for root in roots:
            # Skips other files below a folder, such as a virtual environment with its packages.
            for below in (f"{'/'.join(parts)}.py", f"{'/'.join(parts)}/__init__.py"):
                if place == os.path.join(root, below):
                    found.setdefault(below, place)
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
        folder: folder of the run.

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
        write_atomically(place, read_file(file))


def file_hash(path: Path) -> str:
    """Returns the SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
