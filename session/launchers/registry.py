"""The launchers: their names, the classes of their runs, and facts that others ask for.

Those of add-ons are theirs; no other file compares names of launchers.
"""

from __future__ import annotations

from session.addons import Launcher, add_ons
from session.errors import UsageError, did_you_mean

# The default.
LOCAL = Launcher("local", cluster="session.launchers.local:LocalCluster", attached=True)
_ALL = (
    LOCAL,
    Launcher("serial", attached=True, one_thread=True),
    *(launcher for each in add_ons() for launcher in each.launchers),
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
    if name in DETACHED:
        hint = f"; {name} runs on by itself, with surreal-like launch --on {name}"
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
