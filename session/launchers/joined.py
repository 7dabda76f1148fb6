"""Agents of other machines in the table of components, known only by heartbeats over the wire."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from session.folder import RunFolder
from session.launchers.asking import reported_status
from session.launchers.status import ComponentStatus
from session.process.heartbeat import State

_STATES = {State.done: State.gone, State.failed: State.dead, State.silent: State.dead}


def joined_rows(folder: RunFolder, known: Container[str]) -> list[ComponentStatus]:
    """Returns the components that send heartbeats to Tensorplex and are not supervised here.

    Args:
        folder: folder of a run that goes on.
        known: names of those that are supervised here.

    Empty if no machine was ever invited, or Tensorplex does not reply.
    """
    if not (folder.keys / "tokens").is_dir():
        return []
    return [_row(row) for name, row in reported_status(folder).items() if name not in known]


def _row(row: dict[str, Any]) -> ComponentStatus:
    state = State(row["state"])
    return ComponentStatus(
        name=str(row["name"]),
        state=_STATES.get(state, state),
        # The pid of a process of another machine has no meaning here.
        pid=0,
        age_seconds=float(row["age_seconds"]),
        restarts=0,
        exit_code=None,
        doing="on another machine",
    )
