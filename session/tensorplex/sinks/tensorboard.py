"""Sink `tensorboard`: one event file for each process, with a layout and hyperparameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as layout_metadata
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from tensorboard.plugins.text.summary_v2 import text_pb

from session.tensorplex.event_files import EventFile, summary_values
from session.tensorplex.groups import Place
from session.tensorplex.sinks.sink import Arrays, Record, ShownRun, Sink

_STRING = 7  # DT_STRING of TensorFlow
# Page CUSTOM SCALARS: section -> chart -> patterns of the tags in it. The first comes first.
LAYOUT: Mapping[str, Mapping[str, Sequence[str]]] = {
    "overview": {
        "return/greedy": ["^return/greedy$"],
        "return/train": ["^return/train$"],
        "steps per second": ["^steps_per_second/"],
        "lag": ["^lag/"],
    },
    "agents": {
        "return": ["^agent/return:"],
        "steps per second": ["^agent/steps_per_second:"],
        "version lag": ["^agent/version_lag:"],
    },
    "learner": {
        "loss": ["^learn/(.+/)?loss$"],
        "waiting share": ["^performance/waiting_share$"],
        "rows in replay": ["^replay/(size|sampleable)$"],
    },
}

# Curve -> a second name that stands before all others where TensorBoard sorts names: under Time
# Series and in the columns of HParams. Capital letters come before small ones.
FIRST: Mapping[str, str] = {"return/greedy": "Overview/return_greedy"}


class TensorBoard(Sink):
    """Writes metrics of every kind into ``tensorboard/`` of the run folder."""

    def __init__(self, run: ShownRun) -> None:
        self._run = run
        self._file = EventFile(run.folder.tensorboard, run.began)
        self.files = (self._file,)
        values = [_layout(), *text_pb("config", _in_markdown(run.parameters)).value]
        # The page HPARAMS has the trials of a tuning by the tuner.
        self._in_table = not (run.config.get("run") or {}).get("trial")
        if self._in_table:
            values.append(session_start(run.name, _hyperparameters(run), run.began))
        self._file.add_values(run.began, 0, values)

    def store(self, record: Record, arrays: Arrays, place: Callable[[str], Place]) -> None:
        """Stores one metric.

        Raises:
            LookupError, TypeError, ValueError: the record is malformed.
        """
        values = summary_values(record, arrays, lambda tag: place(tag).title)
        for value in [each for each in values if each.tag in FIRST]:
            values.append(Summary.Value(tag=FIRST[value.tag], simple_value=value.simple_value))
        self._file.add_values(record["time"], record["step"], values)

    def end(self, result: Mapping[str, Any], pictures: Sequence[Path]) -> None:
        """Ends the row of the page HPARAMS."""
        if result and self._in_table:
            now = self._run.began + float(result.get("wall_seconds", 0.0))
            ended = session_end(now, failed=result["status"] == "failed")
            self._file.add_values(now, 0, [ended])


def session_start(name: str, settings: Mapping[str, Any], now: float) -> Any:
    """Returns the summary value of a row of the page HPARAMS: its settings.

    Args:
        name: name of the row.
        settings: column -> value.
        now: seconds since 1970.
    """
    start = plugin_data_pb2.SessionStartInfo(group_name=name, start_time_secs=now)
    for column, value in settings.items():
        if isinstance(value, bool):
            start.hparams[column].bool_value = value
        elif isinstance(value, int | float):
            start.hparams[column].number_value = value
        else:
            start.hparams[column].string_value = str(value)
    return hyperparameter_value(metadata.SESSION_START_INFO_TAG, session_start_info=start)


def session_end(now: float, *, failed: bool) -> Any:
    """Returns the summary value that ends a row of the page HPARAMS."""
    status = api_pb2.STATUS_FAILURE if failed else api_pb2.STATUS_SUCCESS
    end = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=now)
    return hyperparameter_value(metadata.SESSION_END_INFO_TAG, session_end_info=end)


def hyperparameter_value(tag: str, **content: Any) -> Any:
    """Returns a summary value of the plugin of hyperparameters."""
    data = plugin_data_pb2.HParamsPluginData(**content)
    described: Mapping[str, Any] = {"metadata": metadata.create_summary_metadata(data)}
    return Summary.Value(tag=tag, tensor=metadata.NULL_TENSOR, **described)


def _layout() -> Any:
    layout = layout_pb2.Layout(
        category=[
            layout_pb2.Category(
                title=section,
                chart=[
                    layout_pb2.Chart(
                        title=title, multiline=layout_pb2.MultilineChartContent(tag=patterns)
                    )
                    for title, patterns in charts.items()
                ],
            )
            for section, charts in LAYOUT.items()
        ]
    )
    tensor = TensorProto(dtype=_STRING, string_val=[layout.SerializeToString()])
    described: Mapping[str, Any] = {"metadata": layout_metadata.create_summary_metadata()}
    return Summary.Value(tag=layout_metadata.CONFIG_SUMMARY_TAG, tensor=tensor, **described)


def _in_markdown(parameters: Mapping[str, Any]) -> str:
    return "\n".join(f"    {key}: {json.dumps(value)}" for key, value in parameters.items())


def _hyperparameters(run: ShownRun) -> dict[str, Any]:
    """Returns the columns of a run: what it learns, its goal, its settings but for defaults."""
    stop = run.config.session_config.stop
    goal = {key: stop[key] for key in ("eval_return", "eval_returns", "metric") if stop[key]}
    return {
        "algorithm": run.config.algorithm,
        "environment": run.config.env_config.env_name,
        "seed": run.config.session_config.seed,
        "goal": ", ".join(f"{key} {value}" for key, value in goal.items()) or "none",
        **{key.removeprefix("learner_config."): value for key, value in run.changed.items()},
    }
