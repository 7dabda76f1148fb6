"""One request to a component of a run or to its supervisor, from any shell of its machine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import zmq

from session.errors import SurrealError, UsageError
from session.folder import RunFolder
from session.launchers.commands import ANSWERS
from session.wire import AddressBook, Identity, Wire
from session.wire.security import Security

_NAME = "command"
_TOLD_SECONDS = 1.0


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
) -> dict[str, Any]:
    """Sends one request and returns the fields of the reply.

    Args:
        folder: of the run.
        endpoint: such as ``learner.control``.
        kind: of the request.
        fields: of the request.
        timeout_seconds: deadline of the reply.

    Raises:
        UsageError: the run has no such endpoint, or only its own thread can reach it.
        RefusedError: the peer refused the request.
        DeadlineError: no reply arrived in time.
    """
    if not folder.addresses.is_file():
        raise UsageError(f"run {folder} has no addresses.json: it was never started")
    if not reachable(folder, endpoint):
        raise UsageError(f"run {folder} has no {endpoint} that another process could reach")
    with _wire(folder) as wire:
        socket = wire.dealer(endpoint, ANSWERS)
        answer = socket.request(kind, dict(fields or {}), timeout_seconds=timeout_seconds)
        return dict(answer.fields)


def told(folder: RunFolder) -> dict[str, dict[str, Any]]:
    """Component -> its latest status known to Tensorplex; empty if Tensorplex does not reply."""
    try:
        answer = ask(folder, "tensorplex.requests", "status", timeout_seconds=_TOLD_SECONDS)
    except SurrealError:
        return {}
    return {row["name"]: row for row in answer["components"]}


@contextmanager
def _wire(folder: RunFolder) -> Iterator[Wire]:
    config = folder.read_config()
    fingerprint = bytes.fromhex(config.fingerprint()[:16])
    zmq_context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    wire = Wire(
        zmq_context,
        AddressBook.load(folder.addresses),
        Identity(_NAME, time.time_ns() // 1_000_000, fingerprint),
        max_message_bytes=config.session_config.max_message_bytes,
        security=Security.of_run(folder.keys, config),
    )
    try:
        yield wire
    finally:
        wire.close(0.0)
        zmq_context.destroy(0)
