"""Launches a run on a Slurm cluster: writes batch scripts and submits them."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping

from session.addons import hooks
from session.atomic_file import write_atomically
from session.config import Config
from session.errors import UsageError
from session.folder import RunFolder
from session.launchers.engines.machines import COMMAND
from session.launchers.handle import Cluster
from session.launchers.launcher import refuse_running, write_launch
from session.launchers.slurm.addon import JOB
from session.launchers.slurm.jobs import array_script, batch_script, call
from session.launchers.slurm.run import SlurmRun
from session.process.component import Topology, resources_of
from session.process.context import run_part
from session.wire.security import write_keys

# Machines that the token admits: each task of the array is one.
_MACHINES = 1000
_ADDRESS = r"""node=$(scontrol show node "$SLURMD_NODENAME")
host=$(sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p' <<<"$node")"""
# 75: it is saved, to be started again; 130: its learner had no time; 143: it had not begun.
_CORE_END = """if [ -n "$notice" ] && [ "$code" -ge 75 ] && [ ! -e "$jobs/cancelled" ]; then
  if goes_on; then scontrol requeue "$job"; fi
  exit "$code"
fi
xargs --no-run-if-empty scancel <"$jobs"/agents.job"""
_SUBMIT = """#!/bin/bash
# Begins the run, or goes on with it. The core is held until its agents are in the queue, too.
set -euo pipefail
cd {folder}
rm -f cancelled
core=$(sbatch --parsable --hold core.sbatch)
core=${{core%%;*}}
trap 'scancel "$core"' ERR
agents=$(sbatch --parsable --dependency="after:$core" agents.sbatch)
echo "$core" >core.job
echo "${{agents%%;*}}" >agents.job
scontrol release "$core"
"""
_CANCEL = """#!/bin/bash
# Ends the run: its core saves, is not requeued, and cancels the agents.
set -euo pipefail
cd {folder}
touch cancelled
core=$(<core.job)
scancel --state=RUNNING --batch --signal=TERM "$core"
if [ -n "$(squeue --noheader --states=PENDING --jobs="$core" 2>/dev/null)" ]; then
  xargs scancel "$core" <agents.job
fi
"""


class SlurmCluster(SlurmRun, Cluster):
    """Launches a run as jobs: one for the core, an array for the agents; then controls it.

    Args:
        config: the resolved experiment.
        topology: components of the run and their wiring.
        folder: the run folder, on a file system that all nodes share.

    Raises:
        UsageError: the run has no keys, or this installation has no ``join``.
    """

    name = "slurm"

    def __init__(self, config: Config, topology: Topology, folder: RunFolder) -> None:
        super().__init__(folder)
        if config.session_config.security.insecure:
            raise UsageError(
                "on slurm agents join by a token, which needs keys: leave insecure out"
            )
        self._config = config
        self._topology = Topology(each for each in topology if each.kind != "agent")

    def scripts(self) -> Mapping[str, str]:
        """Returns file name -> text of the batch scripts and of what submits and cancels them."""
        place = shlex.quote(str(self.jobs))
        return {
            "core.sbatch": self._core_script(),
            "agents.sbatch": self._agents_script(),
            "submit.sh": _SUBMIT.format(folder=place),
            "cancel.sh": _CANCEL.format(folder=place),
        }

    def _core_script(self) -> str:
        session, slurm = self._config.session_config, self._config.session_config.slurm
        command = [*COMMAND[:-1], "main.core"]
        return batch_script(
            str(self.jobs),
            {
                "job-name": self._folder.path.name,
                "output": f"{self.jobs}/core.out",
                "signal": "B:TERM@120",
                **{name: slurm[name] for name in JOB},
            },
            self._topology.requests(),
            f'{shlex.join([*command, "--folder", str(self._folder)])} --host "$host"',
            before=f"{session.launcher.preamble_cmd}\n{_ADDRESS}",
            after=_CORE_END,
        )

    def _agents_script(self) -> str:
        session, slurm = self._config.session_config, self._config.session_config.slurm
        count = max(1, int(session.agent.num))
        return array_script(
            str(self.jobs),
            {
                "job-name": f"{self._folder.path.name}-agents",
                "array": f"0-{count - 1}%{count}",
                **{name: slurm.agents[name] or slurm[name] for name in JOB},
            },
            resources_of(session, "agent"),
            [*COMMAND, "join", str(self._folder), "--keep-trying"],
            before=session.launcher.preamble_cmd,
        )

    def write(self) -> None:
        """Writes the run folder: config, keys, scripts, and the token of the agents.

        Raises:
            UsageError: a file cannot be written, or this installation has no ``join``.
        """
        make_token = next(hooks("token"), None)
        if make_token is None:
            raise UsageError("on slurm agents join the run: the add-on join is not here")
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
            UsageError: the run is in the queue already, or Slurm refuses; with Slurm's words.
        """
        refuse_running(self._folder)
        self.refuse_submitted()
        made = [each for each in (self.jobs, self._folder.keys) if not each.exists()]
        try:
            self.write()
            call("bash", str(self.jobs / "submit.sh"))
        except BaseException:
            for each in made:
                shutil.rmtree(each, ignore_errors=True)
            raise

    def dry_run(self) -> str:
        """Returns the text of all scripts."""
        texts = self.scripts().items()
        return "\n".join(f"# {self.jobs.name}/{name}\n{text}" for name, text in texts)
