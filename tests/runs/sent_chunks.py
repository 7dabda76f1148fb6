"""Records the chunks that senders of a run in one thread give to their sockets.

As a program, ``python sent_chunks.py OUT WORD ...`` runs the command line with these words and
writes the SHA-256 of all chunks in order to OUT. It imports the checkout that PYTHONPATH names.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from session.wire import Message
from session.wire.one_way_sockets import PushSocket

# Times and memory differ from run to run.
_LEFT_OUT = ("stamps", "filled")


@contextmanager
def recorded(take: Callable[[str, Message], None]) -> Iterator[None]:
    """Calls a function with the endpoint and message of each chunk that is sent."""
    send = PushSocket.send

    def spy(socket: PushSocket, message: Message) -> bool:
        sent = send(socket, message)
        if sent and message.kind == "chunk":
            take(socket.endpoint, message)
        return sent

    PushSocket.send = spy  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        PushSocket.send = send  # type: ignore[method-assign]


def facts_of(message: Message) -> dict[str, Any]:
    """Returns the fields of a chunk that are the same in each run."""
    return {name: each for name, each in message.fields.items() if name not in _LEFT_OUT}


class Digest:
    """SHA-256 of chunks: fields, names, dtypes, shapes and bytes, in the order of sending."""

    def __init__(self) -> None:
        self.chunks = 0
        self._hash = hashlib.sha256()

    def add(self, endpoint: str, message: Message) -> None:
        self.chunks += 1
        self._hash.update(repr((endpoint, sorted(facts_of(message).items()))).encode())
        for name, array in sorted(message.arrays.items()):
            self._hash.update(repr((name, array.dtype.str, array.shape)).encode())
            self._hash.update(array.tobytes())

    def __str__(self) -> str:
        return f"{self.chunks} {self._hash.hexdigest()}"


def main() -> int:
    from main.cli import main as command

    out, *words = sys.argv[1:]
    digest = Digest()
    with recorded(digest.add):
        code = command(words)
    Path(out).write_text(str(digest))
    return code


if __name__ == "__main__":
    sys.exit(main())
