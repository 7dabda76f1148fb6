"""Asks a component of a run, or its launcher, over the run's own sockets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import zmq

from session.config import Config
from session.errors import UsageError, WireError
from session.folder import RunFolder
from session.wire import AddressBook, Identity, Wire
from session.wire.sockets import poll

_NAME = "command"


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
        UsageError: nothing of the run answers there.
        WireError: it refused.
    """
    if not folder.addresses.is_file():
        raise UsageError(f"run {folder} has no addresses.json: it was never started")
    book = AddressBook.load(folder.addresses)
    if endpoint not in book or book[endpoint].connect.startswith("inproc://"):
        raise UsageError(f"run {folder} has no {endpoint} that another process could reach")
    with _wire(folder, book) as wire:
        socket = wire.dealer(endpoint)
        answer = socket.request(kind, dict(fields or {}), timeout_seconds=timeout_seconds)
        return dict(answer.fields)


def try_ask(folder: RunFolder, endpoint: str, kind: str, **options: Any) -> dict[str, Any] | None:
    """As :func:`ask`; None where nobody answers."""
    try:
        return ask(folder, endpoint, kind, **options)
    except (UsageError, WireError):
        return None


@contextmanager
def _wire(folder: RunFolder, book: AddressBook) -> Iterator[Wire]:
    config = Config.load_file(folder.config)
    fingerprint = bytes.fromhex(config.fingerprint()[:16])
    zmq_context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    wire = Wire(
        zmq_context,
        book,
        Identity(_NAME, time.time_ns() // 1_000_000, fingerprint),
        max_message_bytes=config.session_config.max_message_bytes,
        stopping=lambda: False,
        pause=poll,
        on_reject=lambda endpoint, sender, reason: None,
    )
    try:
        yield wire
    finally:
        wire.close(0.0)
        zmq_context.destroy(0)
