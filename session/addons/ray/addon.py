"""Declares Ray as a launcher, with its settings and command."""

from __future__ import annotations

from session.addons import AddOn, Command, Launcher
from session.config.key import Key, section

_ROOM = "session.addons.ray"
RAY = section(
    "Job of a run on a Ray cluster.",
    {
        "address": Key(
            "",
            "Address for jobs, such as http://192.0.2.7:8265; empty: RAY_ADDRESS, or the cluster "
            "of this node.",
        ),
        "claim": Key(
            "runs",
            "Claim of the volume that rayjob.yaml mounts at the folder in which the run folder is.",
        ),
    },
)
ADD_ON = AddOn(
    keys={"session_config.ray": f"{_ROOM}.addon:RAY"},
    launchers=(
        Launcher(
            "ray",
            cluster=f"{_ROOM}.submission:RayCluster",
            control=f"{_ROOM}.run:RayRun",
            check=f"{_ROOM}.run:require_ray",
            plan="main.addons.submitted.plan:show_plan",
            format="job",
            advice="session.launchers.launcher:end_advice",
        ),
    ),
    commands=(
        Command(
            "ray-run",
            "operate",
            "RUN",
            "run a run as the job of a Ray cluster",
            "main.addons.ray.ray_run:run",
        ),
    ),
    needs=("engines", "submitted"),
    engines={"ray": f"{_ROOM}.engine:RayMachines"},
)
