"""Run folders: their names, their creation, and the lock of a run."""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from session.atomic_file import write_atomically
from session.config import Config
from session.config.named_code import split_place
from session.errors import UsageError
from session.folder import RUNS, RunFolder
from session.json_file import read_file
from surreal_like.experiment.shipped import find_experiment
from surreal_like.experiment.user_code import archive_files, own_files

# State of a tuning, in its folder.
TUNING = "tuning.json"
# Longest name of an experiment in a folder's name, which has at most 255 bytes.
_NAME_LENGTH = 100
# With less free space, files of a run cannot be written any more.
_LEAST_FREE_BYTES = 100_000


def experiment_name(path: str | Path | None, user: Config) -> str:
    """Returns the name with which folders of an experiment's runs begin.

    It is the file's name, followed by the environment and the algorithm if they differ from the
    file's; without a file, algorithm and environment.

    Args:
        path: experiment file or the name of a shipped one, None without one.
        user: the experiment, with the replaced settings.
    """
    algorithm, env_name = str(user.algorithm), str(user.env_config.env_name)
    words = [_algorithm_word(algorithm), _environment_word(env_name)]
    if path is not None:
        file = Config.load_file(str(find_experiment(path)))
        env = file.get("env_config") or {}
        changed = [file.get("algorithm") != algorithm, env.get("env_name") != env_name]
        words = [Path(path).stem, *(w for w, other in zip(words, changed, strict=True) if other)]
    name = re.sub(r"[^\w.-]+", "-", "-".join(filter(None, words)))
    return name[:_NAME_LENGTH].strip("-.") or "run"


def _algorithm_word(algorithm: str) -> str:
    file, class_name = split_place(algorithm)
    return class_name or Path(file).stem


def _environment_word(env_name: str) -> str:
    return env_name.rpartition(":")[2]


def new_path(name: str) -> Path:
    """Returns ``runs/<name>-<date>-<time>``, followed by a number if that exists."""
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = RUNS / stem, 1
    while path.exists():
        number += 1
        path = RUNS / f"{stem}-{number}"
    return path


def _is_reserved(name: str) -> Path:
    """Creates a new folder of that name; commands that begin together get different ones."""
    while True:
        path = new_path(name)
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(f"cannot make the run folder {path}: {error.strerror}") from None
        return path


def newest_path(name: str | None, file: str = "config.yaml") -> Path:
    """Returns the folder of the newest run, of that name if one is given.

    Args:
        name: name of the experiment, None: any.
        file: that each run has; :data:`TUNING`: of tunings.

    Raises:
        UsageError: there is no such run.
    """
    paths = [path for path in RUNS.glob("*") if os.path.isfile(path / file)]
    if name is not None:
        dated = re.compile(re.escape(name) + r"-\d{8}-\d{6}.*")
        paths = [path for path in paths if dated.fullmatch(path.name)]
    if not paths:
        wanted = f"{RUNS}/{name}-*" if name is not None else f"{RUNS}/"
        kind = "tuning" if file == TUNING else "run"
        raise UsageError(f"no {kind} to resume: there is none in {wanted}; name one with --folder")
    return max(paths, key=lambda path: (path / file).stat().st_mtime)


def tuned(path: Path) -> bool:
    """Returns True for the folder of a tuning that goes on."""
    return os.path.isfile(path / TUNING) and RunFolder(path).in_use


def with_refusal(folder: RunFolder, reason: str) -> str:
    """Returns the reason of a failure, after that for which its folder cannot be written now.

    A process that fails for lack of room can often not write its error, either.
    """
    try:
        free_bytes = shutil.disk_usage(folder.path).free
    except OSError:
        return reason
    if free_bytes < _LEAST_FREE_BYTES:
        return f"the disk of {folder} is full: free some space, then resume; {reason}"
    if refusal := folder.refusal:
        return f"run folder {folder} cannot be written to ({refusal}); {reason}"
    return reason


@contextmanager
def held(path: Path | None, *, name: str = "run", resume: bool = False) -> Iterator[RunFolder]:
    """Locks the folder of a run; afterwards removes a new one in which no run was begun.

    Args:
        path: path of the folder; None: a new one, unlike those of commands that begin now.
        name: name of the experiment, for a new folder.
        resume: True if the run exists already.

    Raises:
        UsageError: a new run's folder is not empty, or another launcher holds the lock.
    """
    parent = path.parent if path is not None else RUNS
    made = [each for each in (parent, *parent.parents) if not os.path.exists(each)]
    if path is None or not os.path.exists(path):
        path = path or _is_reserved(name)
        made.insert(0, path)
    folder = RunFolder(path)
    # Before any is made: an interruption may come between two.
    below = (folder.logs, folder.checkpoints, folder.alive, folder.code)
    made = [*(each for each in below if not os.path.exists(each)), *made]
    if resume:
        folder.check_places(*archive_files(folder))
        folder.lock()
    try:
        if not resume:
            folder.create()
            folder.lock()
        yield folder
    finally:
        folder.unlock()
        if not resume and not os.path.exists(folder.config):
            for each in made:
                with suppress(OSError):
                    each.rmdir()


@contextmanager
def put_back_if_refused(config: Config, folder: RunFolder) -> Iterator[None]:
    """Restores the files that describe the run in the folder if the code inside raises an error.

    Raises:
        UsageError: a file of the run cannot be read or written.
    """
    files = [folder.config, folder.topology, folder.addresses, folder.result]
    files += archive_files(folder)
    files += [folder.code / own.name for own in own_files(config)]
    files += [folder.code / below for below in (config.get("recorded") or {}).get("modules", {})]
    before = {file: read_file(file) if file.is_file() else None for file in files}
    try:
        yield
    except BaseException as error:
        for file, content in before.items():
            # An error of the disk here must not hide the first one.
            with suppress(OSError):
                _put_back(file, content, folder.code)
        if isinstance(error, OSError) and (wrong := _fault(error, folder)):
            raise UsageError(wrong) from None
        raise


def _put_back(file: Path, content: bytes | None, code: Path) -> None:
    if content is None:
        file.unlink(missing_ok=True)
        _remove_empty(file.parent, code)
    elif not file.is_file() or read_file(file) != content:
        # Not one that is unchanged: on a full disk it could not be written.
        write_atomically(file, content)


def _fault(error: OSError, folder: RunFolder) -> str:
    """Describes an error about a file of the run, or a full disk; empty for any other error."""
    place = error.filename2 or error.filename
    if place and Path(place).absolute().is_relative_to(folder.path.absolute()):
        return f"{place} cannot be used: {error.strerror}"
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
    return f"run folder {folder} cannot be written: {error.strerror}" if full else ""


def _remove_empty(path: Path, top: Path) -> None:
    """Removes empty folders from ``path`` up to, but without, ``top``."""
    while top in path.parents:
        with suppress(OSError):
            path.rmdir()
        path = path.parent
