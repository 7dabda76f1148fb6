"""A process that ends at once takes its reply along: who asked it to end sees that it has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.errors import SurrealError
from session.folder import RunFolder
from session.launchers import handle
from session.launchers.handle import RunHandle
from session.launchers.launcher import SUPERVISOR_CONTROL
from session.wire import AddressBook, Identity, Wire
from session.wire.socket_state import poll
from surreal_like.addons.tuning import handle as tuning_handle
from surreal_like.addons.tuning.handle import TuningHandle
from surreal_like.addons.tuning.reporter import CONTROL
from tests.session.wire.rig import free_port

HANDLES: dict[str, tuple[str, Callable[[RunFolder], Any]]] = {
    "supervisor": (SUPERVISOR_CONTROL, RunHandle),
    "tuning": (CONTROL, TuningHandle),
}


@contextmanager
def owner(folder: RunFolder, endpoint: str, *, ends: bool) -> Iterator[None]:
    """A process that holds a folder and takes one request, without a reply that arrives."""
    context: zmq.Context[Any] = zmq.Context()
    book = AddressBook.load(folder.addresses)
    fingerprint = bytes.fromhex(folder.read_config().fingerprint()[:16])
    wire = Wire(context, book, Identity("owner", 1, fingerprint))
    router, held, over = wire.router(endpoint), RunFolder(folder.path), threading.Event()
    held.lock()

    def take() -> None:
        while not over.is_set():
            if router.receive() is not None and ends:
                held.unlock()
            poll([router], 0.01)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        held.unlock()
        wire.close(0)
        context.destroy(0)


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("name", HANDLES)
def test_an_end_without_a_reply_is_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, ends: bool
) -> None:
    for module in (handle, tuning_handle):
        monkeypatch.setattr(module, "_ANSWER_SECONDS", 0.5)
    folder = RunFolder(tmp_path)
    endpoint, make = HANDLES[name]
    folder.addresses.write_text(AddressBook.tcp({endpoint: free_port()}).dump())
    Config(BASE_CONFIG.to_dict() | {"algorithm": "x"}).dump_file(folder.config)
    with owner(folder, endpoint, ends=ends):
        if ends:
            make(folder).stop()
        else:
            with pytest.raises(SurrealError):
                make(folder).stop()
