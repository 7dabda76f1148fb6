"""The request of a user to begin or resume a run, and the config that follows from it."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from session.addons.hooks import fetch, is_url
from session.config.config import Config, apply_overrides, explain
from session.config.defaults import BASE_CONFIG
from session.config.named_code import (
    Overrides,
    as_overrides,
    check_no_import,
    in_snapshot,
    place_of,
    split_place,
)
from session.errors import ConfigError, UsageError
from session.folder import RUNS, RunFolder
from session.launchers.registry import launcher_of
from session.process.clock import Moment
from session.process.component import Topology
from surreal_like.algorithm.catalog import name_of
from surreal_like.data.policy_names import learning_policies
from surreal_like.experiment.checkpoints import (
    checkpoint_of,
    go_back_to,
    only_policy,
    start_with,
    whole_checkpoint,
)
from surreal_like.experiment.read import check_rows_come, read_experiment
from surreal_like.experiment.resolve import check_import_path, defaults, extend_user
from surreal_like.experiment.resolve_process import resolve_elsewhere
from surreal_like.experiment.shipped import is_experiment
from surreal_like.experiment.topology import make_topology
from surreal_like.experiment.user_code import from_snapshot, keep_code
from surreal_like.run.folder import experiment_name, held, newest_path, put_back_if_refused, tuned
from surreal_like.run.observer import RunObserver
from surreal_like.run.resume import (
    began_with,
    check_checkpoints,
    check_home,
    check_same,
    check_unused,
    find_edited,
    reached,
    recorded_config,
    reopen,
    session_changes,
)

# Field of a request -> setting; it replaces that of the overrides.
_SETTINGS = {
    "seed": "session_config.seed",
    "agents": "session_config.agent.num",
    "evals": "session_config.evaluator.num",
    "host": "session_config.launcher.host",
    "snapshot": "session_config.launcher.snapshot",
}
# Source of a value that neither the algorithm, the file nor the command line gives.
DEFAULT = "default"
_INSECURE = "session_config.security.insecure"
_START_FROM = "session_config.checkpoint.start_from"
_PARTS = "session_config.checkpoint.parts"
# What a tuning writes when a trial takes over another one.
_EXPLOITED = ("generation", "load_from", "launched_as", "settings")
# Where a config names code of the user: section, key.
_OWN = (("", "algorithm"), ("", "policies_plan"), ("learner_config", "execution_plan"))


@dataclass(frozen=True, slots=True)
class Plan:
    """The run that ``train`` would start.

    Args:
        config: the resolved experiment.
        topology: the components, in start order.
    """

    config: Config
    topology: Topology

    def write(self, path: Path) -> None:
        """Writes the run folder for components that are started by hand.

        Raises:
            UsageError: the folder is not empty.
        """
        # Not at the top: it imports ZeroMQ, which delays the start of a run in this process.
        from session.launchers.launcher import make_addresses, protect, write_run_files

        with held(path) as folder:
            self.config.session_config.folder = str(path)
            keep_code(self.config, folder)
            protect(folder, self.config)
            addresses = make_addresses(self.topology, self.config, folder)
            write_run_files(folder, self.topology, addresses)
            self.config.dump_file(folder.config)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Request of a user for a run, on a command line or by keywords.

    Args:
        launcher: ``serial``, ``local``, ``tmux``, ``kubernetes``, ``slurm`` or ``ray``.
        snapshot: ``session_config.launcher.snapshot``.
        started: start time of the command, seconds since 1970.
        trial: name of the trial that the run is in a tuning; empty: none.
        run_id: id under which trackers know a new run; empty: any.

    The others are those of :func:`surreal_like.train` and :func:`surreal_like.launch`. A run to
    resume that is named by a URL is fetched at once, into ``folder``.

    Raises:
        UsageError: fields that exclude each other, or there is no run to resume.
    """

    experiment: str | Path | None = None
    launcher: str = "local"
    overrides: Overrides = ()
    folder: str | Path | None = None
    seed: int | None = None
    agents: int | None = None
    evals: int | None = None
    algorithm: str | type[Any] | None = None
    env: str | Callable[..., Any] | None = None
    host: str | None = None
    insecure: bool = False
    snapshot: bool | None = None
    resume: bool = False
    allow_change: Iterable[str] = ()
    checkpoint: str | int | None = None
    start_from: str | Path | None = None
    parts: Iterable[str] = ()
    started: float = field(default_factory=time.time)
    trial: str = ""
    run_id: str = ""

    def __post_init__(self) -> None:
        check_no_import("starts a run")
        if self.env is not None and not isinstance(self.env, str):
            object.__setattr__(self, "env", place_of(self.env, "env"))
        if self.algorithm is not None:
            object.__setattr__(self, "algorithm", name_of(self.algorithm))
        if self.checkpoint is not None and not self.resume:
            raise UsageError(
                "--checkpoint belongs to --resume; a new run starts from another's: --from RUN:best"
            )
        if self.start_from is not None and self.resume:
            raise UsageError("--from begins a new run; with --resume choose with --checkpoint")
        object.__setattr__(
            self, "parts", [self.parts] if isinstance(self.parts, str) else [*self.parts]
        )
        if self.parts and self.start_from is None:
            raise UsageError("--parts belongs to --from RUN: it names parts of that run's networks")
        given = str(self.experiment or "")
        if os.path.isdir(given) and not is_experiment(given):
            raise UsageError(
                f"{self.experiment} is a folder, not an experiment; a run is resumed by "
                "--resume --folder RUN"
            )
        if is_url(given):
            self._fetch(given)
        if self.host and launcher_of(self.launcher).one_thread:
            raise UsageError(
                "--on serial is one thread, which no machine can join: leave --host out"
            )
        if self._as_recorded and self.folder is None:
            # Decided once: another run may begin before the config is read.
            object.__setattr__(self, "folder", newest_path(None))

    def _fetch(self, url: str) -> None:
        """Fetches the run to resume, whose folder and experiment it then has."""
        if not self.resume:
            raise UsageError(f"{url} is the URL of a run, which is resumed by --resume {url}")
        path = Path(self.folder or RUNS / url.rstrip("/").rpartition("/")[2])
        object.__setattr__(self, "folder", fetch(url, path))
        object.__setattr__(self, "experiment", None)

    @property
    def _as_recorded(self) -> bool:
        """True if the experiment is that of the run which is resumed."""
        return self.resume and self.experiment is None and self.algorithm is None

    @property
    def words(self) -> list[str]:
        """All settings as ``key=value``, in the order in which they apply."""
        chosen = {key: getattr(self, name) for name, key in _SETTINGS.items()}
        chosen[_INSECURE] = self.insecure or None
        # A run's folder has the networks that it began with: to resume it, the other run is not
        # needed.
        chosen[_START_FROM] = "" if self.resume else self.start_from and str(self.start_from)
        chosen[_PARTS] = list(self.parts) or ([] if self.resume else None)
        given = {key: value for key, value in chosen.items() if value is not None}
        return [*as_overrides(self.overrides), *as_overrides(given)]

    def read(self) -> Config:
        """Reads the experiment with the user's settings, without defaults.

        Raises:
            ConfigError: a setting is wrong.
            UsageError: the run to resume does not exist.
        """
        source = self.experiment
        if self._as_recorded:
            folder = RunFolder(self.folder or "")
            recorded_config(folder)
            source = folder.config
        with self._naming_source():
            return read_experiment(source, self.words, algorithm=self.algorithm, env_name=self.env)

    @contextmanager
    def _naming_source(self) -> Iterator[None]:
        """Adds the path of a recorded config to an error in it: the user has not written it."""
        try:
            yield
        except ConfigError as error:
            path = RunFolder(self.folder or "").config
            given = [str(path), *(word.split("=")[0] for word in self.words)]
            if not self._as_recorded or any(each in str(error) for each in given):
                raise
            raise ConfigError(f"{path}: {error}; the file was changed or damaged") from None

    def read_start(self) -> Config:
        """Reads the experiment, with the absolute path of the checkpoint that it starts from.

        Raises:
            ConfigError, UsageError: as :meth:`read`; there is no such checkpoint.
        """
        user = self.read()
        source_run = user.session_config.get("checkpoint", {}).get("start_from")
        if source_run:
            user.session_config.checkpoint.start_from = str(checkpoint_of(source_run).resolve())
        if launcher_of(self.launcher).remote and (source_run or self.checkpoint is not None):
            raise UsageError(
                "checkpoints of a run on Kubernetes are on a volume of the cluster: --from and "
                "--checkpoint are for runs on this machine"
            )
        return user

    @property
    def resumed(self) -> RunFolder:
        """The folder of the run to resume.

        Raises:
            ConfigError: a setting is wrong.
            UsageError: the run does not exist.
        """
        folder = RunFolder(self.folder or newest_path(self.name))
        recorded_config(folder)
        return folder

    @property
    def name(self) -> str:
        """Name of the experiment, with which the folders of its runs begin."""
        return experiment_name(self.experiment, self.read())

    def resolve(self) -> Plan:
        """Returns the run that would start; if its environment is not installed, it needs specs.

        Raises:
            ConfigError: a setting is wrong.
            MissingExtra: the environment is not installed, and its specs are not given.
        """
        user = self.read()
        if not launcher_of(self.launcher).remote:
            check_import_path(user.session_config.get("import_path", []))
        config = resolve_elsewhere(user, must_be_installed=False)
        self._check_start(config)
        return Plan(config, make_topology(config))

    def _check_start(self, config: Config) -> None:
        """Refuses what the defaults of an algorithm, or the launcher, do not allow.

        Raises:
            ConfigError: no rows would come.
            UsageError: several learners would not be processes of one machine.
        """
        check_rows_come(config.session_config)
        where, ranks = launcher_of(self.launcher), config.session_config.learner.num
        if ranks > 1 and (where.one_thread or where.remote):
            raise UsageError(
                f"session_config.learner.num is {ranks}, but --on {self.launcher} does not start "
                "several learners on one machine: use local or tmux, or set it to 1"
            )
        if ranks > 1 and self.trial:
            raise UsageError(
                f"session_config.learner.num is {ranks}, but a trial of a tuning has one learner, "
                "which may take over another trial: set it to 1"
            )

    def explain(self) -> dict[str, tuple[Any, str]]:
        """Returns dotted key -> value, and its source: default, algorithm, file or command line.

        The algorithm is imported into this process.

        Raises:
            ConfigError: a setting is wrong.
        """
        user, chosen = self.read(), Config({})
        if self.algorithm is not None:
            chosen.algorithm = self.algorithm
        if self.env is not None:
            chosen.env_config = {"env_name": self.env}
        default = defaults(user.algorithm)
        extend_user(user, default.copy().extend(BASE_CONFIG, abstract=True))
        return explain(
            [
                (DEFAULT, BASE_CONFIG),
                (f"algorithm {user.algorithm}", default),
                (str(self.experiment), user),
                ("command line", apply_overrides(chosen, self.words)),
            ]
        )

    @contextmanager
    def held(self, user: Config, watch: RunObserver) -> Iterator[RunFolder]:
        """Locks the run folder; afterwards removes a new one in which no run was begun.

        Args:
            user: user from :meth:`read_start`.
            watch: receives the path.

        Raises:
            UsageError: the folder is in use, or there is no run to resume.
        """
        name, path = experiment_name(self.experiment, user), self.folder
        if path is None and self.resume:
            path = newest_path(name)
        elif path is None:
            path = user.session_config.get("folder") or None
        if path is not None and not self.trial and tuned(Path(path).parent):
            raise UsageError(
                f"{path} belongs to a tuning that runs; stop that first, or begin another run "
                f"with its networks: --from {path}"
            )
        with held(Path(path) if path else None, name=name, resume=self.resume) as folder:
            watch.prepare(folder.path)
            yield folder

    @contextmanager
    def prepared(
        self,
        user: Config,
        resolve: Callable[[Config], Config],
        folder: RunFolder,
        watch: RunObserver,
        clock: float,
    ) -> Iterator[Config]:
        """Resolves the experiment and prepares the run folder for the start of its components.

        If the block raises an error, the files in the folder are as before.

        Args:
            user: user from :meth:`read_start`.
            resolve: completes a config.
            folder: the run folder, locked.
            watch: receives reports about what a resumed run takes over or sets aside.
            clock: start time of the run, on the clock of its components.
        """
        # Imported late: it imports numpy, and at this point torch is already being imported in
        # parallel.
        from surreal_like.experiment.machine import check_memory, check_ports

        config = self._resolve(user, resolve, folder, watch, clock)
        if not launcher_of(self.launcher).remote:
            check_memory(config)
            check_ports(config)
        with put_back_if_refused(config, folder):
            self._begin(config, folder, watch)
            keep_code(config, folder)
            yield config

    def _resolve(
        self,
        user: Config,
        resolve: Callable[[Config], Config],
        folder: RunFolder,
        watch: RunObserver,
        clock: float,
    ) -> Config:
        """Returns the config of this part of the run, with its times, launcher and folder."""
        before = recorded_config(folder) if self.resume else None
        with self._naming_source():
            config = resolve(_with_code(user, folder) if before is not None else user)
        self._check_start(config)
        config.session_config.import_path = list(user.session_config.get("import_path", []))
        run: dict[str, Any] = {"started": clock, "first_started": clock, "seconds_before": 0.0}
        # The counted clock of a serial run begins at 0.
        run |= Moment.at(clock)._asdict() if clock else {}
        # Trackers know the run by it, wherever its folder is.
        run["id"] = self.run_id or secrets.token_hex(6)
        if before is not None:
            _name_as_before(config, before, folder)
            self._check_resumed(before, config, folder, watch)
            from session.process.context import run_part  # imports ZeroMQ

            earlier = before.get("run") or run
            run["first_started"] = earlier.get("first_started") or clock
            run["part"] = run_part(before) + 1
            run["id"] = earlier.get("id")
            run["seconds_before"] = reached(folder, "wall_seconds")
            run |= {name: earlier[name] for name in _EXPLOITED if name in earlier}
        config.session_config.folder = str(folder.path)
        config["run"] = {**run, "launcher": self.launcher}
        if self.trial:
            config["run"]["trial"] = self.trial
        return config

    def _check_resumed(
        self, before: Config, config: Config, folder: RunFolder, watch: RunObserver
    ) -> None:
        check_home(before, self.launcher, folder)
        if note := find_edited(before, folder):
            watch.on_message(note)
        taken = check_same(before, config, folder, self.allow_change)
        config.session_config.checkpoint |= began_with(before)
        taken |= session_changes(before, config)
        for path, (was, now) in taken.items():
            watch.on_message(f"changed: {path} was {was}, is {now}")
        if self._goes_back:
            name = only_policy(config, f"run {folder}", "--checkpoint")
            whole_checkpoint(folder, str(self.checkpoint), name)
        elif note := check_checkpoints(folder, learning_policies(before)):
            watch.on_message(note)
        # The learner of a trial that has used its budget ends at once, as the tuning expects.
        if not self.trial:
            check_unused(config, folder)

    @property
    def _goes_back(self) -> bool:
        """True if a resumed run continues from an earlier checkpoint."""
        return self.checkpoint is not None and str(self.checkpoint) != "latest"

    def _begin(self, config: Config, folder: RunFolder, watch: RunObserver) -> None:
        """Sets the status to running and the checkpoint from which the learner begins."""
        settings = config.session_config.checkpoint
        if self.resume:
            reopen(folder)
            if self._goes_back:
                name = only_policy(config, f"run {folder}", "--checkpoint")
                path = whole_checkpoint(folder, str(self.checkpoint), name)
                kept = settings.keep_history
                go_back_to(folder, path, watch.on_message, keep_history=kept, policy=name)
                watch.on_message(f"going on from checkpoint {path}")
        elif settings.start_from:
            parts = settings.parts
            name = only_policy(config, "the experiment", "--from")
            start_with(folder, checkpoint_of(settings.start_from), policy=name, parts=parts)
            what = ", ".join(parts) or "the networks"
            watch.on_message(f"starting with {what} of {settings.start_from}")


def _with_code(user: Config, folder: RunFolder) -> Config:
    """Returns the experiment of a run; files of its author that are gone are found in ``code/``."""
    user = user.copy()
    there = [path for path in user.session_config.get("import_path", []) if os.path.isdir(path)]
    code = [str(folder.code.absolute())] if folder.code.is_dir() else []
    user.session_config.import_path = [*there, *code]
    here = RunFolder(folder.path.absolute())
    for section, key in _OWN:
        place = (user[section] if section else user).get(key)
        there_now = os.path.isfile(Path(split_place(place or "")[0]).expanduser())
        if place and (from_snapshot() or not there_now):
            (user[section] if section else user)[key] = in_snapshot(place, here)
    return user


def _name_as_before(config: Config, before: Config, folder: RunFolder) -> None:
    """Restores the recorded names of what was loaded from ``code/``."""
    found = False
    for section, key in _OWN:
        now, then = (each[section] if section else each for each in (config, before))
        path = Path(split_place(now.get(key) or "")[0])
        if path == folder.code.absolute() / path.name:
            now[key], found = then[key], True
    if found:
        recorded = {**(before.get("recorded") or {}), **config["recorded"]}
        config["recorded"] = {**recorded, "fingerprint": config.fingerprint()}
