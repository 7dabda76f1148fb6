"""Runs whose core is one job of another system, and whose agents join by a token."""

from __future__ import annotations

import shutil
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from session.addons.hooks import TOKEN
from session.atomic_file import write_atomically
from session.config import Config
from session.errors import UsageError, WireError
from session.folder import RunFolder
from session.launchers.control_client import ask, count_joined_rows
from session.launchers.handle import Cluster, RunHandle
from session.launchers.launcher import finish_result, refuse_running, write_launch
from session.launchers.status import ComponentStatus, rows_of_files, status_row
from session.process.component import FIRST_JOINED, Topology
from session.process.context import run_part
from session.process.heartbeat import State
from session.wire.security import write_keys

_ANSWER_SECONDS = 5.0
# Machines that the token admits.
_MACHINES = FIRST_JOINED


class Core(NamedTuple):
    """The job of the core, in the queue or at work.

    Args:
        job: number or name.
        runs: False while it waits.
        doing: state of the job and its reason, as the system says them.
    """

    job: str
    runs: bool
    doing: str


class SubmittedRun(RunHandle):
    """Controls a run whose core is a job, with the same commands as any other run.

    Args:
        folder: the run folder, on a file system that all nodes share.

    Attributes:
        jobs: folder of the jobs' files.
        place: name of that folder.
        on_node: command that runs another one on the node of the core; ``{job}`` in it is the job.
    """

    look_seconds = 1.0
    place: ClassVar[str] = ""
    on_node: ClassVar[str] = ""

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(RunFolder(folder.path.resolve()))
        self.jobs = self._folder.path / self.place

    @abstractmethod
    def find_core(self) -> Core | None:
        """Returns the job of the core; None if there is none.

        Raises:
            UsageError: the system does not answer.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Ends the job of the core; one that runs saves first.

        Raises:
            UsageError: the system does not answer.
        """

    @property
    def running(self) -> bool:
        """True while its core waits or runs."""
        return self.find_core() is not None

    def status(self) -> list[ComponentStatus]:
        """Returns the table of components; while the core waits, its job and the reason.

        Raises:
            UsageError: the system does not answer.
        """
        core = self.find_core()
        if core and not core.runs:
            row = status_row("core", None, state=State.waiting)
            return [replace(row, doing=f"job {core.job} is {core.doing}")]
        if self._here:
            return super().status()
        return count_joined_rows(self._folder, ()) if core else rows_of_files(self._folder)

    def stop(self, *, interrupted: bool = False, reason: str = "stopped by command") -> None:
        """Begins the clean end of the run and returns at once; a core that waits is cancelled.

        Raises:
            UsageError: it neither waits nor runs, or the system refuses.
        """
        core = self.find_core()
        if not core:
            raise self._is_unsupervised()
        fields = {"interrupted": interrupted, "reason": reason}
        if core.runs:
            (self.jobs / "cancelled").touch()
            with suppress(WireError, UsageError):
                ask(
                    self._folder, "learner.control", "stop", fields, timeout_seconds=_ANSWER_SECONDS
                )
                return
        self.cancel()
        if not core.runs:
            # No learner writes its end.
            finish_result(self._folder, self._folder.read_config(), {}, interrupted=True)

    def _goes_on(self) -> bool:
        return self.running

    def _ask(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        if not self._here:
            raise self._is_unsupervised()
        return super()._ask(kind, fields)

    @property
    def _here(self) -> bool:
        """True on the node of the core, where its supervisor takes commands."""
        return self._folder.sockets.is_dir() and self._folder.in_use

    def _is_unsupervised(self) -> UsageError:
        core = self.find_core()
        if not core:
            return super()._is_unsupervised()
        return UsageError(
            f"run {self._folder} takes this command on the node of its core: "
            f"{self.on_node.format(job=core.job)}"
        )


class SubmittedCluster(SubmittedRun, Cluster):
    """Launches a run as jobs, and then controls it.

    Args:
        config: the resolved experiment.
        topology: components of the run and their wiring.
        folder: the run folder, on a file system that all nodes share.

    Raises:
        UsageError: the run has no keys.
    """

    def __init__(self, config: Config, topology: Topology, folder: RunFolder) -> None:
        super().__init__(folder)
        if config.session_config.security.insecure:
            raise UsageError(
                f"on {self.place} agents join by a token, which needs keys: leave insecure out"
            )
        self._config = config
        self._topology = Topology(each for each in topology if each.kind != "agent")

    @abstractmethod
    def scripts(self) -> Mapping[str, str]:
        """Returns file name -> text; ``submit.sh`` submits all of them."""

    def write(self) -> None:
        """Writes the run folder: config, keys, scripts, and the token of the agents.

        Raises:
            UsageError: a file cannot be written, or this installation has no ``join``.
        """
        missing = f"on {self.place} agents join the run: the add-on join is not here"
        make_token = TOKEN.require(missing)
        # The core writes them: until then agents wait, and do not try those of an earlier part.
        self._folder.addresses.unlink(missing_ok=True)
        part = run_part(self._config) - 1
        write_launch(self._folder, self._config, self._topology, self.name, part=part)
        write_keys(self._folder.keys)
        self.jobs.mkdir(exist_ok=True)
        token = make_token(self._folder.keys, _MACHINES)
        write_atomically(self.jobs / "token", f"{token}\n", private=True)
        for name, text in self.scripts().items():
            write_atomically(self.jobs / name, text)

    def launch(self) -> None:
        """Writes the run folder and submits its jobs; returns once they are in the queue.

        Raises:
            UsageError: the run is in the queue already, or the system refuses; with its words.
        """
        refuse_running(self._folder)
        if core := self.find_core():
            raise UsageError(
                f"job {core.job} is this run already; end it with: surreal-like stop {self._folder}"
            )
        made = [each for each in (self.jobs, self._folder.keys) if not each.exists()]
        try:
            self.write()
            self.submit()
        except BaseException:
            for each in made:
                shutil.rmtree(each, ignore_errors=True)
            raise

    @abstractmethod
    def submit(self) -> None:
        """Runs ``submit.sh``.

        Raises:
            UsageError: the system refuses; with its words.
        """

    def dry_run(self) -> str:
        """Returns the text of all scripts."""
        texts = self.scripts().items()
        return "\n".join(f"# {self.jobs.name}/{name}\n{text}" for name, text in texts)
