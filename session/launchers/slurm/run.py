"""Controls a run on a Slurm cluster from any machine that shares its folder."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from session.errors import UsageError, WireError
from session.folder import RunFolder
from session.launchers.asking import ask, count_joined_rows
from session.launchers.handle import RunHandle
from session.launchers.launcher import finish_result
from session.launchers.slurm.jobs import Job, call, find_jobs
from session.launchers.status import ComponentStatus, rows_of_files, status_row
from session.process.heartbeat import State

_RUNNING = "RUNNING"
_ANSWER_SECONDS = 5.0
_MANY = 1000


class SlurmRun(RunHandle):
    """Controls a run whose core and agents are jobs, with the same commands as any other run.

    Args:
        folder: the run folder, on a file system that all nodes share.
    """

    look_seconds = 1.0

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(RunFolder(folder.path.resolve()))
        self.jobs = self._folder.path / "slurm"

    @property
    def running(self) -> bool:
        """True while its core waits or runs."""
        return bool(self._core())

    def status(self) -> list[ComponentStatus]:
        """Returns the table of components; while the core waits, its job and the reason.

        Raises:
            UsageError: Slurm does not answer.
        """
        core = self._core()
        if core and core[0].state != _RUNNING:
            doing = f"job {self._numbers('core')[0]} is {core[0].state}: {core[0].reason}"
            row = status_row("core", None, state=State.waiting)
            return [replace(row, doing=doing)]
        if self._here:
            return super().status()
        return count_joined_rows(self._folder, ()) if core else rows_of_files(self._folder)

    def scale(self, kind: str, num: int) -> None:
        """Sets the number of agents; that of evaluators on the node of the core.

        Raises:
            UsageError: the number is wrong, Slurm refuses, or the run does not go on.
        """
        if kind != "agent":
            super().scale(kind, num)
            return
        if not 0 <= num <= _MANY:
            raise UsageError(f"cannot scale agent to {num}; expected 0 to {_MANY}")
        if not self._core():
            raise self._is_unsupervised()
        numbers = self._numbers("agents")
        there = {job.task for job in find_jobs(numbers)}
        new = ",".join(str(task) for task in range(num) if task not in there)
        old = [str(task) for task in there if task >= num]
        if new:
            script = str(self.jobs / "agents.sbatch")
            more = call("sbatch", "--parsable", f"--array={new}", script).partition(";")[0]
            with (self.jobs / "agents.job").open("a") as file:
                file.write(f"{more.strip()}\n")
        for number in numbers if old else ():
            with suppress(UsageError):
                call("scancel", f"{number}_[{','.join(old)}]")

    def stop(self, *, interrupted: bool = False, reason: str = "stopped by command") -> None:
        """Begins the clean end of the run and returns at once; a core that waits is cancelled.

        Raises:
            UsageError: it neither waits nor runs, or Slurm refuses.
        """
        core = self._core()
        if not core:
            raise self._is_unsupervised()
        fields = {"interrupted": interrupted, "reason": reason}
        if core[0].state == _RUNNING:
            (self.jobs / "cancelled").touch()
            with suppress(WireError, UsageError):
                ask(
                    self._folder, "learner.control", "stop", fields, timeout_seconds=_ANSWER_SECONDS
                )
                return
        call("bash", str(self.jobs / "cancel.sh"))
        if core[0].state != _RUNNING:
            # No learner writes its end.
            finish_result(self._folder, self._folder.read_config(), {}, interrupted=True)

    def refuse_submitted(self) -> None:
        """Refuses a run whose core is in the queue.

        Raises:
            UsageError: it waits or runs.
        """
        if self._core():
            raise UsageError(
                f"job {self._numbers('core')[0]} is this run already; end it with: surreal-like "
                f"stop {self._folder}"
            )

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
        if not self._core():
            return super()._is_unsupervised()
        core = self._numbers("core")[0]
        return UsageError(
            f"run {self._folder} takes this command on the node of its core: srun --overlap "
            f"--jobid={core} surreal-like ..."
        )

    def _core(self) -> list[Job]:
        return find_jobs(self._numbers("core"))

    def _numbers(self, kind: str) -> list[str]:
        with suppress(FileNotFoundError):
            return (self.jobs / f"{kind}.job").read_text().split()
        return []
