"""Curves read back from event files: all components, all restarts."""

from pathlib import Path

import pytest

from session.folder import RunFolder
from surreal_like.addons.analysis.run_curves import EventCurves
from tests.session.made_run import made_events, made_run


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = made_run(tmp_path / "run")
    made_events(folder, "learn/loss", {10: 1.0, 20: 0.5})
    made_events(folder, "agent/return:agent-0", {10: 3.0})
    made_events(folder, "agent/return:agent-1", {10: 5.0, 30: 6.0})
    made_events(folder, "metrics/level/7", {10: 2.0})
    return folder


def test_tags_are_known_with_their_components(folder: RunFolder) -> None:
    assert EventCurves(folder.tensorboard).tags() == {
        "agent/return": ["agent-0", "agent-1"],
        "learn/loss": ["learner"],
        "metrics/level/7": ["learner"],
    }


def test_a_tag_is_found_in_every_component(folder: RunFolder) -> None:
    events = EventCurves(folder.tensorboard)
    assert list(events.curves("agent/return:agent-1")) == ["agent-1"]
    curves = events.curves("agent/return")
    assert {place: (curve.x, curve.y) for place, curve in curves.items()} == {
        "agent-0": ([10.0], [3.0]),
        "agent-1": ([10.0, 30.0], [5.0, 6.0]),
    }


def test_what_a_restart_wrote_again_replaces_what_stood_there(folder: RunFolder) -> None:
    made_events(folder, "learn/loss", {20: 0.4, 30: 0.3})
    curve = EventCurves(folder.tensorboard).curves("learn/loss")["learner"]
    assert curve.x == [10.0, 20.0, 30.0]
    assert curve.y == pytest.approx([1.0, 0.4, 0.3])


def test_a_run_without_event_files_has_no_curves(tmp_path: Path) -> None:
    events = EventCurves(tmp_path)
    assert events.tags() == {}
    assert events.curves("learn/loss") == {}
