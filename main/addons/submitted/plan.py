"""``surreal-like plan --on slurm`` and ``ray``: shows the files of a run's jobs, or writes them."""

from __future__ import annotations

from pathlib import Path

from main.cli.plan import FORMATS, note, requests
from session.addons import load
from session.addons.submitted.run import SubmittedCluster
from session.folder import RunFolder
from session.launchers.handle import make_cluster
from session.launchers.registry import launcher_of
from session.program import path_from_here
from surreal_like.experiment.user_code import keep_code
from surreal_like.run.folder import held, new_path
from surreal_like.run.request import Plan, RunRequest


def show_plan(plan: Plan, shape: str, request: RunRequest) -> str:
    """Returns the scripts; with a folder they are written there, to be submitted later."""
    if shape in FORMATS:
        return FORMATS[shape](plan, Path())
    names = [each.name for each in plan.topology]
    advice = load(launcher_of(request.launcher).advice)(plan.config, names)
    for line in (f"the run requests {requests(plan.topology)}", *advice):
        note(line)
    path = Path(request.folder or new_path(request.name))
    if request.folder is None:
        return _cluster(plan, request, RunFolder(path)).dry_run().rstrip("\n")
    with held(path) as folder:
        cluster = _cluster(plan, request, folder)
        plan.config.session_config.folder = str(cluster.folder)
        keep_code(plan.config, folder)
        cluster.write()
    return f"written: {path}\nthen: bash {path_from_here(cluster.jobs)}/submit.sh"


def _cluster(plan: Plan, request: RunRequest, folder: RunFolder) -> SubmittedCluster:
    found = make_cluster(request.launcher, plan.config, plan.topology, folder)
    assert isinstance(found, SubmittedCluster)
    return found
