"""The HParams page of TensorBoard: a session for each trial of a tuning that has ended."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from session.tensorplex.event_files import EventFiles
from surreal_like.tuning.setting_text import short_names
from surreal_like.tuning.state import Trial, TrialState

SCORE = "score"
# Curves of a trial: group, which is a folder below its session, and tag.
_CURVES = (("learner", "return/train"), ("learner", "return/greedy"))
_BOARD = "tensorboard"


def write_experiment(tuning: Path, keys: Sequence[str]) -> None:
    """Writes the columns of the page: settings, score, and curves of the return.

    Args:
        tuning: its folder, which is the log folder of TensorBoard.
        keys: of the settings.
    """
    from tensorboard.plugins.hparams import api_pb2, metadata

    curves = [("", SCORE), *_CURVES]
    experiment = api_pb2.Experiment(
        hparam_infos=[
            api_pb2.HParamInfo(name=name, description=key)
            for key, name in short_names(keys).items()
        ],
        metric_infos=[
            api_pb2.MetricInfo(name=api_pb2.MetricName(group=group, tag=tag))
            for group, tag in curves
        ],
        time_created_secs=time.time(),
    )
    _write(tuning, _BOARD, 0, [_value(metadata.EXPERIMENT_TAG, experiment=experiment)])


def write_session(tuning: Path, trial: Trial) -> None:
    """Writes a trial that has ended: its settings, its score, and whether it was given up.

    It replaces an earlier session of the trial.
    """
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

    names = short_names(trial.settings)
    start = plugin_data_pb2.SessionStartInfo(group_name=trial.name, start_time_secs=time.time())
    for key, value in trial.settings.items():
        if isinstance(value, bool):
            start.hparams[names[key]].bool_value = value
        elif isinstance(value, int | float):
            start.hparams[names[key]].number_value = value
        else:
            start.hparams[names[key]].string_value = str(value)
    given_up = trial.state is TrialState.error
    status = api_pb2.STATUS_FAILURE if given_up else api_pb2.STATUS_SUCCESS
    end = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=time.time())
    values = [
        _value(metadata.SESSION_START_INFO_TAG, session_start_info=start),
        _value(metadata.SESSION_END_INFO_TAG, session_end_info=end),
    ]
    if trial.score is not None:
        values.append(Summary.Value(tag=SCORE, simple_value=trial.score))
    _write(tuning, f"{trial.name}/{_BOARD}", int(trial.time), values)


def _value(tag: str, **content: Any) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    data = plugin_data_pb2.HParamsPluginData(**content)
    described: Mapping[str, Any] = {"metadata": metadata.create_summary_metadata(data)}
    return Summary.Value(tag=tag, tensor=metadata.NULL_TENSOR, **described)


def _write(tuning: Path, folder: str, step: int, values: list[Any]) -> None:
    """Writes values as the only event file of a folder; a full disk leaves none."""
    for old in (tuning / folder).glob("events.out.tfevents.*"):
        old.unlink(missing_ok=True)
    files = EventFiles(tuning)
    files.add(folder, time.time(), step, values)
    for file in files:
        file.flush()
