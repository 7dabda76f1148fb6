"""Machines that are tasks of an array on a Slurm cluster."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

from session.addons.engines.machines import Machines, MachineSpec, machine_name
from session.addons.slurm.addon import JOB
from session.addons.slurm.jobs import array_script, call, find_jobs
from session.atomic_file import write_atomically
from session.errors import UsageError
from session.launchers.instruction import Event
from session.process.periodic import wait_until

_RUNNING = "RUNNING"
# Slurm's controller serves many users.
_LOOK_SECONDS = 2.0
# Between two starts of a machine that ends.
_AGAIN_SECONDS = 10.0
_END_SECONDS = 120.0


class SlurmMachines(Machines):
    """Runs each machine as one task; one that loses its node is requeued by Slurm.

    Args:
        spec: what they run; its folder is on a file system that all nodes share.

    Raises:
        UsageError: there is no sbatch, or Slurm refuses such a job.
    """

    name = "slurm"
    options = {name: text for name, (text, _) in JOB.items()}  # noqa: RUF012 - as in Machines

    def __init__(self, spec: MachineSpec) -> None:
        super().__init__(spec)
        self._script, self._token = spec.folder / "array.sbatch", spec.folder / "token"
        self._wanted = 0
        self._numbers: list[str] = []
        self._states: dict[int, str] = {}
        self._submitted_at: dict[int, float] = {}
        self._look_at = 0.0
        self._text = array_script(
            str(spec.folder),
            {"job-name": "surreal-like-join", **spec.options},
            spec.resources,
            spec.command,
        )
        call("sbatch", "--test-only", given=self._text)

    def want(self, number: int) -> None:
        self._wanted = number

    @property
    def num(self) -> int:
        return list(self._states.values()).count(_RUNNING)

    def _poll(self) -> Iterator[Event]:
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_SECONDS
        yield from self._look()
        due = (
            task
            for task in range(self._wanted)
            if task not in self._states
            and now - self._submitted_at.get(task, -_AGAIN_SECONDS) >= _AGAIN_SECONDS
        )
        if tasks := list(due):
            self._submit(tasks, now)
        self._cancel(task for task in self._states if task >= self._wanted)

    def _look(self) -> list[Event]:
        """Returns what has changed since the last look."""
        jobs = find_jobs(self._numbers)
        self._numbers = list(dict.fromkeys(job.array for job in jobs))
        before, self._states = self._states, {job.task: job.state for job in jobs}
        events = []
        for task in sorted(before.keys() | self._states.keys()):
            was, now = before.get(task) == _RUNNING, self._states.get(task) == _RUNNING
            if now and not was:
                events.append(Event(machine_name(task), "started"))
            elif was and task not in self._states and task >= self._wanted:
                events.append(Event(machine_name(task), "ended"))
            elif was and not now and task < self._wanted:
                state = self._states.get(task, "its job has ended")
                events.append(Event(machine_name(task), "lost", state))
        return events

    def _submit(self, tasks: Iterable[int], now: float) -> None:
        array, spec = ",".join(map(str, tasks)), self._spec
        spec.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(self._token, f"{spec.token}\n", private=True)
        write_atomically(self._script, self._text)
        said = call("sbatch", "--parsable", f"--array={array}", str(self._script))
        self._numbers.append(said.strip().partition(";")[0])
        self._submitted_at |= dict.fromkeys(tasks, now)

    def _cancel(self, tasks: Iterable[int]) -> None:
        chosen = ",".join(map(str, tasks))
        for number in self._numbers if chosen else ():
            with suppress(UsageError):
                call("scancel", f"{number}_[{chosen}]")

    def close(self) -> None:
        self._wanted = 0
        self._token.unlink(missing_ok=True)
        wait_until(self._have_ended, _END_SECONDS, look_seconds=_LOOK_SECONDS / 4)
        if self._numbers:
            raise UsageError(
                f"jobs of machines are left, because Slurm does not answer: end them with: "
                f"scancel {' '.join(self._numbers)}"
            )

    def _have_ended(self) -> bool:
        """Cancels the jobs; returns True once Slurm knows none of them any more."""
        with suppress(UsageError):
            if self._numbers:
                call("scancel", *self._numbers)
            self._look()
        return not self._numbers
