"""Controls a run on a Slurm cluster from any machine that shares its folder."""

from __future__ import annotations

from contextlib import suppress

from session.addons.slurm.jobs import call, find_jobs
from session.addons.submitted.run import Core, SubmittedRun
from session.errors import UsageError

_RUNNING = "RUNNING"
_MANY = 1000


class SlurmRun(SubmittedRun):
    """Controls a run whose core and agents are jobs, with the same commands as any other run."""

    place = "slurm"
    on_node = "srun --overlap --jobid={job} surreal-like ..."

    def find_core(self) -> Core | None:
        numbers = self._numbers("core")
        jobs = find_jobs(numbers)
        if not jobs:
            return None
        state = jobs[0].state
        return Core(numbers[0], state == _RUNNING, f"{state}: {jobs[0].reason}")

    def cancel(self) -> None:
        call("bash", str(self.jobs / "cancel.sh"))

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
        if not self.running:
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

    def _numbers(self, kind: str) -> list[str]:
        with suppress(FileNotFoundError):
            return (self.jobs / f"{kind}.job").read_text().split()
        return []
