"""Sink `wandb`: a run of Weights & Biases."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import requests

from session.tensorplex.groups import counts_rows
from session.tensorplex.sinks.sink import Point, ShownRun, Sink

_PROJECT = "surreal_like"


class WeightsAndBiases(Sink):
    """Logs curves over environment steps, with wandb's own variables for project, key and mode.

    Without a key and without ``WANDB_MODE`` it writes an offline run into ``wandb/`` of the run
    folder, for ``wandb sync``. A resumed run goes on in the run of its name.
    """

    def __init__(self, run: ShownRun) -> None:
        self._scratch = run.folder.path / "wandb" / ".scratch"
        wandb = self._wandb = _import(self._scratch)
        mode: Any = os.environ.get("WANDB_MODE") or ("online" if _has_key() else "offline")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            name=run.name,
            id=run.identity,
            resume="allow",
            mode=mode,
            dir=str(run.folder),
            config=run.parameters,
            settings=wandb.Settings(console="off", silent=True, disable_git=True),
        )
        self._run.define_metric("*", step_metric="env_steps")
        self._run.define_metric("replay.core/*", step_metric="rows")

    def add(self, points: Sequence[Point]) -> None:
        """Logs points; those of one component and step together."""
        rows: dict[tuple[str, int], dict[str, float]] = {}
        for point in points:
            axis = "rows" if counts_rows(point.place.component) else "env_steps"
            row = rows.setdefault((point.place.component, point.step), {axis: point.step})
            row[point.place.title] = point.value
        for row in rows.values():
            self._run.log(row)

    def end(self, result: Mapping[str, Any], pictures: Sequence[Path]) -> None:
        """Adds result and pictures, and waits for the upload."""
        for name, value in result.items():
            self._run.summary[f"result/{name}"] = value
        for picture in pictures:
            self._run.log({picture.stem: self._wandb.Image(str(picture))})
        self._run.finish(exit_code=int(result.get("status") == "failed"))
        self._wandb.teardown()
        shutil.rmtree(self._scratch, ignore_errors=True)


def _import(scratch: Path) -> Any:
    """Imports wandb, which makes temporary folders that a forked process does not remove."""
    scratch.mkdir(parents=True, exist_ok=True)
    before, tempfile.tempdir = tempfile.tempdir, str(scratch)
    try:
        import wandb
    finally:
        tempfile.tempdir = before
    return wandb


def _has_key() -> bool:
    address = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
    return bool(os.environ.get("WANDB_API_KEY") or requests.utils.get_netrc_auth(address))
