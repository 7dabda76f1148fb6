"""The launchers: their names, the classes of their runs, and facts that others ask for.

A new launcher is a file of its own and an entry here; no other file compares names of launchers.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from session.did_you_mean import did_you_mean
from session.errors import UsageError


@dataclass(frozen=True, slots=True)
class Launcher:
    """Facts about a launcher.

    Args:
        name: name on command lines, and in ``run.launcher`` of a config.
        cluster: ``module:Class`` that launches detached runs; empty: it has none.
        control: ``module:Class`` that controls its runs from any process; empty:
            :class:`session.launchers.handle.RunHandle`.
        supervisor: ``module:Class`` that supervises a detached run in a process of this machine.
        attached: runs can also be a part of the process that starts them.
        one_thread: all components share one thread, and a clock that counts rounds.
        remote: components, checkpoints and devices are on another machine.
        program: program with a window for each component; empty: there are no windows.
    """

    name: str
    cluster: str = ""
    control: str = ""
    supervisor: str = ""
    attached: bool = False
    one_thread: bool = False
    remote: bool = False
    program: str = ""


# The default.
LOCAL = Launcher("local", cluster="session.launchers.local:LocalCluster", attached=True)
_ALL = (
    LOCAL,
    Launcher("serial", attached=True, one_thread=True),
    Launcher(
        "tmux",
        cluster="session.launchers.tmux:TmuxCluster",
        control="session.launchers.tmux:TmuxRun",
        supervisor="session.launchers.tmux:TmuxSupervisor",
        program="tmux",
    ),
    Launcher(
        "kubernetes",
        cluster="session.launchers.kubernetes:KubernetesCluster",
        control="session.launchers.kubernetes:KubernetesRun",
        remote=True,
    ),
)
_LAUNCHERS = {each.name: each for each in _ALL}
ATTACHED = tuple(each.name for each in _ALL if each.attached)
DETACHED = tuple(each.name for each in _ALL if each.cluster)


def launcher_of(name: str) -> Launcher:
    """Returns a launcher; of a name that is none, and of no name, one without any fact."""
    return _LAUNCHERS.get(name) or Launcher(name)


def attached_launcher(name: str) -> Launcher:
    """Returns the launcher of a run in this process.

    Raises:
        UsageError: there is none of that name.
    """
    if name in ATTACHED:
        return _LAUNCHERS[name]
    hint = did_you_mean(name, ATTACHED, lead="; ")
    raise UsageError(f"no launcher '{name}': there are {' and '.join(ATTACHED)}{hint}")


def detached_launcher(name: str) -> Launcher:
    """Returns the launcher of a detached run.

    Raises:
        UsageError: there is none of that name.
    """
    if name in DETACHED:
        return _LAUNCHERS[name]
    hint = did_you_mean(name, DETACHED, lead="; ")
    if name in ATTACHED:
        hint = f": {name} runs in the thread that trains, with surreal-like train --on {name}"
    raise UsageError(f"no launcher '{name}' for a detached run: {', '.join(DETACHED)}{hint}")


def load(home: str) -> Any:
    """Imports ``module:Class``."""
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(module), name)
