"""What is shown of a run while it goes on, from the files that it writes."""

from __future__ import annotations

import io
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from main.cli.live_observer import LiveTable
from main.cli.live_table import render
from main.cli.progress_lines import Lines, event_line
from session.config import Config
from session.folder import RunFolder
from session.launchers.instruction import Event
from session.process.heartbeat import Beat, State, write_beat
from session.show.run_view import RunView
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve

COMPONENTS = {"agent-0": {"restarts": 0}}


@pytest.fixture(scope="module")
def config() -> Config:
    words = ["session_config.stop={eval_return: 475, env_steps: 10_000, seconds: 100}"]
    return resolve(read_experiment(None, words, algorithm="dqn", env_name="toy:chain"))


class Writer:
    """Writes into a run folder what its components would."""

    def __init__(self, path: Path, config: Config) -> None:
        self.folder = RunFolder(path)
        self.folder.create()
        config.dump_file(self.folder.config)

    def line(self, env_steps: int, best: float | None = None, **changed: Any) -> None:
        score = {"mean_return": best, "episodes": 100, "env_steps": env_steps, "iteration": 5}
        line = {
            "wall_seconds": env_steps / 100,
            "env_steps": env_steps,
            "iterations": env_steps // 10,
            "episodes": 7,
            "train": {"mean_return_100": 12.5},
            "eval": score if best is not None else None,
            "best_eval": score if best is not None else None,
            "rates": {
                "env_steps_per_second": 200.0,
                "updates_per_second": 20.0,
                "samples_per_insert": 8.0,
            },
            "lag": {"mean_versions": 1.5, "mean_updates": 15.0, "max_versions": 3},
            "replay": {"size": 50_000},
        }
        with self.folder.progress.open("a") as file:
            file.write(json.dumps({**line, **changed}) + "\n")

    def event(self, component: str, kind: str, detail: str, **fields: Any) -> None:
        event = {"time": 1.0, "component": component, "event": kind, "detail": detail}
        with self.folder.events.open("a") as file:
            file.write(json.dumps(event | fields) + "\n")

    def beat(
        self, name: str, state: str, *, age: float = 0.0, doing: str = "", busy: float = 0.0
    ) -> None:
        beat = Beat(name, 1, State(state), 1, time.time() - age, busy, doing)
        write_beat(self.folder.alive, beat)


@pytest.fixture
def writer(tmp_path: Path, config: Config) -> Writer:
    return Writer(tmp_path / "r", config)


# -- lines ----------------------------------------------------------------------------------------


class LinesOf:
    """Lines on a clock that is set by hand."""

    def __init__(self, writer: Writer, config: Config) -> None:
        self.stream = io.StringIO()
        self.now = 0.0
        self.lines = Lines(self.stream, clock=lambda: self.now)
        self.lines.begin(writer.folder, config)
        self.pop()

    def pop(self) -> list[str]:
        """Return the lines since the last call."""
        lines = self.stream.getvalue().splitlines()
        self.stream.seek(0)
        self.stream.truncate()
        return lines

    def look(self, now: float) -> list[str]:
        self.now = now
        self.lines.on_components(COMPONENTS)
        return self.pop()


def test_progress_is_shown_at_most_every_two_seconds(writer: Writer, config: Config) -> None:
    shown = LinesOf(writer, config)
    assert shown.look(0.0) == []
    writer.line(0)
    assert shown.look(0.5) == []
    writer.line(1000)
    (line,) = shown.look(1.0)
    assert line == (
        "00:10  env steps 1,000 (200/s)  updates 100 (20/s)  training return 12.5  lag 1.5  "
        "replay 50 %  10 % of env_steps, 00:45 left"
    )
    writer.line(2000)
    assert shown.look(2.9) == []
    assert shown.look(3.1) == []
    writer.line(3000)
    assert shown.look(3.2)[0].startswith("00:30")


def test_progress_of_an_old_run_is_shown_more_rarely(writer: Writer, config: Config) -> None:
    shown = LinesOf(writer, config)
    lines = 0
    for now in range(0, 4 * 3600, 20):
        writer.line(1000 + now)
        lines += len(shown.look(float(now)))
    assert 50 < lines < 200


def test_a_metric_without_a_report_is_mentioned_once(tmp_path: Path, config: Config) -> None:
    wanted = config.copy()
    wanted.session_config.stop = {**config.session_config.stop, "metric": "abc", "above": 3}
    writer = Writer(tmp_path / "r", wanted)
    shown = LinesOf(writer, wanted)
    writer.line(1000, episodes=99)
    assert "abc" not in str(shown.look(1.0))
    writer.line(2000, episodes=100, metrics={"my/score": {"mean": 1.0}})
    missing = [line for line in shown.look(5.0) if "no episode has reported the metric abc" in line]
    assert "reported are: my/score" in missing[0]
    writer.line(3000, episodes=200)
    assert "abc" not in str(shown.look(9.0))


def test_a_new_best_is_shown_once(writer: Writer, config: Config) -> None:
    shown = LinesOf(writer, config)
    writer.line(0, best=1.0)
    assert shown.look(0.0) == []
    writer.line(1000, best=20.0)
    best, line = shown.look(10.0)
    assert best == "best greedy return so far: 20.0 over 100 episodes, at 1,000 env steps"
    assert "greedy 20.0, best 20.0" in line
    writer.line(1100, best=20.0)
    assert shown.look(10.1) == []


def test_a_run_without_agents_shows_updates(writer: Writer, config: Config) -> None:
    shown = LinesOf(writer, config)
    writer.line(0)
    assert shown.look(0.0) == []
    writer.line(0, wall_seconds=10.0, iterations=70)
    (line,) = shown.look(10.0)
    assert "updates 70" in line
    assert "env steps" not in line
    event = {"event": "evaluation", "mean_return": 20.0, "episodes": 4, "env_steps": 0}
    assert event_line({**event, "iteration": 70}).endswith("over 4 episodes, at 70 updates")


def test_evaluations_of_a_mode_that_does_not_judge_are_shown_apart(
    writer: Writer, config: Config
) -> None:
    shown = LinesOf(writer, config)
    score = {"mean_return": 90.0, "episodes": 100, "env_steps": 1000, "mode": "eval_stochastic"}
    writer.event("learner", "evaluation", "mean return 90.00, eval_stochastic", **score)
    writer.line(1000, best=20.0, eval_stochastic=score)
    best, line = shown.look(0.0)
    assert best == "best greedy return so far: 20.0 over 100 episodes, at 1,000 env steps"
    assert "greedy 20.0, best 20.0  stochastic 90.0" in line
    view = RunView(writer.folder, config)
    view.refresh()
    console = Console(file=io.StringIO(), width=120)
    console.print(render(view, 1.0))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"stochastic return +90\.0 +does not judge", text)


def test_the_numbers_of_a_long_run_fit_into_80_columns(writer: Writer, config: Config) -> None:
    rates = {"env_steps_per_second": 2160.0, "updates_per_second": 500.0, "samples_per_insert": 9.0}
    lag = {"mean_versions": 480.5, "mean_updates": 12_345.0, "max_versions": 900}
    writer.line(399_999, best=9000.0, rates=rates, lag=lag, waiting_share=0.25)
    view = RunView(writer.folder, config)
    view.refresh()
    stream = io.StringIO()
    Console(file=stream, width=80).print(render(view, 1.0))
    assert "versions, 12,345 updates" in stream.getvalue()
    assert re.search(r"learner waits +25 %", stream.getvalue())
    assert "…" not in stream.getvalue()


def test_the_end_is_shown_in_its_order(writer: Writer, config: Config) -> None:
    """The report that has the best evaluation comes up to a second after the events of the end."""
    shown = LinesOf(writer, config)
    score = {"mean_return": 3.0, "episodes": 100, "env_steps": 0}
    writer.event("learner", "evaluation", "mean return 3.00 over 100 episodes", **score)
    for mean in (500.0, 480.0):
        score = {"mean_return": mean, "episodes": 100, "env_steps": 1000}
        writer.event("learner", "evaluation", f"mean return {mean} over 100 episodes", **score)
    writer.event("learner", "evaluation", "mean return 499.00 over 100 episodes (again)", **score)
    writer.event("learner", "ending", "eval_return 475 reached")
    best = "best greedy return so far: 500.0 over 100 episodes, at 1,000 env steps"
    assert shown.look(0.0) == [
        best,
        "the same on new episodes: mean return 499.00 over 100 episodes",
        "ending: eval_return 475 reached",
    ]
    writer.line(1000, best=500.0)
    (line,) = shown.look(0.1)
    assert "best 500.0" in line


def test_events_are_shown_but_not_again_and_again(writer: Writer, config: Config) -> None:
    shown = LinesOf(writer, config)
    writer.event("learner", "evaluation", "mean return 5.00 over 100 episodes")
    writer.event("learner", "checkpoint", "iteration 5")
    assert shown.look(0.0) == []
    writer.event("learner", "evaluation", "mean return 500.00 over 100 episodes (again)")
    writer.event("learner", "ending", "eval_return 475 reached")
    assert shown.look(0.1) == [
        "the same on new episodes: mean return 500.00 over 100 episodes",
        "ending: eval_return 475 reached",
    ]
    for _ in range(10):
        writer.event("replay-0", "refused", "a message\nof nobody")
    assert shown.look(0.2) == ["replay-0: refused: a message of nobody"] * 3


def test_what_the_launcher_does_is_shown(writer: Writer, config: Config) -> None:
    shown = LinesOf(writer, config)
    shown.lines.on_event(Event("agent-0", "lost", "killed by SIGKILL"))
    shown.lines.on_event(Event("agent-0", "restart"))
    shown.lines.on_event(Event("learner", "ended"))
    shown.lines.on_event(Event("", "stop", "interrupted"))
    shown.lines.on_event(Event("", "stop", "surreal-like stop"))
    assert shown.pop() == [
        "agent-0: lost: killed by SIGKILL",
        "agent-0: restart",
        "run: stop: surreal-like stop",
    ]


def test_what_an_earlier_part_of_a_run_left_is_not_shown_again(
    writer: Writer, config: Config
) -> None:
    writer.line(1000, best=20.0)
    writer.event("learner", "ending", "interrupted")
    shown = LinesOf(writer, config)
    assert shown.look(0.0) == []
    writer.line(1100, best=20.0)
    (line,) = shown.look(10.0)
    assert line.startswith("00:11")


# -- the live table -------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A stream that takes control sequences."""

    def isatty(self) -> bool:
        return True


def test_the_live_table_draws_only_what_has_changed(
    writer: Writer, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("main.cli.live_observer._DRAW_SECONDS", 1e-9)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    clock = time.time()
    monkeypatch.setattr("time.time", lambda: clock)
    table = LiveTable(stream, clock - 14.0)
    table.prepare(writer.folder.path)
    assert "preparing" in stream.getvalue()
    table.begin(writer.folder, config)
    writer.line(1000, best=20.0)
    table.on_components(COMPONENTS)
    assert "greedy return" in stream.getvalue()
    assert "00:14  best greedy return so far: 20.0" in stream.getvalue()
    drawn = len(stream.getvalue())
    table.on_components(COMPONENTS)
    assert len(stream.getvalue()) == drawn
    table.on_components({"agent-0": {"restarts": 1}})
    assert "restarted 1x" in stream.getvalue()[drawn:]
    # An event stands at its own time; a budget of seconds on the clock at the head.
    writer.event("learner", "ending", "eval_return 475 reached", time=clock - 2.2)
    table.on_components(COMPONENTS)
    assert "00:11  ending: eval_return 475 reached" in stream.getvalue()
    assert "00:14 of 01:40" in stream.getvalue()
    table.on_event(Event("agent-0", "lost", "killed by SIGKILL"))
    table.on_message("stopping cleanly")
    assert "00:14  agent-0: lost: killed by SIGKILL" in stream.getvalue()
    table.end()
    table.end()
    assert stream.getvalue().endswith("\x1b[?25h") or "\x1b[?25h" in stream.getvalue()[drawn:]


def test_a_live_table_that_was_never_prepared_ends_quietly() -> None:
    stream = Terminal()
    table = LiveTable(stream, time.time())
    table.on_components(COMPONENTS)
    table.on_message("nobody sees this")
    table.end()
    assert stream.getvalue() == ""
