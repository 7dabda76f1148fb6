"""Add-ons: rooms that the core does not name, each declared by one object of plain data.

``main/addons/__init__.py`` names the modules that declare them. Texts such as
``module:function`` are imported at their first use.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, reduce
from operator import getitem
from typing import Any, NamedTuple

from session.lazy import import_own


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Args:
        name: word on the command line.
        group: heading in the help page.
        usage: main arguments.
        summary: purpose, in one line.
        home: ``module:function`` of words to an exit code; imported when the command is used.
    """

    name: str
    group: str
    usage: str
    summary: str
    home: str


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
class SinkKind:
    """One name of ``session_config.tensorplex.sinks``.

    Args:
        place: ``module:Class``, a :class:`session.tensorplex.sinks.sink.Sink`.
        packages: packages that it imports; the extra with its name installs them.
        file: file of the run folder that it appends to; empty: it has none.
    """

    place: str
    packages: tuple[str, ...] = ()
    file: str = ""


@dataclass(frozen=True, slots=True)
class Opponent:
    """A kind of policies that do not learn, but play parameters of one that does.

    Args:
        key: key of ``policies.NAME`` that names the policy which learns.
        title: form of a description, such as ``snapshots of {}``.
        keys: ``module:KEYS`` with the keys of such a policy, ``key`` first.
        make: ``module:function`` of (name, settings, function of a seed that builds an agent,
            process or trained policies) that returns what acts.
        learner: ``module:Class`` of (folder of checkpoints, settings, function that notes a damaged
            file); ``restore(learner)`` and ``tick(learner)`` are called beside the learner of the
            other policy.
    """

    key: str
    title: str
    keys: str
    make: str
    learner: str


@dataclass(frozen=True, slots=True)
class AddOn:
    """Everything that an add-on adds to the core.

    Args:
        keys: dotted section, or key, of the config -> ``module:SECTION`` with its keys.
        code: those of its dotted keys that may name code of the user.
        commands: commands of ``surreal-like``.
        launchers: launchers.
        algorithms: name -> :class:`surreal_like.algorithm.catalog.Registration`.
        elsewhere: name of an algorithm in other libraries -> settings that do the same here.
        parts: name in ``learner_config.parts`` -> ``module:function`` of the learner and the
            part's arguments, which returns an operator of batches.
        replays: name in ``learner_config.replay.type`` -> ``module:Class``, a
            :class:`surreal_like.replay.replay.Replay`.
        acts: kinds of components that step environments as agents do; ``session_config`` has a
            section of each, with ``num``.
        feeds: keys of ``session_config``; one that is set gives a run rows without any steps of an
            environment.
        telemetry: kinds of components that end last, and without which a run goes on.
        engines: name of an engine of machines -> ``module:Class``, a
            :class:`session.addons.engines.machines.Machines`.
        sinks: name of a sink of metrics -> its kind.
        opponents: kinds of policies that play parameters of another one.
        vectors: value of ``env_config.vector`` -> ``module:Class`` that steps N environments, made
            as :func:`surreal_like.env.vector.make_vector_env` makes it.
        environments: prefix of ``env_config.env_name`` -> ``module:Class``, an
            :class:`surreal_like.env.kinds.EnvironmentKind`.
        hooks: name of a hook of :mod:`session.addons.hooks` -> ``module:function``.
        needs: names of the add-ons that it imports; those of its folders are its own.
        files: files and folders that are its own beside them, from the top of the repository:
            entry modules, configs, notebooks.
    """

    keys: Mapping[str, str] = field(default_factory=dict)
    code: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()
    launchers: tuple[Launcher, ...] = ()
    algorithms: Mapping[str, Any] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)
    replays: Mapping[str, str] = field(default_factory=dict)
    acts: tuple[str, ...] = ()
    feeds: tuple[str, ...] = ()
    telemetry: tuple[str, ...] = ()
    engines: Mapping[str, str] = field(default_factory=dict)
    sinks: Mapping[str, SinkKind] = field(default_factory=dict)
    opponents: tuple[Opponent, ...] = ()
    vectors: Mapping[str, str] = field(default_factory=dict)
    environments: Mapping[str, str] = field(default_factory=dict)
    hooks: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


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
def add_ons() -> Mapping[str, AddOn]:
    """Returns name -> add-on, as ``main/addons/__init__.py`` names them."""
    modules = import_own("main.addons").MODULES
    return {module.split(".")[-2]: load(f"{module}:ADD_ON") for module in modules}


def opponents() -> tuple[Opponent, ...]:
    """Returns the kinds of policies that play parameters of another one."""
    return tuple(kind for each in add_ons().values() for kind in each.opponents)


def collect(table: str) -> dict[str, Any]:
    """Returns the entries of a table, a field of :class:`AddOn`, of all add-ons."""
    return {
        name: entry for each in add_ons().values() for name, entry in getattr(each, table).items()
    }


def acting_kinds() -> tuple[str, ...]:
    """Returns the kinds of components, besides agents, that step environments."""
    return tuple(kind for each in add_ons().values() for kind in each.acts)


def telemetry_kinds() -> tuple[str, ...]:
    """Returns the kinds of components that end last, and without which a run goes on."""
    core = ("tensorplex", "loggerplex", "tensorboard")
    return (*core, *(kind for each in add_ons().values() for kind in each.telemetry))


def list_sinks() -> dict[str, SinkKind]:
    """Returns name -> sink of metrics, those of add-ons last."""
    tensorboard = SinkKind("session.tensorplex.sinks.tensorboard:TensorBoard")
    return {"tensorboard": tensorboard} | collect("sinks")


def count_acting(session_config: Any) -> int:
    """Returns the number of processes that step environments: agents, and those of add-ons."""
    others = sum(session_config[kind].num for kind in acting_kinds())
    return int(session_config.agent.num + others)


def list_feeds(session_config: Any) -> list[str]:
    """Returns the paths from which a run gets rows without any steps of an environment."""
    keys = [key for each in add_ons().values() for key in each.feeds]
    return list(filter(None, (reduce(getitem, key.split("."), session_config) for key in keys)))
