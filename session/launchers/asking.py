"""One question to a part of a run, or to its supervisor, from any shell of its machine."""

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
    """True if a run has this endpoint, and another process could reach it."""
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
    """The fields of the answer.

    Args:
        folder: of the run.
        endpoint: such as ``learner.control``.
        kind: what is asked.
        fields: what goes with it.
        timeout_seconds: how long to wait for the answer.

    Raises:
        UsageError: the run has no such endpoint, or only its own thread can reach it.
        RefusedError: what was asked was refused.
        DeadlineError: there was no answer in time.
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
    """Component -> what it last told of itself, as Tensorplex has heard it; none if it is away."""
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
