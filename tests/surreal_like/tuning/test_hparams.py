"""The HParams page of TensorBoard, as its plugin reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import api_pb2, metadata

from surreal_like.tuning.result import write_experiment, write_session
from surreal_like.tuning.state import Trial, TrialState

RATE = "learner_config.algo.learning_rate.start"


def read(folder: Path) -> Any:
    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def content(folder: Path, tag: str) -> bytes:
    plugin = read(folder).SummaryMetadata(tag).plugin_data
    assert plugin.plugin_name == "hparams"
    assert isinstance(plugin.content, bytes)
    return plugin.content


def test_a_session_has_settings_state_and_score(tmp_path: Path) -> None:
    write_experiment(tmp_path, [RATE, "learner_config.algo.rule"])
    found = metadata.parse_experiment_plugin_data(
        content(tmp_path / "tensorboard", metadata.EXPERIMENT_TAG)
    )
    assert [each.name for each in found.hparam_infos] == ["learning_rate", "rule"]
    assert [each.name.tag for each in found.metric_infos][:2] == ["score", "return/train"]

    settings = {RATE: 0.5, "learner_config.algo.rule": "adam", "learner_config.algo.on": True}
    trial = Trial("trial-003", settings, TrialState.terminated, time=700.0, score=12.5)
    board = tmp_path / "trial-003" / "tensorboard"
    for state, status in (("error", "STATUS_FAILURE"), ("terminated", "STATUS_SUCCESS")):
        trial.state = TrialState(state)
        # The second one replaces the first one.
        write_session(tmp_path, trial)
        assert len(list(board.iterdir())) == 1
        end = metadata.parse_session_end_info_plugin_data(
            content(board, metadata.SESSION_END_INFO_TAG)
        )
        assert api_pb2.Status.Name(end.status) == status
    start = metadata.parse_session_start_info_plugin_data(
        content(board, metadata.SESSION_START_INFO_TAG)
    )
    assert start.hparams["learning_rate"].number_value == 0.5
    assert start.hparams["rule"].string_value == "adam"
    assert start.hparams["on"].bool_value is True
    [score] = read(board).Scalars("score")
    assert (score.step, score.value) == (700, 12.5)
