"""Declares Slurm as a launcher, with its settings."""

from __future__ import annotations

from session.addons import AddOn, Launcher
from session.config.key import FROM_1, Key, section

_ROOM = "session.addons.slurm"
JOB = {
    "partition": ("Partition", "Slurm's default"),
    "account": ("Account", "the user's default"),
    "time": (
        "Time limit of a job, such as 4:00:00; the run goes on in the next",
        "the partition's",
    ),
    "sbatch": ("Further options of sbatch, such as --qos=high --constraint=a100", "none"),
}
SLURM = section(
    "Jobs of a run on a Slurm cluster: the core, and an array of agents.",
    {
        **{name: Key("", f"{text}; empty: {usual}.") for name, (text, usual) in JOB.items()},
        "agents": section(
            "The same for the agents, which may be pre-empted.",
            {name: Key("", f"{text}; empty: as the core.") for name, (text, _) in JOB.items()},
        ),
        "agents_wait_seconds": Key(
            120.0,
            "Time for which agents without a core hold their places; then they go to the end of "
            "the queue, because the core may need these.",
            unit="s",
            within=FROM_1,
        ),
    },
)
ADD_ON = AddOn(
    keys={"session_config.slurm": f"{_ROOM}.addon:SLURM"},
    launchers=(
        Launcher(
            "slurm",
            cluster=f"{_ROOM}.submission:SlurmCluster",
            control=f"{_ROOM}.run:SlurmRun",
            check=f"{_ROOM}.jobs:require_slurm",
            plan="main.addons.submitted.plan:show_plan",
            format="sbatch",
            advice="session.launchers.launcher:end_advice",
        ),
    ),
    engines={"slurm": f"{_ROOM}.engine:SlurmMachines"},
    needs=("engines", "submitted"),
)
