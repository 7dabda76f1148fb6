"""One request to a component of a run or to its supervisor, from any shell of its machine."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from session.errors import SurrealError, UsageError
from session.folder import RunFolder
from session.json_file import ANY, TEXT, Leaf
from session.launchers.status import ComponentStatus
from session.process.heartbeat import State
from session.run_connection import open_client
from session.wire import AddressBook
from session.wire.schema import (
    Count,
    Flag,
    Kinds,
    ListOf,
    Name,
    Nullable,
    Number,
    Optional,
    Plain,
    Schema,
    Text,
)

_COMPONENTS = 100_000
_STATUS_BYTES = 4 << 20

STOP = Schema({"reason": Text(), "interrupted": Flag(), "failed": Optional(Flag())})

# Requests to the supervisor.
COMMANDS: Kinds = {
    "status": Schema(),
    "stop": STOP,
    "scale": Schema({"kind": Name(), "num": Count()}),
    "restart": Schema({"name": Name()}),
}
NOTED = Schema({"confirm": Optional(Flag()), "best": Optional(Nullable(Number()))})
_ROW = {"name": TEXT, "state": Leaf("a state", lambda value: value in tuple(map(str, State)))}
# Replies of the supervisor, the learner and Tensorplex.
ANSWERS: Kinds = {
    "noted": NOTED,
    "stopping": Schema(),
    "status": Schema(
        {"components": Optional(ListOf(Plain(_ROW), _COMPONENTS))},
        # Only the learner has others, a process of the run.
        others=Plain(ANY),
        header_bytes=_STATUS_BYTES,
    ),
}


_STATUS_SECONDS = 1.0


def reachable(folder: RunFolder, endpoint: str) -> bool:
    """Returns True if a run has this endpoint and other processes can reach it."""
    if not folder.addresses.is_file():
        return False
    book = AddressBook.load(folder.addresses)
    return endpoint in book and not book[endpoint].connect.startswith("inproc://")


def ask(
    folder: RunFolder,
    endpoint: str,
    kind: str,
    fields: Mapping[str, Any] | None = None,
    *,
    timeout_seconds: float,
    addresses: AddressBook | None = None,
) -> dict[str, Any]:
    """Sends one request and returns the fields of the reply.

    Args:
        folder: folder of the run.
        endpoint: such as ``learner.control``.
        kind: kind of the request.
        fields: fields of the request.
        timeout_seconds: deadline of the reply.
        addresses: replace those of the folder.

    Raises:
        UsageError: the run has no such endpoint, or only its own thread can reach it.
        RefusedError: the peer refused the request.
        DeadlineError: no reply arrived in time.
    """
    if not folder.addresses.is_file():
        raise UsageError(f"run {folder} has no addresses.json: it was never started")
    if not reachable(folder, endpoint):
        raise UsageError(f"run {folder} has no {endpoint} that another process could reach")
    with open_client(folder, addresses=addresses) as client:
        socket = client.dealer(endpoint, ANSWERS)
        answer = socket.request(kind, dict(fields or {}), timeout_seconds=timeout_seconds)
        return dict(answer.fields)


def reported_status(folder: RunFolder) -> dict[str, dict[str, Any]]:
    """Component -> its latest status known to Tensorplex; empty if Tensorplex does not reply."""
    try:
        answer = ask(folder, "tensorplex.requests", "status", timeout_seconds=_STATUS_SECONDS)
    except SurrealError:
        return {}
    return {row["name"]: row for row in answer["components"]}


_STATES = {State.done: State.gone, State.failed: State.dead, State.silent: State.dead}


def count_joined_rows(folder: RunFolder, known: Container[str]) -> list[ComponentStatus]:
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
