"""Environments that are made anew, in whole runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.command import balanced, clean
from tests.runs.faulty import MODULE
from tests.runs.serial_faults import Ended, SerialRun, play_twice


def crash(run: SerialRun) -> None:
    """Does nothing: the environment crashes by itself."""


@pytest.mark.slow
def test_an_environment_that_crashes_is_made_anew_and_no_row_is_lost(tmp_path: Path) -> None:
    shaky = {
        "env_config.env_name": f"{MODULE}:Shaky",
        "env_config.on_error": "restart",
        "env_config.max_env_restarts": 1000,
        "learner_config.replay.samples_per_insert": 0.5,
    }
    ended: Ended = play_twice(tmp_path, crash, **shaky)
    assert ended.result["env_restarts"] > 5
    assert clean(ended.result)
    assert balanced(ended.result)
    assert not [each for each in ended.events if each["event"] == "lost"]
