"""Requests of users to begin or resume a run, and the configs that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from session.config import Config, override
from session.errors import UsageError
from session.folder import RunFolder
from surreal_like.code_snapshot import own_file
from surreal_like.experiment import read_experiment
from surreal_like.named_checkpoints import checkpoint_of, go_back_to, start_with, whole_checkpoint
from surreal_like.observer import RunObserver
from surreal_like.resume import (
    began_with,
    check_checkpoints,
    check_home,
    check_same,
    check_unused,
    reached,
    recorded_config,
    reopen,
    session_changes,
)
from surreal_like.run_folder import experiment_name, newest_path

Overrides = Mapping[str, Any] | Sequence[str]

_START_FROM = "session_config.checkpoint.start_from"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The user's request.

    Args:
        user: the experiment, without additions.
        path: run folder; None: ``runs/<name>-<date>-<time>``.
        name: of the experiment.
        launcher: ``serial``, ``local``, ``tmux`` or ``kubernetes``.
        resume: continue the run in the folder.
        allow_change: keys outside ``session_config`` in which a resumed run may differ.
        checkpoint: from which a resumed run continues: ``best``, ``latest`` or a number.
        started: start time of the command, seconds since 1970.
    """

    user: Config
    path: Path | None
    name: str
    launcher: str
    resume: bool
    allow_change: tuple[str, ...]
    checkpoint: str
    started: float


def make_request(  # noqa: PLR0913 - all arguments of a command line
    experiment: str | Path | None,
    settings: Mapping[str, Any],
    *,
    launcher: str,
    started: float,
    overrides: Overrides = (),
    folder: str | Path | None = None,
    algorithm: str | None = None,
    env: str | None = None,
    resume: bool = False,
    allow_change: Iterable[str] = (),
    checkpoint: str | int | None = None,
    start_from: str | Path | None = None,
) -> RunRequest:
    """Reads an experiment with the user's settings.

    Args:
        experiment: YAML or JSON file; None: only ``algorithm`` and ``env`` are given, or, with
            ``resume``, the config of the run is used.
        settings: dotted key -> value or None; applied after the overrides unless None.
        launcher, started, resume, allow_change: as in :class:`RunRequest`.
        checkpoint: as in :class:`RunRequest`; None: ``latest``.
        start_from: checkpoint of another run, see :func:`checkpoint_of`; its networks initialize a
            new run; None: ``session_config.checkpoint.start_from``.
        overrides: ``{"section.key": value}`` or ``["section.key=value"]``.
        folder: run folder; None: ``runs/<name>-<date>-<time>``.
        algorithm, env: replace the experiment's.

    Raises:
        ConfigError: a setting is wrong.
        UsageError: the run to resume or the checkpoint to start from does not exist.
    """
    if checkpoint is not None and not resume:
        raise UsageError(
            "--checkpoint belongs to --resume; a new run starts from another's: --from RUN:best"
        )
    if start_from is not None and resume:
        raise UsageError("--from begins a new run; with --resume choose with --checkpoint")
    # A run's folder has the networks that it began with: to resume it, the other run is not needed.
    settings = {**settings, _START_FROM: "" if resume else _text(start_from)}
    given = {key: value for key, value in settings.items() if value is not None}
    path = Path(folder) if folder is not None else None
    source = experiment
    if source is None and algorithm is None and resume:
        path = path or newest_path(None)
        recorded_config(RunFolder(path))
        source = path / "config.yaml"
    words = [*as_overrides(overrides), *as_overrides(given)]
    user = read_experiment(source, words, algorithm=algorithm, env_name=env)
    name = experiment_name(experiment, user)
    if path is None and resume:
        path = newest_path(name)
    if folder is None and not resume and user.session_config.get("folder"):
        path = Path(user.session_config.folder)
    if source_run := user.session_config.get("checkpoint", {}).get("start_from"):
        user.session_config.checkpoint.start_from = str(checkpoint_of(source_run).resolve())
    if launcher == "kubernetes" and (source_run or checkpoint is not None):
        raise UsageError(
            "checkpoints of a run on Kubernetes are on a volume of the cluster: --from and "
            "--checkpoint are for runs on this machine"
        )
    chosen = "latest" if checkpoint is None else str(checkpoint)
    return RunRequest(user, path, name, launcher, resume, tuple(allow_change), chosen, started)


def _text(value: str | Path | None) -> str | None:
    return None if value is None else str(value)


def as_overrides(overrides: Overrides) -> list[str]:
    """Returns overrides as ``key=value`` words; a mapping's values become YAML."""
    if not isinstance(overrides, Mapping):
        return list(overrides)
    return [override(key, value) for key, value in overrides.items()]


def resolve_request(
    order: RunRequest,
    resolve: Callable[[Config], Config],
    folder: RunFolder,
    watch: RunObserver,
    clock: float,
) -> Config:
    """Returns the config of this part of the run, including its times, launcher and folder.

    Args:
        order: the user's request.
        resolve: completes a config.
        folder: the run folder, locked.
        watch: receives reports about what a resumed run takes over.
        clock: start time of the run, on the clock of its components.
    """
    before = recorded_config(folder) if order.resume else None
    config = resolve(_with_code(order.user, folder) if before is not None else order.user)
    config.session_config.import_path = list(order.user.session_config.get("import_path", []))
    if before is not None:
        _name_as_before(config, before, folder)
    run = {"started": clock, "first_started": clock, "seconds_before": 0.0}
    if before is not None:
        check_home(before, order.launcher, folder)
        taken = check_same(before, config, folder, order.allow_change)
        config.session_config.checkpoint.start_from = began_with(before)
        taken |= session_changes(before, config)
        for path, (was, now) in taken.items():
            watch.note(f"changed: {path} was {was}, is {now}")
        if order.checkpoint != "latest":
            whole_checkpoint(folder, order.checkpoint)
        elif note := check_checkpoints(folder):
            watch.note(note)
        check_unused(config, folder)
        earlier = before.get("run") or run
        run["first_started"] = earlier["first_started"]
        run["part"] = earlier.get("part", 1) + 1
        run["seconds_before"] = reached(folder, "wall_seconds")
    config.session_config.folder = str(folder.path)
    config["run"] = {**run, "launcher": order.launcher}
    return config


def begin(order: RunRequest, config: Config, folder: RunFolder, watch: RunObserver) -> None:
    """Prepares a run folder for the start of its components.

    Args:
        order: the user's request.
        config: its resolved config.
        folder: the run folder, locked.
        watch: receives reports about checkpoints that are set aside.
    """
    settings = config.session_config.checkpoint
    if order.resume:
        reopen(folder)
        if order.checkpoint != "latest":
            path = whole_checkpoint(folder, order.checkpoint)
            go_back_to(folder, path, watch.note, keep_history=settings.keep_history)
            watch.note(f"going on from checkpoint {path}")
    elif settings.start_from:
        start_with(folder, checkpoint_of(settings.start_from))
        watch.note(f"starting with the networks of {settings.start_from}")


def _with_code(user: Config, folder: RunFolder) -> Config:
    """Returns the experiment of a run; files of its author that are gone are found in ``code/``."""
    user = user.copy()
    there = [path for path in user.session_config.get("import_path", []) if Path(path).is_dir()]
    code = [str(folder.code.absolute())] if folder.code.is_dir() else []
    user.session_config.import_path = [*there, *code]
    file = own_file(user)
    if file is not None and not file.is_file() and (folder.code / file.name).is_file():
        _, colon, name = user.algorithm.partition(":")
        user.algorithm = f"{folder.code.absolute() / file.name}{colon}{name}"
    return user


def _name_as_before(config: Config, before: Config, folder: RunFolder) -> None:
    """Restores the recorded name of an algorithm that was loaded from ``code/``."""
    file = own_file(config)
    if file is not None and file == folder.code.absolute() / file.name:
        config.algorithm = before.algorithm
        recorded = {**(before.get("recorded") or {}), **config["recorded"]}
        config["recorded"] = {**recorded, "fingerprint": config.fingerprint()}
