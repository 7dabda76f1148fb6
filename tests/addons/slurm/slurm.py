"""A real Slurm on this machine: slurmctld and two slurmd in namespaces of their own.

It needs root, and Debian's package slurm-wlm. Its processes are in a namespace of processes: with
the first of them all of them end, the jobs included.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.polling import until

NODES = ("n1", "n2")
_CONF = """
ClusterName=rig
SlurmctldHost=login(10.88.0.10)
SlurmUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
EnforcePartLimits=ALL
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
ReturnToService=2
KillWait={kill_wait}
MinJobAge=600
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
{nodes}
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=60 State=UP
PartitionName=spot Nodes=n1,n2 MaxTime=60 State=UP
"""
_NODE = (
    "NodeName={name} NodeHostname=login NodeAddr=10.88.0.{number} Port={port} "
    "CPUs=16 RealMemory=64000 State=UNKNOWN"
)
# The first process of the namespace: it ends with its standard input.
_INIT = """
set -e
hostname login
ip link set lo up
for number in 1 2 10; do ip address add 10.88.0.$number/32 dev lo; done
mkdir -p {folder}/state
slurmctld -D -c &
for name in n1 n2; do mkdir -p {folder}/spool-$name; slurmd -D -N $name & done
read -r _ || true
"""


class Slurm:
    """A cluster that runs.

    Args:
        pid: first process of its namespaces.
        environment: environment of commands on its login node.
    """

    def __init__(self, pid: int, environment: Mapping[str, str]) -> None:
        self._pid = pid
        self._environment = dict(environment)

    def run(
        self, *command: str, check: bool = True, cwd: Path | None = None, seconds: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command on the login node."""
        return subprocess.run(
            self.command(*command),
            env=self._environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            check=check,
            timeout=seconds,
        )

    def command(self, *command: str) -> Sequence[str]:
        """The command line that runs a command on the login node."""
        where = ("--net", "--uts", "--mount", "--pid")
        return ["nsenter", f"--target={self._pid}", *where, "--wd", "--", *command]

    def put_on_path(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Makes Slurm's programs those of the login node, for this process."""
        folder.mkdir()
        for name in ("sbatch", "scancel", "scontrol", "squeue"):
            program = shutil.which(name)
            assert program is not None
            # Jobs get the environment of sbatch, and are in the namespaces already.
            words = shlex.join(["env", f"PATH={os.environ['PATH']}", *self.command("env")])
            text = f'#!/bin/sh\nexec {words} --chdir="$PWD" {program} "$@"\n'
            (folder / name).write_text(text)
            (folder / name).chmod(0o700)
        monkeypatch.setenv("SLURM_CONF", self._environment["SLURM_CONF"])
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def jobs(self, fields: str = "%i %T %N") -> list[str]:
        """The jobs that wait or run, one a line."""
        return self.run("squeue", "--noheader", "--array", f"--format={fields}").stdout.splitlines()


@contextmanager
def slurm(folder: Path, *, kill_wait: int = 10) -> Iterator[Slurm]:
    """Starts a cluster of two nodes with 16 processors each, and ends it with all its jobs.

    Args:
        folder: place of its files.
        kill_wait: seconds from SIGTERM to SIGKILL at the end of a job.
    """
    nodes = [_NODE.format(name=n, number=i, port=17000 + i) for i, n in enumerate(NODES, 1)]
    conf = folder / "slurm.conf"
    conf.write_text(_CONF.format(folder=folder, kill_wait=kill_wait, nodes="\n".join(nodes)))
    environment = {**os.environ, "SLURM_CONF": str(conf)}
    first = subprocess.Popen(
        [
            *("unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc"),
            *("--kill-child", "bash", "-c", _INIT.format(folder=folder)),
        ],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        pid = until(lambda: _child(first.pid), seconds=10)
        rig = Slurm(pid, environment)
        until(lambda: _idle(rig), seconds=60, what=lambda: (folder / "slurmctld.log").read_text())
        yield rig
    finally:
        with suppress(ProcessLookupError):
            os.kill(first.pid, signal.SIGKILL)
        first.communicate(timeout=30)


def _child(pid: int) -> int:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(found[0]) if found else 0


def _idle(rig: Slurm) -> bool:
    said = rig.run("sinfo", "--noheader", "--partition=main", "--format=%T %D", check=False)
    return said.stdout.split() == ["idle", str(len(NODES))]
