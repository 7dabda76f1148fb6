"""The launchers: their names, the classes of their runs, and facts that others ask for.

Those of add-ons are theirs; no other file compares names of launchers.
"""

from __future__ import annotations

from functools import cache

from session.addons import Launcher, add_ons
from session.did_you_mean import did_you_mean
from session.errors import UsageError

# The default.
LOCAL = Launcher("local", cluster="session.launchers.local:LocalCluster", attached=True)


@cache
def list_launchers() -> dict[str, Launcher]:
    """Returns name -> launcher, those of add-ons last."""
    serial = Launcher("serial", attached=True, one_thread=True)
    others = (launcher for each in add_ons().values() for launcher in each.launchers)
    return {each.name: each for each in (LOCAL, serial, *others)}


def list_attached() -> tuple[str, ...]:
    """Returns the names of the launchers whose runs can be a part of this process."""
    return tuple(each.name for each in list_launchers().values() if each.attached)


def list_detached() -> tuple[str, ...]:
    """Returns the names of the launchers of detached runs."""
    return tuple(each.name for each in list_launchers().values() if each.cluster)


def launcher_of(name: str) -> Launcher:
    """Returns a launcher; of a name that is none, and of no name, one without any fact."""
    return list_launchers().get(name) or Launcher(name)


def attached_launcher(name: str) -> Launcher:
    """Returns the launcher of a run in this process.

    Raises:
        UsageError: there is none of that name.
    """
    if name in list_attached():
        return list_launchers()[name]
    hint = did_you_mean(name, list_attached(), lead="; ")
    if name in list_detached():
        hint = f"; {name} runs on by itself, with surreal-like launch --on {name}"
    raise UsageError(f"no launcher '{name}': there are {' and '.join(list_attached())}{hint}")


def detached_launcher(name: str) -> Launcher:
    """Returns the launcher of a detached run.

    Raises:
        UsageError: there is none of that name.
    """
    if name in list_detached():
        return list_launchers()[name]
    hint = did_you_mean(name, list_detached(), lead="; ")
    if name in list_attached():
        hint = f": {name} runs in the thread that trains, with surreal-like train --on {name}"
    raise UsageError(f"no launcher '{name}' for a detached run: {', '.join(list_detached())}{hint}")
