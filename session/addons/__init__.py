"""Add-ons: rooms that the core does not name, each declared by one object of plain data.

``main/addons/__init__.py`` names the modules that declare them. Texts such as
``module:function`` are imported at their first use.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from session.errors import UsageError
from session.lazy import import_own

_URL = re.compile(r"[a-z][a-z0-9+.-]*://")


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Args:
        name: word on the command line.
        group: heading in the help page.
        usage: main arguments.
        summary: purpose, in one line.
        module: module with ``run(argv) -> exit code``; imported when the command is used.
    """

    name: str
    group: str
    usage: str
    summary: str
    module: str


@dataclass(frozen=True, slots=True)
class Launcher:
    """Facts about a launcher.

    Args:
        name: name on command lines, and in ``run.launcher`` of a config.
        cluster: ``module:Class`` that launches detached runs; empty: it has none.
        control: ``module:Class`` that controls its runs from any process; empty:
            :class:`session.launchers.handle.RunHandle`.
        supervisor: ``module:Class`` that supervises a detached run in a process of this machine.
        check: ``module:function`` that raises UsageError if a needed program is missing here.
        plan: ``module:function`` that prints what ``plan --on`` shows of it; empty: the table.
        format: word of ``plan --format`` for what that function writes.
        advice: ``module:function`` of (config, names of components) that returns notes for a
            launch.
        idle: ``module:function`` of (config, names of components) that describes what a run that
            is over still reserves.
        attached: runs can also be a part of the process that starts them.
        one_thread: all components share one thread, and a clock that counts rounds.
        remote: Components, checkpoints and devices are on another machine.
        attach: ``module:function`` of a run's handle that shows it in this terminal; empty: the
            live table does.
    """

    name: str
    cluster: str = ""
    control: str = ""
    supervisor: str = ""
    check: str = ""
    plan: str = ""
    format: str = ""
    advice: str = ""
    idle: str = ""
    attached: bool = False
    one_thread: bool = False
    remote: bool = False
    attach: str = ""


@dataclass(frozen=True, slots=True)
class AddOn:
    """Everything that an add-on adds to the core.

    Args:
        keys: dotted section of the config -> ``module:SECTION`` with its keys.
        commands: commands of ``surreal-like``.
        launchers: launchers.
        algorithms: name -> :class:`surreal_like.algorithm.catalog.Registration`.
        acts: kinds of components that step environments as agents do; ``session_config`` has a
            section of each, with ``num``.
        telemetry: kinds of components that end last, and without which a run goes on.
        hooks: name of a hook -> ``module:function``; the core calls them by :func:`hooks`:
            ``check`` (config, replay class, synchronous, starts here) refuses a config;
            ``specs`` (user's config, config) returns specs of an environment, or None;
            ``ports`` (config) yields :class:`ServedPort`; ``components`` (config, ends of replay
            shards, shared ends) yields components; ``pages`` (session config) returns names of
            pages; ``ps_ends`` (session config) and ``ps_service`` (context) extend the parameter
            server; ``launched`` (folder) returns notes after a launch; ``agent`` (context, agent,
            learner class) prepares an agent that trains; ``view`` (replay, seed) returns a view in
            place of that of its kind, or None; ``pods`` (session config) changes
            the settings of a run in a cluster; ``tokens`` (folder) returns tokens of clients;
            ``token`` (folder of keys, uses) returns a token by which other machines join;
            ``fetch`` (URL, folder or None) copies a run from a URL and returns its folder;
            ``runs_at`` (URL) yields URL, time of the copy and folder of the runs below a URL;
            ``findings`` (view of a run) describes in one line what limits it and what is odd;
            ``tuning_service`` (tuning) returns the service that admits workers, and the command to
            join; ``work`` (admission, slots, report, interrupts, watch) runs trials of another;
            ``reporter`` (context, folder, times) returns what reports a run that is one of many,
            or None; ``plan`` (arguments of ``plan``) prints a plan of its own and returns the exit
            code, or None; ``open`` and ``facts`` (folder) and ``page`` (handle, as_json) are for
            commands on folders of tunings.
    """

    keys: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[Command, ...] = ()
    launchers: tuple[Launcher, ...] = ()
    algorithms: Mapping[str, Any] = field(default_factory=dict)
    acts: tuple[str, ...] = ()
    telemetry: tuple[str, ...] = ()
    hooks: Mapping[str, str] = field(default_factory=dict)


class ServedPort(NamedTuple):
    """A port of this machine on which a component will listen for programs from outside.

    Args:
        key: setting that names the first such port.
        component: name of the component.
        host: address.
        port: number.
    """

    key: str
    component: str
    host: str
    port: int


def load(home: str) -> Any:
    """Imports ``module:name``."""
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(module), name)


@cache
def add_ons() -> tuple[AddOn, ...]:
    """Returns the add-ons that ``main/addons/__init__.py`` names."""
    return tuple(load(f"{module}:ADD_ON") for module in import_own("main.addons").MODULES)


def hooks(name: str) -> Iterator[Any]:
    """Yields the functions that add-ons give for a hook, in the order of their names there."""
    for each in add_ons():
        if name in each.hooks:
            yield load(each.hooks[name])


def is_url(place: object) -> bool:
    """Returns True for a URL, such as that of a run on object storage."""
    return _URL.match(str(place)) is not None


def fetch(url: str, folder: Path | None = None) -> Path:
    """Copies a run from a URL; returns its folder.

    Args:
        url: URL of the run.
        folder: new folder; None: a temporary one, which is removed when this process ends.

    Raises:
        UsageError: there is no run, or this installation cannot fetch one.
    """
    path: Path = _of_mirrors("fetch", url)(url, folder)
    return path


def runs_at(url: str) -> Iterator[tuple[str, float, Any]]:
    """Yields the runs at a URL or below it: URL, time of the copy [s], folder with their facts.

    Raises:
        UsageError: this installation cannot fetch them.
    """
    yield from _of_mirrors("runs_at", url)(url)


def _of_mirrors(hook: str, url: str) -> Any:
    found = next(hooks(hook), None)
    if found is None:
        raise UsageError(f"{url} is a URL, but the add-on of mirrors is not here")
    return found


def acting_kinds() -> tuple[str, ...]:
    """Returns the kinds of components, besides agents, that step environments."""
    return tuple(kind for each in add_ons() for kind in each.acts)


def telemetry_kinds() -> tuple[str, ...]:
    """Returns the kinds of components that end last, and without which a run goes on."""
    core = ("tensorplex", "loggerplex", "tensorboard")
    return (*core, *(kind for each in add_ons() for kind in each.telemetry))


def count_acting(session_config: Any) -> int:
    """Returns the number of processes that step environments: agents, and those of add-ons."""
    others = sum(session_config[kind].num for kind in acting_kinds())
    return int(session_config.agent.num + others)
