"""Declares Kubernetes as a launcher, with its settings and commands."""

from __future__ import annotations

from session.addons import AddOn, Command, Launcher

_ROOM = "session.addons.kubernetes"
ADD_ON = AddOn(
    keys={"session_config.kubernetes": f"{_ROOM}.defaults:KUBERNETES"},
    launchers=(
        Launcher(
            "kubernetes",
            cluster=f"{_ROOM}.cluster:KubernetesCluster",
            control=f"{_ROOM}.run:KubernetesRun",
            plan="main.addons.kubernetes.kubernetes_plan:show_plan",
            format="yaml",
            advice=f"{_ROOM}.settings:launch_advice",
            idle=f"{_ROOM}.settings:idle_note",
            remote=True,
        ),
    ),
    commands=(
        Command(
            "probe",
            "operate",
            "RUN COMPONENT",
            "exit code 0 if a component is alive",
            "main.addons.kubernetes.probe:run",
        ),
        Command(
            "keys",
            "operate",
            "OVERLAY",
            "create the encryption keys of a Kubernetes run",
            "main.addons.kubernetes.keys:run",
        ),
    ),
    engines={"kubernetes": f"{_ROOM}.engine:KubernetesMachines"},
    needs=("engines",),
    files=("k8s",),
)
