"""Paths of all files of one run, and the lock of the launcher that owns the folder."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from session.addons import list_sinks
from session.atomic_file import write_atomically
from session.config import Config
from session.config.sections import SECTIONS
from session.config.session_defaults import EVALUATION_MODES
from session.errors import ConfigError, UsageError
from session.json_file import (
    AMOUNT,
    COUNT,
    FLAG,
    NUMBER,
    OBJECT,
    TEXT,
    VALUE,
    MapOf,
    Maybe,
    Nullable,
    fault,
    read_file,
    read_object,
)
from session.tail import Tail

# Run folders of commands that name none, below the present folder.
RUNS = Path("runs")
# Variable of the environment: folder with the unpacked code of a run, while a process runs with it.
UNPACKED = "SURREAL_LIKE_UNPACKED"
# A process that checks `in_use` holds a shared lock for a moment, so locking is retried.
_LOCK_SECONDS = 0.2
_NUMBERS = MapOf(Maybe(VALUE))
_EVALUATION = Maybe(
    {
        "mean_return": VALUE,
        **dict.fromkeys(("episodes", "iteration", "env_steps"), Maybe(COUNT)),
        "wall_seconds": Maybe(NUMBER),
        "policies": Maybe(_NUMBERS),
    }
)
_TRAIN = {
    "mean_return_100": Nullable(VALUE),
    **dict.fromkeys(("min_return_100", "max_return_100"), Maybe(VALUE)),
}
LAG = {name: Nullable(VALUE) for name in ("mean_versions", "max_versions", "mean_updates")}
# Fields of a line of progress and of the result that are read again.
_REPORTED = {
    **dict.fromkeys(("iteration", "repeated_iterations", "frames"), Maybe(COUNT)),
    **dict.fromkeys(("rates", "replay"), Maybe(_NUMBERS)),
    "experience": Maybe(
        {
            **dict.fromkeys(("pushed", "inserted", "dropped"), COUNT),
            **dict.fromkeys(("unacked", "holes", "lost"), Maybe(COUNT)),
        }
    ),
    "latency": Maybe(MapOf(VALUE)),
    **dict.fromkeys(("waiting_share", "real_seconds", "held_seconds"), Maybe(NUMBER)),
    **dict.fromkeys(("eval", "best_eval"), _EVALUATION),
    # Newest evaluations of modes that do not judge.
    **dict.fromkeys(EVALUATION_MODES, Maybe({"mean_return": VALUE})),
}
_TOTALS = ("env_steps", "iterations", "episodes")
PROGRESS = {
    **_REPORTED,
    **dict.fromkeys(_TOTALS, COUNT),
    "wall_seconds": NUMBER,
    "train": _TRAIN,
    "guests": Maybe(_TRAIN),
    "lag": LAG,
    "standstill": Maybe(TEXT),
    "wanted": Maybe({"agents": Maybe(COUNT), "reason": TEXT}),
    "version": Maybe(COUNT),
    "batches_waiting": Maybe(_NUMBERS),
    "metrics": Maybe(MapOf(_NUMBERS)),
    "time": Maybe(MapOf(AMOUNT)),
    "episodes_since_load": Maybe(COUNT),
}
RESULT = {
    **_REPORTED,
    **dict.fromkeys(_TOTALS, Maybe(COUNT)),
    "wall_seconds": Maybe(NUMBER),
    "status": TEXT,
    "reason": Maybe(TEXT),
    "goal_met": Maybe(FLAG),
    **dict.fromkeys(("train", "guests"), Maybe(_TRAIN)),
    "lag": Maybe(LAG),
    "final_eval": _EVALUATION,
    "final_eval_reason": Maybe(TEXT),
    "solved": Maybe(dict.fromkeys(("greedy_seconds", "greedy_env_steps"), Nullable(VALUE))),
    "components": Maybe(MapOf({"restarts": Maybe(COUNT), "exit_code": Maybe(NUMBER)})),
    # Of a tuning.
    "seconds": Maybe(NUMBER),
    "trials": Maybe(MapOf({"env_steps": Maybe(COUNT)})),
}
# Other fields are checked against the defaults when a run is resumed.
_CONFIG = {
    "algorithm": TEXT,
    **dict.fromkeys(SECTIONS, OBJECT),
    "policies": Maybe(
        MapOf(
            {
                "agents": [TEXT],
                "algorithm": Maybe(TEXT),
                **dict.fromkeys(("obs_spec", "action_spec"), OBJECT),
                **dict.fromkeys(("learner_config", "sender"), Maybe(OBJECT)),
            }
        )
    ),
    "recorded": Maybe(OBJECT),
    "run": Maybe(
        {
            **dict.fromkeys(
                ("started", "boot", "began", "first_started", "seconds_before"), Maybe(NUMBER)
            ),
            **dict.fromkeys(("part", "generation"), Maybe(COUNT)),
            **dict.fromkeys(("id", "launcher", "load_from", "trial", "launched_as"), Maybe(TEXT)),
            "settings": Maybe(OBJECT),
        }
    ),
}
EVENT = {
    "time": Maybe(NUMBER),
    "event": TEXT,
    # Of an evaluation.
    "mean_return": Maybe(VALUE),
    **dict.fromkeys(("episodes", "env_steps"), Maybe(COUNT)),
}


class RunFolder:
    """The folder of one run; it can be moved, as all paths below it are relative.

    Args:
        path: the folder; it need not exist yet.
        copy_of: URL of the mirror that the folder is a copy of, or ``trained:NAME``; empty: it is
            the run itself.
    """

    def __init__(self, path: str | Path, *, copy_of: str = "") -> None:
        self.path = Path(path)
        self.copy_of = copy_of
        self.config = self.path / "config.yaml"
        self.topology = self.path / "topology.json"
        self.addresses = self.path / "addresses.json"
        self.result = self.path / "result.json"
        self.progress = self.path / "progress.jsonl"
        self.events = self.path / "events.jsonl"
        self.logs = self.path / "logs"
        self.tensorboard = self.path / "tensorboard"
        self.checkpoints = self.path / "checkpoints"
        self.alive = self.path / "alive"
        # A process that runs with the unpacked code of the run takes all of it from there.
        unpacked = os.environ.get(UNPACKED)
        self.code = Path(unpacked, "code") if unpacked else self.path / "code"
        self.keys = self.path / "keys"
        self.client_tokens = self.keys / "clients"
        self.gateways = self.path / "gateway"
        self.quarantine = self.path / "quarantine"
        self.recording = self.path / "recording"
        self._lock: BinaryIO | None = None
        self._config_read: tuple[tuple[int, ...], Config] | None = None

    def __str__(self) -> str:
        return str(self.path)

    def list_metrics(self) -> list[Path]:
        """Returns the files that sinks of metrics may have."""
        return [self.path / sink.file for sink in list_sinks().values() if sink.file]

    def create(self) -> None:
        """Creates the folder for a new run.

        Raises:
            UsageError: it exists and is not empty, or cannot be created.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if any(self.path.iterdir()):
                raise UsageError(
                    f"folder {self.path} is not empty: a new run never enters an existing folder; "
                    "choose another with --folder, or go on with --resume"
                )
            for below in (self.logs, self.checkpoints, self.alive):
                below.mkdir()
        except OSError as error:
            raise UsageError(f"cannot make the run folder {self.path}: {error.strerror}") from None

    def check_places(self, *others: Path) -> None:
        """Checks that files are files and folders are folders, before a run goes on in them.

        Args:
            others: further files.

        Raises:
            UsageError: something else is in the place of one; the message names it.
        """
        files = [self.config, self.topology, self.addresses, self.result, self.progress, *others]
        folders = [self.logs, self.checkpoints, self.alive, self.checkpoints / "learner"]
        for below in (self.logs, self.alive):
            files += below.iterdir() if os.path.isdir(below) else ()
        for path in (*files, self.events, *self.list_metrics()):
            if os.path.exists(path) and not os.path.isfile(path):
                there = "a folder" if os.path.isdir(path) else "no regular file"
                raise UsageError(f"{path} is {there}, a run has a file there: move it away")
        for path in (*folders, self.tensorboard, self.code, self.keys):
            if os.path.exists(path) and not os.path.isdir(path):
                raise UsageError(f"{path} is a file, a run has a folder there: move it away")

    def make_below(self) -> None:
        """Creates the folders that components write into, if no launcher has done so."""
        with suppress(OSError):
            for below in (self.logs, self.checkpoints, self.alive):
                below.mkdir(parents=True, exist_ok=True)

    def lock(self) -> None:
        """Marks the folder as in use while this process lives; a repeated call is no error.

        Raises:
            UsageError: another launcher uses it, or it cannot be written.
        """
        deadline = time.monotonic() + _LOCK_SECONDS
        while self._lock is None:
            self._lock = self._try_lock()
            if self._lock is None and time.monotonic() > deadline:
                raise UsageError(
                    f"run {self.path} is in use by another launcher; "
                    f"stop it with: surreal-like stop {self.path}"
                )

    def _try_lock(self) -> BinaryIO | None:
        """Tries to lock; None if another process holds the lock, even for a check of `in_use`."""
        path = self.path / ".lock"
        lock = None
        try:
            # Not emptied yet: the file may hold the number of another owner.
            flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK
            lock = os.fdopen(os.open(path, flags, 0o666), "r+b", buffering=0)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The previous owner may have removed the file between open and flock.
            if os.fstat(lock.fileno()).st_ino == path.stat().st_ino:
                lock.truncate(0)
                lock.write(str(os.getpid()).encode())
                return lock
        except (BlockingIOError, FileNotFoundError) as error:
            if lock is None:
                raise self._unusable(error) from None
            time.sleep(_LOCK_SECONDS / 10)
        except OSError as error:
            if lock is not None:
                lock.close()
            raise self._unusable(error) from None
        lock.close()
        return None

    def _unusable(self, error: OSError) -> UsageError:
        return UsageError(f"cannot use the run folder {self.path}: {error.strerror}")

    @property
    def locked(self) -> bool:
        """True while this object holds the lock."""
        return self._lock is not None

    def unlock(self) -> None:
        """Releases the lock."""
        if self._lock is not None:
            # Only the held lock marks the folder as in use, so the file can go.
            with suppress(OSError):
                (self.path / ".lock").unlink()
            self._lock.close()
            self._lock = None

    @property
    def in_use(self) -> bool:
        """True while a launcher holds the lock."""
        try:
            with (self.path / ".lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    @property
    def owner(self) -> int | None:
        """Process id of the launcher that holds the lock, on the machine of that; None without."""
        try:
            return int(read_file(self.path / ".lock")) if self.in_use else None
        except (OSError, ValueError):
            return None

    @property
    def refusal(self) -> str:
        """Reason for which the folder cannot be written now; empty if it can."""
        probe = self.path / ".probe"
        try:
            write_atomically(probe, "")
            probe.unlink()
        except OSError as error:
            return str(error.strerror)
        return ""

    @property
    def sockets(self) -> Path:
        """A short private folder for ipc sockets, named by a hash of this folder's path."""
        digest = hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"sl-{digest}"

    def remove_sockets(self) -> None:
        """Removes that folder, unless another launcher goes on with the run meanwhile."""
        try:
            with (self.path / ".lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(self.sockets, ignore_errors=True)
        except FileNotFoundError:
            # The run folder is gone.
            shutil.rmtree(self.sockets, ignore_errors=True)
        except OSError:
            return

    def read_result(self) -> Mapping[str, Any] | None:
        """The content of ``result.json``, None while there is none or if it is damaged."""
        try:
            return read_object(self.result, RESULT)
        except ConfigError:
            return None

    @property
    def result_damage(self) -> str:
        """The reason for which ``result.json`` is not read, with its path; empty without one."""
        try:
            read_object(self.result, RESULT)
        except ConfigError as error:
            return str(error) if os.path.lexists(self.result) else ""
        return ""

    def progress_tail(self) -> Tail:
        """Returns a reader of all lines of ``progress.jsonl``; damaged ones are left out."""
        return Tail(self.progress, catch_up_bytes=None, shape=PROGRESS)

    def last_progress(self) -> dict[str, Any]:
        """Returns the newest line of ``progress.jsonl``; empty while there is none."""
        found = Tail(self.progress, shape=PROGRESS).objects()
        return found[-1] if found else {}

    def read_config(self) -> Config:
        """Returns the resolved config of the run; an unchanged file is read once.

        Raises:
            ConfigError: the file cannot be read or is incomplete.
        """
        version = _version(self.config)
        if self._config_read is None or self._config_read[0] != version:
            self._config_read = version, self._load_config()
        return self._config_read[1].copy()

    def _load_config(self) -> Config:
        config = Config.load_file(self.config)
        if missing := [name for name in ("algorithm", *SECTIONS) if name not in config]:
            raise ConfigError(
                f"{self.config} is not the config of a run: it has no {', '.join(missing)}; it "
                "was emptied or cut short: put a copy of it back"
            )
        if wrong := fault(config.to_dict(), _CONFIG):
            raise ConfigError(f"{self.config} is damaged: {wrong}; put a copy of it back")
        return config

    def read_run(self) -> Mapping[str, Any]:
        """Returns the entry ``run`` of the config: launcher, start times, number of the part.

        Empty if no launcher has written one, or the config cannot be read.
        """
        try:
            run = self.read_config().get("run")
        except ConfigError:
            return {}
        return run or {}

    @property
    def launcher(self) -> str:
        """Launcher of the run: ``serial``, ``local``, ``tmux``, ``kubernetes``; empty: unknown."""
        return str(self.read_run().get("launcher", ""))

    def find_modules(self, import_path: Iterable[str | Path]) -> None:
        """Adds these folders and the run's copy of the user's modules to Python's search path.

        They are searched last: a user's folder must not hide the library's own modules.

        Args:
            import_path: ``session_config.import_path``, and additional folders of the user.
        """
        for path in (*map(str, import_path), str(self.code.absolute())):
            if path not in sys.path:
                sys.path.append(path)

    @property
    def over(self) -> bool:
        """True once the status in ``result.json`` is final."""
        result = self.read_result()
        return result is not None and result.get("status") != "running"


def _version(path: Path) -> tuple[int, ...]:
    """Returns numbers that change with the file; empty if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def is_planned(folder: str | Path | None) -> bool:
    """True if there is a run folder, with the addresses of a run."""
    # Not Path.exists, which raises an error for a name that is too long.
    return folder is not None and os.path.exists(RunFolder(folder).addresses)
