"""kubectl as a function: text in, text out, one line as error message."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from session.config import Config
from session.errors import UsageError

_TIMEOUT_SECONDS = 60.0
_REQUEST_TIMEOUT = "--request-timeout=20s"
_NOISE = ("E", "W", "I")
_UNREACHABLE = ("refused", "unable to connect", "no such host", "i/o timeout", "no route to host")


class Kubectl:
    """Runs kubectl against the cluster and namespace of a run.

    Args:
        config: of the run; ``session_config.kubernetes`` names context and namespace.

    Raises:
        UsageError: there is no kubectl.
    """

    def __init__(self, config: Config) -> None:
        settings = config.session_config.kubernetes
        places = {"--context": settings.context, "--namespace": settings.namespace}
        self._places = [f"{key}={place}" for key, place in places.items() if place is not None]
        self._program = find_kubectl()

    def run(
        self, *arguments: str, given: str = "", timeout_seconds: float = _TIMEOUT_SECONDS
    ) -> str:
        """Runs kubectl and returns its output.

        Args:
            arguments: of kubectl.
            given: its standard input.
            timeout_seconds: deadline of the command.

        Raises:
            UsageError: it failed; with its own message, and advice if no cluster answers.
        """
        command = [self._program, *self._places, _REQUEST_TIMEOUT, *arguments]
        try:
            done = subprocess.run(
                command,
                input=given,
                capture_output=True,
                text=True,
                timeout=timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UsageError(
                f"kubectl {arguments[0]} did not end within {timeout_seconds:g} s"
            ) from None
        if done.returncode != 0:
            raise UsageError(_complaint(arguments[0], done.stderr))
        return done.stdout

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


def _complaint(command: str, stderr: str) -> str:
    """Builds the message from the last line of kubectl, ignoring lines that its library logs."""
    lines = [line for line in stderr.strip().splitlines() if line.strip()]
    own = [line for line in lines if not (line[0] in _NOISE and line[1:5].isdigit())] or lines
    line = own[-1].strip() if own else "it left no word"
    if any(word in line.lower() for word in _UNREACHABLE):
        return f"no cluster answers: {line}; see: kubectl cluster-info"
    return f"kubectl {command}: {line.removeprefix('error: ').removeprefix('Error: ')}"
