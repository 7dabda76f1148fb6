"""Curves read back from event files: all folders, all restarts, with and without bins."""

from pathlib import Path

import pytest

from session.folder import RunFolder
from surreal_like.analysis.run_curves import EventCurves
from tests.session.made_run import made_events, made_run


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = made_run(tmp_path / "run")
    made_events(folder, "learner", "learn/loss", {10: 1.0, 20: 0.5})
    made_events(folder, "agent/0", "agent/return/0-7", {10: 3.0})
    made_events(folder, "agent/1", "agent/return/0-7", {10: 5.0, 30: 6.0})
    made_events(folder, "learner", "metrics/level/7", {10: 2.0})
    return folder


def test_tags_are_known_without_their_bin(folder: RunFolder) -> None:
    assert EventCurves(folder.tensorboard).tags() == {
        "agent/return": ["agent/0", "agent/1"],
        "learn/loss": ["learner"],
        "metrics/level/7": ["learner"],
    }


@pytest.mark.parametrize("tag", ["agent/return", "agent/return/0-7"])
def test_a_tag_is_found_in_every_folder(folder: RunFolder, tag: str) -> None:
    curves = EventCurves(folder.tensorboard).curves(tag)
    assert {place: (curve.x, curve.y) for place, curve in curves.items()} == {
        "agent/0": ([10.0], [3.0]),
        "agent/1": ([10.0, 30.0], [5.0, 6.0]),
    }


def test_what_a_restart_wrote_again_replaces_what_stood_there(folder: RunFolder) -> None:
    made_events(folder, "learner", "learn/loss", {20: 0.4, 30: 0.3})
    curve = EventCurves(folder.tensorboard).curves("learn/loss")["learner"]
    assert curve.x == [10.0, 20.0, 30.0]
    assert curve.y == pytest.approx([1.0, 0.4, 0.3])


def test_a_run_without_event_files_has_no_curves(tmp_path: Path) -> None:
    events = EventCurves(tmp_path)
    assert events.tags() == {}
    assert events.curves("learn/loss") == {}
