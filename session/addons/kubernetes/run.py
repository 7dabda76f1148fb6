"""Controls a run on a cluster through kubectl."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from session.addons.kubernetes.kubectl import Kubectl, condition
from session.addons.kubernetes.kustomize import dump_objects
from session.addons.kubernetes.secret import make_secrets
from session.addons.kubernetes.settings import INSTANCE, RUN_PATH, added_metadata
from session.addons.kubernetes.table import Container, containers_of, row_of
from session.atomic_file import write_atomically
from session.config import Config
from session.errors import RunError, UsageError
from session.folder import PROGRESS, RESULT, RunFolder
from session.json_file import parse_object
from session.launchers.handle import RunHandle
from session.launchers.launcher import Outcome
from session.launchers.status import ComponentStatus, rows_of_files
from session.process.component import split_name
from session.process.periodic import wait_until

# All objects of a run except its volumes.
KINDS = (
    "job",
    "statefulset",
    "deployment",
    "hpa",
    "pdb",
    "networkpolicy",
    "service",
    "configmap",
    "secret",
)
_SCALABLE = ("agent", "eval")
# Larger numbers are reserved for agents that join from other machines.
_MANY = 1000
# A Job is complete some time after its container has ended.
_LAST_LOOK_SECONDS = 10.0
_END = "import os, signal; os.kill(1, signal.SIGTERM)"
_ASK = ("python", "-P", "-m", "session.addons.kubernetes.kubectl", RUN_PATH)
_GONE = "its objects are gone from the cluster; the learner's volume has its result"


class KubernetesRun(RunHandle):
    """Controls a run whose components are pods, with the same commands as any other run.

    The local folder holds its config, its keys and its objects; checkpoints, event files and logs
    are on volumes of the cluster. Once the run is over its result is copied into the local folder.

    Args:
        folder: the run folder on this machine.

    Raises:
        UsageError: the folder holds no run, or there is no kubectl.
    """

    look_seconds = 1.0

    def __init__(self, folder: RunFolder) -> None:
        if not folder.config.is_file():
            raise UsageError(f"{folder} holds no run: it has no config.yaml")
        super().__init__(folder)
        self._open(folder.read_config())

    def _open(self, config: Config) -> None:
        self.config = config
        self._name = str(config.session_config.kubernetes.name)
        self.kubectl = Kubectl(config)
        self._grace_seconds: float = config.session_config.launcher.grace_seconds
        self._stopping = False

    @property
    def running(self) -> bool:
        """True while the cluster has pods of it; after the run they stay until it is stopped.

        Raises:
            UsageError: no cluster answers.
        """
        return bool(self._containers())

    def status(self) -> list[ComponentStatus]:
        """Returns the table of components, from local files if the cluster has no pods any more.

        If the learner has ended, its result is copied into the local folder.

        Raises:
            UsageError: no cluster answers.
        """
        found = self._containers()
        if not found:
            return rows_of_files(self._folder)
        reported = self._read_status(found)
        rows = [row_of(found[name], reported.get(name, {})) for name in sorted(found, key=_place)]
        ended = any(row.name == "learner" and row.exit_code == 0 for row in rows)
        if ended and not self._folder.over:
            self._finish(self._learners_result(), rows)
        return rows

    def progress(self) -> Mapping[str, Any]:
        """Returns the newest line of the learner's ``progress.jsonl``, empty if not reachable."""
        lines: list[str] = []
        with suppress(UsageError):
            lines = self._inside("learner", "tail", "-n", "1", f"{RUN_PATH}/progress.jsonl")
        with suppress(ValueError):
            return parse_object(lines[-1] if lines else "", PROGRESS)
        return {}

    def logs(self, name: str, lines: int = 50) -> list[str]:
        """Returns the last lines of a component's log, then of its container's output.

        Raises:
            UsageError: it has neither.
        """
        there = self._containers()
        found: list[str] = []
        with suppress(UsageError):
            command = ("tail", "-n", str(lines), _log(name))
            found = self._inside("loggerplex", *command, found=there)
        if name in there:
            found += self._output(there[name], lines)
        if not found:
            raise UsageError(f"no log of '{name}'; there are {', '.join(self._log_names(there))}")
        return found

    def log_lines(self, name: str = "", *, follow: bool = False) -> Iterator[str]:
        """Yields all log lines of a component; without a name those of all components, by time.

        Args:
            name: name of the component.
            follow: continue with new lines until the run is over.

        Raises:
            UsageError: it has logged nothing, or Loggerplex does not run.
        """
        known = self._log_names(self._containers())
        if name and name not in known:
            raise UsageError(f"no log of '{name}'; there are {', '.join(known) or 'none yet'}")
        return self._follow(_log(name or "all"), follow=follow)

    def _follow(self, path: str, *, follow: bool) -> Iterator[str]:
        seen = 0
        while True:
            going_on = follow and self._goes_on()
            lines = self._inside("loggerplex", "tail", "-n", f"+{seen + 1}", path)
            yield from lines
            seen += len(lines)
            if not going_on:
                return
            time.sleep(self.look_seconds)

    def apply_secrets(self) -> None:
        """Applies the Secrets: the keys of this run folder, and the tokens of clients.

        Raises:
            UsageError: a key is missing, or no cluster answers.
        """
        space = self.config.session_config.kubernetes.namespace
        secrets = make_secrets(self._folder.keys, self._name, space, added_metadata(self.config))
        self.kubectl.run("apply", "--filename=-", given=dump_objects(secrets))

    def scale(self, kind: str, num: int) -> None:
        """Sets the number of agents or evaluators (``agent``, ``eval``).

        Raises:
            UsageError: there is nothing of that kind to scale, or no cluster answers.
        """
        if kind not in _SCALABLE or not 0 <= num <= _MANY:
            raise UsageError(
                f"cannot scale {kind} to {num}; agent and eval can be, to 0 up to {_MANY}"
            )
        self.kubectl.run("scale", f"statefulset/{self._name}-{kind}", f"--replicas={num}")

    def restart(self, name: str) -> None:
        """Ends one component; the cluster starts it again, in the same pod if its container ran.

        Raises:
            UsageError: there is no such component, or no cluster answers.
        """
        found = self._containers()
        if name not in found:
            raise UsageError(f"no component '{name}'; there are {', '.join(sorted(found))}")
        container = found[name]
        if container.running and not container.ending:
            self._inside(name, "python", "-c", _END, found=found)
        else:
            self.kubectl.run("delete", "pod", container.pod, "--wait=false")

    def stop(self, *, interrupted: bool = False, reason: str = "stopped by command") -> None:
        """Begins the clean end of the run; :meth:`wait` then removes its objects, not its volumes.

        Without a running learner there is nothing to save: the run counts as interrupted at once.

        Raises:
            UsageError: it does not run, no cluster answers, or the learner refused.
        """
        found, goes_on = self._containers(), self._goes_on()
        if not found and not goes_on:
            raise self._is_unsupervised()
        self._stopping = True
        learner = found.get("learner")
        if goes_on and learner is not None and learner.running:
            fields = json.dumps({"reason": reason, "interrupted": interrupted})
            question = (*_ASK, "learner.control", "stop", fields)
            try:
                self._inside("learner", *question, found={"learner": learner})
            except UsageError:
                # A learner that ends at once takes its container along, and the command in it.
                if self._still_goes_on(_LAST_LOOK_SECONDS):
                    raise
        elif goes_on:
            result = {"status": "interrupted", "reason": f"{reason}: no learner was running"}
            self._finish(result, self.status())

    def wait(self, timeout_seconds: float | None = None) -> Outcome:
        """Waits until the run is over, and copies its result into the local folder.

        After :meth:`stop` it also removes the objects and waits for the end of the pods. Volumes
        stay: remove them with ``kubectl delete pvc -l app.kubernetes.io/instance=NAME``.

        Raises:
            DeadlineError: that took longer than ``timeout_seconds``.
        """
        outcome = super().wait(timeout_seconds)
        if not self._folder.over:
            rows = self.status()
            if not self._folder.over:
                self._finish(self._learners_result(), rows)
            outcome = super().wait()
        if self._stopping:
            self.remove()
        return outcome

    def remove(self) -> None:
        """Removes all objects of the run except its volumes, and waits until its pods have ended.

        Raises:
            UsageError: no cluster answers.
            RunError: a pod does not end.
        """
        chosen = f"--selector={INSTANCE}={self._name}"
        self.kubectl.run("delete", ",".join(KINDS), chosen, "--ignore-not-found", "--wait=false")
        seconds = 2 * self._grace_seconds + 60.0
        if not self._wait(lambda: not self._containers(), seconds):
            raise RunError(f"pods of {self._name} do not end; see: kubectl get pods {chosen}")

    # -- state of the cluster --------------------------------------------------------------------

    def _job(self) -> dict[str, Any] | None:
        items = self.kubectl.get(
            "jobs", f"--selector={INSTANCE}={self._name}", "--ignore-not-found"
        )["items"]
        return items[0] if items else None

    def _goes_on(self) -> bool:
        """Returns True until the learner's Job has ended or was removed."""
        if self._folder.over:
            return False
        job = self._job()
        return job is not None and not condition(job, "Complete") and not condition(job, "Failed")

    def _still_goes_on(self, seconds: float) -> bool:
        """Returns False as soon as the run has ended, True if it has not after ``seconds``."""
        return not self._wait(lambda: not self._goes_on(), seconds)

    def _wait(self, ready: Callable[[], object], seconds: float) -> bool:
        return wait_until(ready, seconds, look_seconds=self.look_seconds)

    def _containers(self) -> dict[str, Container]:
        pods = self.kubectl.get("pods", f"--selector={INSTANCE}={self._name}")
        return containers_of(pods, self._name)

    def _read_status(self, found: Mapping[str, Container]) -> dict[str, dict[str, Any]]:
        """Returns component -> its status in Tensorplex; empty if Tensorplex does not reply."""
        if "tensorplex" not in found or not found["tensorplex"].running:
            return {}
        with suppress(UsageError, ValueError, LookupError):
            question = (*_ASK, "tensorplex.requests", "status", "{}")
            lines = self._inside("tensorplex", *question, found=found)
            return {row["name"]: row for row in json.loads(lines[-1])["components"]}
        return {}

    def _inside(
        self, component: str, *command: str, found: Mapping[str, Container] | None = None
    ) -> list[str]:
        """Runs a command in a component's container, returns its output; `found` saves a query."""
        container = (found or self._containers()).get(component)
        if container is None or not container.running:
            raise UsageError(f"{component} does not run now; see: kubectl get pods")
        return self.kubectl.inside(container.pod, container.name, *command).splitlines()

    def _output(self, container: Container, lines: int) -> list[str]:
        with suppress(UsageError):
            output = self.kubectl.run(
                "logs", container.pod, f"--container={container.name}", f"--tail={lines}"
            )
            return output.splitlines()
        return []

    def _log_names(self, found: Mapping[str, Container]) -> list[str]:
        names = self._inside("loggerplex", "ls", f"{RUN_PATH}/logs", found=found)
        return sorted(name.removesuffix(".log") for name in names if name.endswith(".log"))

    # -- the end ---------------------------------------------------------------------------------

    def _learners_result(self) -> dict[str, Any]:
        """Returns the result that the learner printed at its end."""
        job = self._job()
        if job is None:
            return {"status": "failed", "reason": _GONE}
        learner = self._containers().get("learner")
        for line in reversed(self._output(learner, 100) if learner is not None else []):
            with suppress(ValueError):
                return parse_object(line, RESULT)
        return {"status": "failed", "reason": "the learner has left no result; see its logs"}

    def _finish(self, result: Mapping[str, Any], rows: Iterable[ComponentStatus]) -> None:
        ends = ("restarts", "exit_code")
        components = {
            row.name: {name: getattr(row, name) for name in ends} | {"alive_seconds": None}
            for row in rows
        }
        text = json.dumps({**result, "components": components}, indent=2)
        write_atomically(self._folder.result, f"{text}\n")


def _log(name: str) -> str:
    return f"{RUN_PATH}/logs/{name}.log"


def _place(name: str) -> tuple[str, int]:
    """Sort key: groups components by kind, in the order of their numbers."""
    stem, number = split_name(name)
    return stem, number or 0
