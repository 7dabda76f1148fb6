"""Slurm's programs as functions, and the text of batch scripts."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Mapping
from math import ceil
from pathlib import Path
from typing import NamedTuple

from session.addons.engines.engine_program import call_program
from session.addons.engines.machines import GIVEN_UP
from session.errors import ConfigError, UsageError
from session.process.component import TOKEN, Resources

_MIB = 1 << 20
# Slurm sends its notice so long before a job ends: the core saves and is requeued, a machine
# leaves the run and is requeued.
CORE_NOTICE_SECONDS, _MACHINE_NOTICE_SECONDS = 120, 30
_BODY = """
jobs={folder}
job=${{SLURM_ARRAY_JOB_ID:+${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID}}
job=${{job:-$SLURM_JOB_ID}}
# A job that was cancelled, or is requeued by others, does not run any more. Slurm's controller
# may be away for a while.
requeue() {{
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    if state=$(squeue --noheader --jobs="$job" --format=%T); then
      [ "$state" = RUNNING ] || return
      scontrol requeue "$job" && return
    fi
    sleep 2
  done
}}
# This shell gets the notice of the end, and passes the first one on to its command.
notice=
# shellcheck disable=SC2317  # the trap calls it
pass_on() {{
  notice=1
  # Not '': a command that begins after this would ignore SIGTERM, too. It has no traps.
  trap : TERM
  if [ -n "${{run:-}}" ]; then kill -TERM "$run" 2>/dev/null; fi
}}
trap pass_on TERM
echo "job $job, start $((${{SLURM_RESTART_COUNT:-0}} + 1)), on $SLURMD_NODENAME"
{before}
{command} &
run=$!
# The notice came before the command.
if [ -n "$notice" ]; then kill -TERM "$run"; fi
wait "$run"
code=$?
# A signal interrupts wait; the command goes on until it has saved.
while kill -0 "$run" 2>/dev/null; do
  wait "$run"
  code=$?
done
{after}
exit "$code"
"""


class Job(NamedTuple):
    """A job in the queue; one of an array is a task.

    Args:
        array: number of the job, or of its array.
        task: number in its array, 0 of other jobs.
        state: state, such as ``PENDING`` or ``RUNNING``.
        reason: reason for which it waits, as Slurm says it.
    """

    array: str
    task: int
    state: str
    reason: str


def require_slurm() -> None:
    """Rejects a machine without Slurm's programs.

    Raises:
        UsageError: there is no sbatch.
    """
    if shutil.which("sbatch") is None:
        raise UsageError(
            "there is no sbatch here: --on slurm is for a machine from which jobs are submitted"
        )


def call(*command: str, given: str = "") -> str:
    """Runs one of Slurm's programs on a text, and returns its output.

    Raises:
        UsageError: it is missing, or refused; in one line, with its own words.
    """
    require_slurm()

    def explain(said: str) -> str:
        words = [line.partition("error: ")[2] or line for line in said.splitlines() if line]
        return f"Slurm refuses: {'; '.join(words) or f'{command[0]} failed'}"

    return call_program(command, explain, given=given)


def find_jobs(numbers: Iterable[str]) -> list[Job]:
    """Returns the jobs and tasks of these numbers that wait or run.

    Raises:
        UsageError: Slurm does not answer.
    """
    wanted = ",".join(numbers)
    if not wanted:
        return []
    try:
        said = call("squeue", "--noheader", "--array", f"--jobs={wanted}", "--format=%F|%K|%T|%r")
    except UsageError as error:
        # Slurm forgets a job some minutes after its end.
        if "Invalid job id" in str(error):
            return []
        raise
    lines = (line.split("|", 3) for line in said.splitlines())
    return [
        Job(array, int(task) if task.isdecimal() else 0, state, why)
        for array, task, state, why in lines
    ]


def batch_script(
    folder: str,
    options: Mapping[str, str],
    needs: Resources,
    command: str,
    *,
    before: str = "",
    after: str = "",
) -> str:
    """Returns a batch script that runs one command and passes the notice of its end on.

    Args:
        folder: folder of the jobs' files; ``$jobs`` in the script.
        options: long option of sbatch -> value; those with an empty value are left out. That of
            ``sbatch`` are further options as a user writes them.
        needs: resources of the job, on one node.
        command: line of the shell.
        before, after: lines of the shell before and after the command; afterwards ``$code`` is its
            exit code, and ``$notice`` is not empty if the job was asked to end.

    Raises:
        ConfigError: a value has several lines.
    """
    given = {
        "chdir": str(Path.cwd()),
        "nodes": "1",
        "ntasks": "1",
        "cpus-per-task": str(max(1, ceil(needs.cpu))),
        "mem": f"{ceil(needs.memory_bytes / _MIB)}M",
        "gpus": str(needs.gpu or ""),
        **options,
    }
    further = given.pop("sbatch", "")
    words = [f"--{name}={shlex.quote(value)}" for name, value in given.items() if value]
    lines = ["--requeue --open-mode=append", *words, *([further] if further else [])]
    if wrong := next((line for line in lines if "\n" in line), ""):
        raise ConfigError(f"session_config.slurm: {wrong!r} has several lines, expected one")
    body = _BODY.format(
        folder=shlex.quote(folder),
        command=command,
        before=before,
        after=after,
    )
    return "\n".join(["#!/bin/bash", *(f"#SBATCH {line}" for line in lines)]) + f"\n{body}"


def notice(seconds: int) -> str:
    """Returns the option by which Slurm sends SIGTERM to the script before its job ends."""
    return f"B:TERM@{seconds}"


def array_script(
    folder: str,
    options: Mapping[str, str],
    needs: Resources,
    command: Iterable[str],
    *,
    before: str = "",
    after: str = "",
) -> str:
    """Returns the batch script of an array of machines that join a run.

    A machine leaves the run 30 s before its time ends, and is requeued. One that has given up its
    run (exit code 75) is requeued, too. The token comes from the file ``token`` in the folder; the
    keys of machine k are in its folder ``machine-k``.

    Args:
        folder, options, needs, before, after: arguments of :func:`batch_script`.
        command: words of the command, without its token and folder.
    """
    token = f'{TOKEN}=$(<"$jobs/token")\nexport {TOKEN}'
    return batch_script(
        folder,
        {
            "output": f"{folder}/machine-%a.txt",
            "signal": notice(_MACHINE_NOTICE_SECONDS),
            **options,
        },
        needs,
        f'{shlex.join(command)} --folder "$jobs/machine-$SLURM_ARRAY_TASK_ID"',
        before=f"{before}\n{token}" if before else token,
        after=f'{after}if [ -n "$notice" ] || [ "$code" = {GIVEN_UP} ]; then requeue; fi',
    )
