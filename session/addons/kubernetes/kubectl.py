"""kubectl as a function: text in, text out, one line as error message."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from session.addons.engines.engine_program import TIMEOUT_SECONDS, call_program
from session.config import Config
from session.errors import SurrealError, UsageError
from session.folder import RunFolder
from session.launchers.control_client import ask
from session.wire import Address, AddressBook

_REQUEST_TIMEOUT = "--request-timeout=20s"
_NOISE = ("E", "W", "I")
_UNREACHABLE = ("refused", "unable to connect", "no such host", "i/o timeout", "no route to host")


class Kubectl:
    """Runs kubectl against the cluster and namespace of a run.

    Args:
        config: config of the run; ``session_config.kubernetes`` names context and namespace.

    Raises:
        UsageError: there is no kubectl.
    """

    def __init__(self, config: Config) -> None:
        settings = config.session_config.kubernetes
        places = {"--context": settings.context, "--namespace": settings.namespace}
        self._places = [f"{key}={place}" for key, place in places.items() if place is not None]
        self._program = find_kubectl()

    def run(
        self, *arguments: str, given: str = "", timeout_seconds: float = TIMEOUT_SECONDS
    ) -> str:
        """Runs kubectl and returns its output.

        Args:
            arguments: arguments of kubectl.
            given: standard input.
            timeout_seconds: deadline of the command [s].

        Raises:
            UsageError: it failed, with its own message, and advice if no cluster answers; or it did
                not end in time.
        """
        command = [self._program, *self._places, _REQUEST_TIMEOUT, *arguments]
        explain = partial(_explain, arguments[0])
        return call_program(command, explain, given=given, timeout_seconds=timeout_seconds)

    def get(self, *arguments: str) -> dict[str, Any]:
        """Returns objects as plain data.

        Raises:
            UsageError: as :meth:`run`.
        """
        found: dict[str, Any] = json.loads(self.run("get", *arguments, "--output=json"))
        return found

    def exists(self, kind: str, name: str) -> bool:
        """Returns True if the cluster has this object.

        Raises:
            UsageError: as :meth:`run`.
        """
        return bool(self.run("get", kind, name, "--ignore-not-found", "--output=name").strip())

    def inside(self, pod: str, container: str, *command: str) -> str:
        """Runs a command inside a container and returns its output.

        Raises:
            UsageError: as :meth:`run`; the container does not run, or the command failed.
        """
        return self.run("exec", pod, f"--container={container}", "--", *command)


def find_kubectl() -> str:
    """Returns the path of kubectl.

    Raises:
        UsageError: there is no kubectl.
    """
    program = shutil.which("kubectl")
    if program is None:
        raise UsageError(
            "no kubectl on the PATH: install it (kubernetes.io/docs/tasks/tools), or print the "
            "objects with: surreal-like plan CONFIG.yaml --on kubernetes"
        )
    return program


def condition(data: Mapping[str, Any], name: str) -> bool:
    """Returns True if an object's status has this condition."""
    conditions = data.get("status", {}).get("conditions") or []
    return any(each["type"] == name and each["status"] == "True" for each in conditions)


def _explain(command: str, said: str) -> str:
    """Builds the message from the last line of kubectl, ignoring lines that its library logs."""
    lines = [line for line in said.strip().splitlines() if line.strip()]
    own = [line for line in lines if not (line[0] in _NOISE and line[1:5].isdigit())] or lines
    line = own[-1].strip() if own else "it left no word"
    if any(word in line.lower() for word in _UNREACHABLE):
        return f"no cluster answers: {line}; see: kubectl cluster-info"
    return f"kubectl {command}: {line.removeprefix('error: ').removeprefix('Error: ')}"


_ANSWER_SECONDS = 5.0


def ask_here(folder: RunFolder, endpoint: str, kind: str, fields: dict[str, object]) -> str:
    """Sends one request and returns the fields of the reply as JSON.

    Args:
        folder: folder of the run.
        endpoint: one that this pod binds.
        kind: kind of the request.
        fields: fields of the request.

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
