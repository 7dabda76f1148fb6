"""Sink `mlflow`: a run of an MLflow experiment."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mlflow.entities import Metric, Param, RunTag
from mlflow.tracking import MlflowClient

from session.tensorplex.groups import curve_name
from session.tensorplex.sinks.sink import Point, ShownRun, Sink

_EXPERIMENT = "surreal_like"
_IDENTITY = "surreal_like.run"
# Limits of MLflow: parameters of one call, letters of a value.
_PARAMETERS = 100
_LETTERS = 6000

_Item = TypeVar("_Item")


class MlFlow(Sink):
    """Logs curves over environment steps to the server of ``MLFLOW_TRACKING_URI``.

    Without that variable it writes ``mlflow/mlflow.db`` in the run folder. A resumed run goes on in
    the run of its name; a setting that has changed since is a tag with its new value, because
    MLflow keeps parameters as they were.
    """

    def __init__(self, run: ShownRun) -> None:
        # What it logs goes to standard error, where lines of a component are errors.
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        local = run.folder.path.absolute() / "mlflow"
        server = os.environ.get("MLFLOW_TRACKING_URI")
        if not server:
            local.mkdir(exist_ok=True)
        self._client = MlflowClient(server or f"sqlite:///{local / 'mlflow.db'}")
        artifacts = None if server else (local / "artifacts").as_uri()
        self._id = self._run_of(run, artifacts)
        self._client.update_run(self._id, "RUNNING")
        known = self._client.get_run(self._id).data.params
        texts = [(curve_name(key), str(value)[:_LETTERS]) for key, value in run.parameters.items()]
        for some in _parts([text for text in texts if text[0] not in known], _PARAMETERS):
            self._client.log_batch(self._id, params=[Param(*text) for text in some])
        changed = [text for text in texts if known.get(text[0], text[1]) != text[1]]
        for some in _parts(changed, _PARAMETERS):
            self._client.log_batch(self._id, tags=[RunTag(*text) for text in some])

    def _run_of(self, run: ShownRun, artifacts: str | None) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _EXPERIMENT)
        known = self._client.get_experiment_by_name(name)
        place = known.experiment_id if known else self._client.create_experiment(name, artifacts)
        same = f"tags.`{_IDENTITY}` = '{run.identity}'"
        for found in self._client.search_runs([place], same, max_results=1):
            return str(found.info.run_id)
        tags = {_IDENTITY: run.identity}
        return str(self._client.create_run(place, run_name=run.name, tags=tags).info.run_id)

    def add(self, points: Sequence[Point]) -> None:
        """Logs points."""
        metrics = [
            Metric(point.place.title, point.value, int(1000 * point.time), point.step)
            for point in points
        ]
        self._client.log_batch(self._id, metrics=metrics)

    def end(self, result: Mapping[str, Any], pictures: Sequence[Path]) -> None:
        """Adds result and pictures, and ends the run."""
        if result:
            self._client.log_dict(self._id, dict(result), "result.json")
        for picture in pictures:
            self._client.log_artifact(self._id, str(picture))
        status = {"": "RUNNING", "failed": "FAILED"}.get(result.get("status", ""), "FINISHED")
        self._client.set_terminated(self._id, status)


def _parts(items: Sequence[_Item], most: int) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), most):
        yield items[start : start + most]
