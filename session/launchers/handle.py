"""Control of a run that another process supervises."""

from __future__ import annotations

import os
import signal
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from session.addons import load
from session.addons.hooks import is_url
from session.config import Config
from session.errors import AdmissionError, DeadlineError, RefusedError, UsageError, WireError
from session.folder import RunFolder
from session.launchers.control_client import ask, count_joined_rows, reachable
from session.launchers.launcher import SUPERVISOR_CONTROL, Outcome, last_lines, log_names
from session.launchers.registry import detached_launcher, launcher_of
from session.launchers.status import ComponentStatus, rows_of_files
from session.process.component import Topology
from session.tail import Tail
from session.wire.socket_state import poll

_ANSWER_SECONDS = 5.0
_LEARNER_SECONDS = 2.0
_FOLLOW_SECONDS = 0.2
# The last log lines are written a moment after the run has ended.
_LAST_SECONDS = 1.0


class OtherVersionError(UsageError):
    """The run was launched by a version that speaks another protocol."""


class RunHandle:
    """Controls a run from any process of its machine, with the same commands as its launcher.

    It holds no socket and no thread: each command connects, waits for its reply, and disconnects.

    Args:
        folder: the run folder.
    """

    look_seconds = 0.05

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._stopped_learner = False

    @property
    def folder(self) -> RunFolder:
        """The run folder."""
        return self._folder

    @property
    def ending_seconds(self) -> float:
        """Time that the run has to end once it was asked to [s]."""
        session = self._folder.read_config().session_config
        # A run that began earlier evaluates nothing at its end.
        final: float = session.evaluator.get("final_seconds", 0.0)
        return float(2 * session.launcher.grace_seconds + final)

    @property
    def running(self) -> bool:
        """True while a supervisor holds the run folder."""
        return self._folder.in_use

    def status(self) -> list[ComponentStatus]:
        """Returns the table of components, from the supervisor or else from files and processes."""
        if not self._folder.in_use or not reachable(self._folder, SUPERVISOR_CONTROL):
            return rows_of_files(self._folder)
        try:
            rows: list[dict[str, Any]] = self._ask("status", {})["components"]
        except OtherVersionError:
            return rows_of_files(self._folder)
        return [
            *(ComponentStatus(**row) for row in rows),
            *count_joined_rows(self._folder, {row["name"] for row in rows}),
        ]

    def progress(self) -> Mapping[str, Any]:
        """Returns the newest line of ``progress.jsonl``, empty while there is none."""
        return self._folder.last_progress()

    def result(self) -> Mapping[str, Any]:
        """Returns the content of ``result.json``, empty while there is none."""
        return self._folder.read_result() or {}

    def logs(self, name: str, lines: int = 50) -> list[str]:
        """Returns the last lines of a component's log and of its standard error.

        Raises:
            UsageError: it has neither.
        """
        return last_lines(self._folder, name, lines)

    def log_lines(self, name: str = "", *, follow: bool = False) -> Iterator[str]:
        """Yields all log lines of a component; without a name those of all components, by time.

        Args:
            name: name of the component.
            follow: continue with new lines until the run is over.

        Raises:
            UsageError: it has logged nothing.
        """
        path = self._folder.logs / f"{name or 'all'}.log"
        if name and not path.exists():
            raise UsageError(
                f"no log of '{name}' in {self._folder}; there are {log_names(self._folder)}"
            )
        return self._lines(Tail(path, catch_up_bytes=None), follow=follow)

    def _lines(self, tail: Tail, *, follow: bool) -> Iterator[str]:
        yield from tail.lines()
        until = None
        while follow and (until is None or time.monotonic() < until):
            if until is None and not self.running:
                until = time.monotonic() + _LAST_SECONDS
            time.sleep(_FOLLOW_SECONDS)
            yield from tail.lines()

    def scale(self, kind: str, num: int) -> None:
        """Sets the number of agents or evaluators (``agent``, ``eval``).

        Raises:
            UsageError: there is nothing of that kind to scale; the run is ending, does not run, or
                takes no commands.
        """
        self._ask("scale", {"kind": kind, "num": num})

    def restart(self, name: str) -> None:
        """Ends one component and starts it again.

        Raises:
            UsageError: there is no such component; the run is ending, does not run, or takes no
                commands.
        """
        self._ask("restart", {"name": name})

    def stop(self, *, interrupted: bool = False, reason: str = "stopped by command") -> None:
        """Begins the clean end of the run and returns at once.

        Without a supervisor, as in a run whose components were started by hand, it asks the
        learner.

        Raises:
            UsageError: it does not run, or takes no commands.
        """
        fields = {"interrupted": interrupted, "reason": reason}
        refuse_copy(self._folder)
        if self._folder.in_use or self._folder.over:
            try:
                self._ask("stop", fields)
            except OtherVersionError:
                self._terminate()
            except WireError:
                # A process that ends at once takes its reply along: libzmq drops what was not read.
                if self._folder.in_use:
                    raise
            return
        try:
            ask(self._folder, "learner.control", "stop", fields, timeout_seconds=_LEARNER_SECONDS)
        except (WireError, UsageError):
            if not self._folder.over:  # as above
                raise self._is_unsupervised() from None
        self._stopped_learner = True

    def wait(self, timeout_seconds: float | None = None) -> Outcome:
        """Waits until no process supervises the run any more, or its learner has ended it.

        Raises:
            DeadlineError: that took longer than ``timeout_seconds``.
        """
        start = time.monotonic()
        while self._goes_on():
            if timeout_seconds is not None and time.monotonic() - start > timeout_seconds:
                raise DeadlineError(f"run {self._folder} goes on after {timeout_seconds:g} s")
            poll([], self.look_seconds)
        result = self.result()
        return Outcome(str(result.get("status", "failed")), str(result.get("reason", "")))

    def _goes_on(self) -> bool:
        return self._folder.in_use or (self._stopped_learner and not self._folder.over)

    def _is_unsupervised(self) -> UsageError:
        return UsageError(f"run {self._folder} is not running: it has no supervisor")

    def _ask(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        refuse_copy(self._folder)
        if not self._folder.in_use:
            raise self._is_unsupervised()
        if not reachable(self._folder, SUPERVISOR_CONTROL):
            raise UsageError(
                f"run {self._folder} runs in one thread: it takes no commands; "
                "Ctrl-C in its terminal ends it"
            )
        try:
            return ask(
                self._folder, SUPERVISOR_CONTROL, kind, fields, timeout_seconds=_ANSWER_SECONDS
            )
        except AdmissionError as error:
            raise OtherVersionError(str(error)) from None
        except RefusedError as error:
            # The same error that the launcher itself would raise.
            raise UsageError(str(error)) from None

    def _terminate(self) -> None:
        """Asks a launcher of another version to end the run, by the signal that all understand."""
        if (pid := self._folder.owner) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def close(self) -> None:
        """Releases its resources; the run goes on."""

    def apply_secrets(self) -> None:
        """Sends keys and tokens of the run folder to components that cannot read it; here none."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Cluster(RunHandle):
    """A run that is launched detached from this process, and then controlled.

    Made from the resolved config, the topology and the run folder, which exists and is empty, or
    holds the run that is resumed.

    Attributes:
        name: Name of its launcher, which the run folder keeps.
    """

    name = ""

    @abstractmethod
    def launch(self) -> None:
        """Writes ``config.yaml``, starts all processes, and returns once the run answers.

        Raises:
            UsageError: a program or a free name is missing, or the folder is in use.
            RunError: the run ended right after its start; the message gives the cause.
        """

    @abstractmethod
    def dry_run(self) -> str:
        """Returns all that :meth:`launch` would start, as text to paste; changes nothing."""


def open_run(folder: str | Path | RunFolder) -> RunHandle:
    """Opens the run in a folder for commands from any shell; use it in a ``with`` statement.

    Raises:
        UsageError: no run was ever started there.
    """
    folder = folder if isinstance(folder, RunFolder) else RunFolder(folder)
    if folder.copy_of:
        return RunHandle(folder)
    if home := launcher_of(folder.launcher).control:
        run: RunHandle = load(home)(folder)
        return run
    if not folder.addresses.is_file():
        raise UsageError(f"{folder} holds no run: it has no addresses.json")
    return RunHandle(folder)


def refuse_copy(folder: RunFolder) -> None:
    """Refuses a command to a run of which there is only a copy, from its mirror or of its policy.

    Raises:
        UsageError: it is such a copy.
    """
    if place := folder.copy_of:
        more = ""
        if is_url(place):
            more = f", or go on from the copy: surreal-like train --resume {place}"
        raise UsageError(
            f"{place} is a copy, which takes no commands: name the run's own folder{more}"
        )


def check_launcher(on: str) -> None:
    """Rejects a launcher that does not exist or whose program is missing, before all other work.

    Raises:
        UsageError: the message lists the launchers, or the program to install.
    """
    if check := detached_launcher(on).check:
        load(check)()


def make_cluster(on: str, config: Config, topology: Topology, folder: RunFolder) -> Cluster:
    """Returns the object that launches a run and then controls it.

    Args:
        on: ``local``, ``tmux``, ``kubernetes``, ``slurm`` or ``ray``.
        config: the resolved experiment.
        topology: components of the run and their wiring.
        folder: the run folder.
    """
    cluster: Cluster = load(launcher_of(on).cluster)(config, topology, folder)
    cluster.name = on
    return cluster
