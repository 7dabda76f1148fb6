"""Declares sinks of metrics beside TensorBoard."""

from __future__ import annotations

from session.addons import AddOn, SinkKind

_ROOM = "session.addons.sinks"
# File of the run folder with the points of the sink csv.
CSV_FILE = "metrics.csv"
ADD_ON = AddOn(
    sinks={
        "csv": SinkKind(f"{_ROOM}.csv_file:CsvFile", file=CSV_FILE),
        "wandb": SinkKind(f"{_ROOM}.weights_and_biases:WeightsAndBiases", ("wandb",)),
        "mlflow": SinkKind(f"{_ROOM}.ml_flow:MlFlow", ("mlflow", "sqlalchemy", "alembic")),
    }
)
