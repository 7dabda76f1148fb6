"""Each invariant sees what breaks it, in the files of a run that is over."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import surreal_like
from session.folder import RunFolder
from surreal_like.addons.chaos.faults import DISK, KILL, STOP, Fault, Plan
from surreal_like.addons.chaos.invariants import AT_THE_END, INVARIANTS, RunFiles, check

KILLS = Plan(KILL, "agent", 10.0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run that has ended."""
    folder = tmp_path_factory.mktemp("chaos") / "run"
    words = [
        "learner_config.replay={min_size: 64, capacity: 2000, samples_per_insert: 1.0}",
        "session_config.stop={env_steps: 400, eval_episodes: 4}",
    ]
    ended = surreal_like.train(
        algorithm="dqn", env="toy:chain", folder=folder, launcher="serial", overrides=words
    )
    assert ended.ok
    return folder


@pytest.fixture
def run(saved: Path, tmp_path: Path) -> Iterator[RunFolder]:
    folder = RunFolder(shutil.copytree(saved, tmp_path / "run"))
    yield folder
    shutil.rmtree(folder.sockets, ignore_errors=True)


def edit(path: Path, change: Callable[[Any], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def add_line(path: Path, line: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def change_result(change: Callable[[Any], object]) -> Callable[[RunFolder], None]:
    return lambda run: edit(run.result, change)


def leave_socket(run: RunFolder) -> None:
    run.sockets.mkdir(exist_ok=True)
    (run.sockets / "ps.requests").touch()


BREAKS: dict[str, Callable[[RunFolder], object]] = {
    "the run ends in order": change_result(lambda found: found.update(status="failed")),
    "every row is accounted for": change_result(
        lambda found: found["experience"].update(pushed=found["experience"]["pushed"] + 1)
    ),
    "no acknowledged row is lost": change_result(lambda found: found["experience"].update(lost=5)),
    "no counter falls": lambda run: add_line(run.progress, {**run.last_progress(), "env_steps": 1}),
    "samples per insert stay in their band": change_result(
        lambda found: found["experience"].update(sampled=10**6)
    ),
    "memory stays under its cap": lambda run: add_line(
        run.events, {"event": "memory", "detail": "97 % used", "time": 0}
    ),
    "nothing is left behind": leave_socket,
}


def broken(run: RunFolder, *faults: Fault) -> dict[str, list[str]]:
    return {name: texts for name, texts in check(RunFiles(run, faults)).items() if texts}


@pytest.mark.parametrize("name", BREAKS)
def test_what_breaks_an_invariant_is_said(run: RunFolder, name: str) -> None:
    assert not broken(run)
    BREAKS[name](run)
    assert [*broken(run)] == [name]


def test_every_invariant_is_broken_in_a_test() -> None:
    assert {*BREAKS, "every component comes back", "each fault is reported once"} == {*INVARIANTS}


def test_faults_must_be_reported_and_over(run: RunFolder) -> None:
    back = Fault(KILLS, "agent-0", 1.0, 1, recovered_seconds=0.5)
    assert [*broken(run, back)] == ["each fault is reported once"]
    add_line(run.events, {"event": "lost", "detail": "agent-0: killed by SIGKILL", "time": 0})
    assert not broken(run, back)
    add_line(run.events, {"event": "lost", "detail": "agent-0: killed by SIGKILL", "time": 0})
    assert [*broken(run, back)] == ["each fault is reported once"]
    full = Fault(Plan(DISK, "", 10.0), "", 1.0, recovered_seconds=3.0)
    assert [*broken(run, back, full)] == ["each fault is reported once"]
    away = Fault(KILLS, "agent-0", 5.0, 1)
    assert [*broken(run, back, away)] == ["every component comes back"]
    away.cut_off = True
    assert not broken(run, back, away)


def test_a_process_that_went_on_after_a_stop_is_not_lost(run: RunFolder) -> None:
    stopped = Fault(Plan(STOP, "agent", 10.0), "agent-0", 1.0, 1, recovered_seconds=21.0)
    assert [*broken(run, stopped)] == ["each fault is reported once"]
    stopped.survived = True
    assert not broken(run, stopped)


def test_of_a_run_that_goes_on_less_is_said(run: RunFolder) -> None:
    edit(run.result, lambda found: found.update(status="running"))
    assert {*check(RunFiles(run, ()))} == {*INVARIANTS} - {*AT_THE_END}
    assert not broken(run)
    newest = run.last_progress()
    add_line(run.progress, {**newest, "experience": {**newest["experience"], "lost": 5}})
    assert [*broken(run)] == ["no acknowledged row is lost"]


def test_rows_may_be_lost_where_they_are_not_kept(run: RunFolder) -> None:
    BREAKS["no acknowledged row is lost"](run)
    text = run.config.read_text()
    assert text.count("keep: auto") == 1
    run.config.write_text(text.replace("keep: auto", "keep: none"))
    assert not broken(run)
