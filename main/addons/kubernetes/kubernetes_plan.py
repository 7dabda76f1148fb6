"""``surreal-like plan --on kubernetes``: shows the objects of a run, or writes them."""

from __future__ import annotations

from pathlib import Path

from main.cli.plan import FORMATS, note, requests
from session.addons.kubernetes.settings import warnings
from surreal_like.addons.kubernetes.experiment_objects import (
    kubernetes_setting,
    render,
    write_overlay,
)
from surreal_like.run.request import Plan, RunRequest


def show_plan(plan: Plan, shape: str, request: RunRequest) -> str:
    """Returns the plan for a cluster, with its addresses, its shutdown and TensorBoard."""
    folder = Path(request.folder) if request.folder else None
    setting = kubernetes_setting(plan.config, folder.name if folder is not None else request.name)
    for line in (f"the run requests {requests(setting.topology)}", *warnings(setting.config)):
        note(line)
    if shape != "yaml":
        return FORMATS[shape](Plan(setting.config, setting.topology), Path())
    if folder is None:
        return render(setting).rstrip("\n")
    overlay, single = write_overlay(setting, folder)
    return (
        f"written: {overlay}, {single}, and {overlay.parents[1] / 'base'} for all overlays\n"
        f"first the keys:  surreal-like keys {overlay}\n"
        f"then:  kubectl apply -k {overlay}\n"
        f"or:    surreal-like keys --secret {overlay} | kubectl apply -f -\n"
        f"       kubectl apply -f {single}"
    )
