"""The dashboard's widgets, without a browser: what they show, and what their buttons do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session.addons.analysis.dashboard import Dashboard, Panel
from session.errors import MissingExtra, RefusedError
from tests.polling import until
from tests.session.fake_run import FakeRun, status
from tests.session.made_run import made_config, made_line, made_run

LOG = """\
2025-01-31 12:00:00.123 INFO     agent-0: <b>start</b>
2025-01-31 12:00:01.123 ERROR    agent-0: broken
"""


@pytest.fixture
def run(tmp_path: Path) -> FakeRun:
    config = made_config(session_config__stop__eval_return=10)
    folder = made_run(tmp_path / "run", [made_line(100, greedy=3.0)], config=config)
    (folder.logs / "agent-0.log").write_text(LOG)
    return FakeRun(folder)


@pytest.fixture
def panel(run: FakeRun) -> Iterator[Panel]:
    """Return a panel that refreshes itself so seldom that it is quiet during a test."""
    panel = Dashboard(run).show(interval_seconds=60.0)
    yield panel
    panel.close()


def find(panel: Panel, kind: str, text: str = "") -> Any:
    """Return the first widget of a kind, with a text on it."""

    def look(widget: Any) -> Iterator[Any]:
        if type(widget).__name__ == kind and text in f"{getattr(widget, 'description', '')}":
            yield widget
        for child in getattr(widget, "children", ()):
            yield from look(child)

    return next(look(panel.widget))


def said(panel: Panel) -> str:
    return str(panel._message.value)


def test_it_shows_numbers_components_and_curves(panel: Panel) -> None:
    assert "greedy return" in panel._head.value
    assert "agent-1" in panel._table.value
    assert bytes(find(panel, "Image").value).startswith(b"\x89PNG")
    assert find(panel, "Dropdown").options == ("learner", "agent-0", "agent-1")


def test_what_a_component_says_is_shown_as_text(panel: Panel) -> None:
    assert "no output of learner" in panel._log.value
    find(panel, "Dropdown").value = "agent-0"
    assert "&lt;b&gt;start&lt;/b&gt;" in panel._log.value
    find(panel, "ToggleButtons").value = "errors"
    assert "start" not in panel._log.value
    assert "broken" in panel._log.value
    find(panel, "Dropdown").value = "learner"
    assert "no errors of learner" in panel._log.value


def test_buttons_add_remove_kill_restart_and_stop(panel: Panel, run: FakeRun) -> None:
    find(panel, "Button", "Add").click()
    assert "3 agents wanted" in said(panel)
    find(panel, "Button", "Remove").click()
    assert "2 agents wanted" in said(panel)
    find(panel, "Dropdown").value = "agent-0"
    find(panel, "Button", "Restart").click()
    find(panel, "Button", "Kill").click()
    assert "has no process on this machine" in said(panel)
    find(panel, "Button", "Stop").click()
    assert "the run is ending" in said(panel)
    assert run.commands == [
        ("agent", 3),
        ("agent", 2),
        ("restart", "agent-0"),
        ("stop", True, "stopped from the dashboard"),
    ]


def test_a_run_that_refuses_is_quoted(
    panel: Panel, run: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*words: object) -> None:
        raise RefusedError("the run is ending <now>")

    monkeypatch.setattr(run, "scale", refuse)
    find(panel, "Button", "Add").click()
    assert "the run is ending &lt;now&gt;" in said(panel)


def test_it_refreshes_itself_until_the_run_is_over(run: FakeRun) -> None:
    panel = Dashboard(run).show(interval_seconds=0.01)
    run.rows["eval-7"] = status("eval-7")
    until(lambda: "eval-7" in panel._table.value)
    find(panel, "Dropdown").value = "eval-7"
    run.rows["eval-8"] = status("eval-8")
    until(lambda: "eval-8" in find(panel, "Dropdown").options)
    assert find(panel, "Dropdown").value == "eval-7"
    run.stop()
    until(lambda: not panel._thread.is_alive())
    assert find(panel, "Button", "Add").disabled


def test_what_fails_while_refreshing_is_shown_and_not_the_end(
    run: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = Dashboard(run).show(interval_seconds=0.01)

    def fail() -> None:
        raise ValueError("odd")

    with monkeypatch.context() as patch:
        patch.setattr(run, "status", fail)
        until(lambda: "ValueError" in said(panel))
    run.rows["eval-7"] = status("eval-7")
    until(lambda: "eval-7" in panel._table.value)
    panel.close()
    assert not panel._thread.is_alive()


def test_the_next_panel_replaces_the_one_before(run: FakeRun) -> None:
    board = Dashboard(run)
    first = board.show(interval_seconds=60.0)
    second = board.show(interval_seconds=60.0)
    assert not first._thread.is_alive()
    assert second._thread.is_alive()
    board.close()
    assert not second._thread.is_alive()


def test_without_ipywidgets_the_extra_is_named(
    run: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(MissingExtra, match=r"\[notebook\]"):
        Dashboard(run).show()


def test_without_matplotlib_the_extra_is_named(
    run: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"\[plot\]"):
        Dashboard(run).figure()
