"""Sends a request to a component from inside its own pod; runs by ``kubectl exec``.

``python -P -m session.launchers.kubernetes.inside FOLDER ENDPOINT KIND FIELDS`` prints the fields
of the reply as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from session.errors import SurrealError, UsageError
from session.folder import RunFolder
from session.launchers.asking import ask
from session.wire import Address, AddressBook

_ANSWER_SECONDS = 5.0


def ask_here(folder: RunFolder, endpoint: str, kind: str, fields: dict[str, object]) -> str:
    """Sends one request and returns the fields of the reply as JSON.

    Args:
        folder: of the run.
        endpoint: one that this pod binds.
        kind: of the request.
        fields: of the request.

    Raises:
        WireError: no reply arrived in time, or the component refused.
    """
    # Not through the Service: not every cluster lets a pod reach itself through one.
    address = Address.same(AddressBook.load(folder.addresses)[endpoint].bind)
    book = AddressBook({endpoint: address})
    return json.dumps(
        ask(folder, endpoint, kind, fields, timeout_seconds=_ANSWER_SECONDS, addresses=book)
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if len(words) != 4:
            raise UsageError("expected FOLDER ENDPOINT KIND FIELDS")
        folder, endpoint, kind, fields = words
        answer = ask_here(RunFolder(folder), endpoint, kind, json.loads(fields))
    except (SurrealError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{answer}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
