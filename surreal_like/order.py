"""What is asked for when a run is begun or resumed, and the config that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from session.config import Config, override
from session.folder import RunFolder
from surreal_like.experiment import read_experiment
from surreal_like.resume import (
    check_checkpoints,
    check_home,
    check_same,
    check_unused,
    reached,
    recorded_config,
    session_changes,
)
from surreal_like.run_folder import experiment_name, newest_path
from surreal_like.watch import Watch

Overrides = Mapping[str, Any] | Sequence[str]


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for.

    Args:
        user: the experiment, before anything is added to it.
        path: run folder; None: ``runs/<name>-<date>-<time>``.
        name: of the experiment.
        launcher: ``serial``, ``local``, ``tmux`` or ``kubernetes``.
        resume: go on with the run in the folder.
        allow_change: keys outside ``session_config`` in which a resumed run may differ.
        started: when the command began, seconds since 1970.
    """

    user: Config
    path: Path | None
    name: str
    launcher: str
    resume: bool
    allow_change: tuple[str, ...]
    started: float


def make_order(  # noqa: PLR0913 - what a command line may say
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
) -> Order:
    """Reads an experiment as it was asked for.

    Args:
        experiment: YAML or JSON file; None: ``algorithm`` and ``env`` say it all, or, with
            ``resume``, the config that the run was made with.
        settings: dotted key -> value, where it is not None: they come after the overrides.
        launcher, started, resume, allow_change: as of :class:`Order`.
        overrides: ``{"section.key": value}`` or ``["section.key=value"]``.
        folder: run folder; None: ``runs/<name>-<date>-<time>``.
        algorithm, env: instead of the experiment's.

    Raises:
        ConfigError: a setting is wrong.
        UsageError: there is no run to resume.
    """
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
    return Order(user, path, name, launcher, resume, tuple(allow_change), started)


def as_overrides(overrides: Overrides) -> list[str]:
    """Overrides as ``key=value`` words; a mapping's values become YAML."""
    if not isinstance(overrides, Mapping):
        return list(overrides)
    return [override(key, value) for key, value in overrides.items()]


def resolve_order(
    order: Order, resolve: Callable[[Config], Config], folder: RunFolder, watch: Watch, clock: float
) -> Config:
    """The config of this part of the run, its times, its launcher and its folder included.

    Args:
        order: what was asked for.
        resolve: completes a config.
        folder: the run folder, locked.
        watch: is told what a resumed run takes over.
        clock: when the run begins, on the clock of its components.
    """
    before = recorded_config(folder) if order.resume else None
    config = resolve(order.user)
    run = {"started": clock, "first_started": clock, "seconds_before": 0.0}
    if before is not None:
        check_home(before, order.launcher, folder)
        taken = check_same(before, config, folder, order.allow_change)
        taken |= session_changes(before, config)
        for path, (was, now) in taken.items():
            watch.note(f"changed: {path} was {was}, is {now}")
        if note := check_checkpoints(folder):
            watch.note(note)
        check_unused(config, folder)
        earlier = before.get("run") or run
        run["first_started"] = earlier["first_started"]
        run["part"] = earlier.get("part", 1) + 1
        run["seconds_before"] = reached(folder, "wall_seconds")
    config.session_config.folder = str(folder.path)
    config["run"] = {**run, "launcher": order.launcher}
    return config
