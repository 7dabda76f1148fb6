"""Launches a run on a Slurm cluster: writes batch scripts and submits them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from session.addons.engines.machines import COMMAND, keep_trying
from session.addons.slurm.addon import JOB
from session.addons.slurm.jobs import CORE_NOTICE_SECONDS, array_script, batch_script, call, notice
from session.addons.slurm.run import SlurmRun
from session.addons.submitted.run import SubmittedCluster
from session.process.component import resources_of

_ADDRESS = r"""node=$(scontrol show node "$SLURMD_NODENAME")
host=$(sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p' <<<"$node")"""
_CORE_END = """# After a notice it is begun again. 75: it is saved; 130: its learner had no time
# for that; 143: it had not begun. After any other end no agent stays.
if [ -n "$notice" ] && [ "$code" -ge 75 ] && [ ! -e "$jobs/cancelled" ]; then
  requeue
  exit "$code"
fi
xargs --no-run-if-empty scancel <"$jobs"/agents.job"""
_CORE_GONE = """# A core that was cancelled alone does not come back.
core=$(<"$jobs"/core.job)
# This job itself is listed in any case.
if queue=$(squeue --noheader --jobs="$core,$job" --format=%A); then
  grep -qx "$core" <<<"$queue" || exit "$code"
fi
"""
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


class SlurmCluster(SlurmRun, SubmittedCluster):
    """Launches a run as jobs: one for the core, an array for the agents; then controls it."""

    name = "slurm"

    def scripts(self) -> Mapping[str, str]:
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
                "signal": notice(CORE_NOTICE_SECONDS),
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
            [*COMMAND, "join", str(self._folder), *keep_trying(slurm.agents_wait_seconds)],
            before=session.launcher.preamble_cmd,
            after=_CORE_GONE,
        )

    def submit(self) -> None:
        call("bash", str(self.jobs / "submit.sh"))
