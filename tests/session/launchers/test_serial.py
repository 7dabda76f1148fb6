"""The serial launcher: one thread, counted time, everything in turn."""

import json
import os
import re
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from session.errors import DeadlineError, UsageError
from session.folder import RunFolder
from session.launchers.handle import open_run
from session.launchers.launcher import Outcome
from session.launchers.serial import SerialLauncher
from session.process.component import Topology
from session.process.heartbeat import Beat, State, read_beats
from tests.session.launchers.parts import MODULE, drawn, make_config, make_run, make_topology

ACTS = {"loggerplex": "work", "replay-0": "work", "learner": "solve", "agent-0": "work"}
ROUNDS = 30_000


def make(
    path: Path, acts: Mapping[str, str] = ACTS, *, restarts: bool = False, **settings: Any
) -> SerialLauncher:
    config = make_config(acts, **settings)
    return SerialLauncher(config, make_topology(config), make_run(path, config), restarts=restarts)


def rounds(launcher: SerialLauncher, limit: int = ROUNDS) -> int:
    """Runs to the end; returns how many rounds that took."""
    for count in range(limit):
        launcher.poll()
        if not launcher.running:
            return count
    raise AssertionError(f"goes on after {limit} rounds")


def test_a_run_from_launch_to_its_end(run_folder: Path) -> None:
    launcher = make(run_folder, {**ACTS, "learner": "learn"})
    threads = len(os.listdir("/proc/self/task"))
    launcher.launch()
    assert len(os.listdir("/proc/self/task")) <= threads + 1  # the one that closes sockets
    folder = RunFolder(run_folder)
    assert folder.in_use
    assert launcher.running
    for _ in range(201):
        launcher.poll()
    assert [row.state for row in launcher.status()] == ["running"] * 4
    assert {each.state for each in read_beats(folder.alive).values()} == {"running"}
    launcher.stop(reason="solved")
    assert launcher.wait() == Outcome("stopped", "solved")
    assert len(os.listdir("/proc/self/task")) == threads
    assert not launcher.running
    launcher.poll()
    assert not folder.in_use
    assert {each.state for each in read_beats(folder.alive).values()} == {"done"}
    result = dict(folder.read_result() or {})
    ends = {name: (c["restarts"], c["exit_code"]) for name, c in result["components"].items()}
    assert ends == dict.fromkeys(ACTS, (0, 0))
    book = json.loads(folder.addresses.read_text())
    assert book["learner.control"]["bind"] == "inproc://learner.control"


def test_all_components_end_soon_after_the_learner(run_folder: Path) -> None:
    launcher = make(run_folder)
    launcher.launch()
    assert 100 <= rounds(launcher) < 150  # the learner works for 0.1 s: a hundred rounds


def test_servers_leave_before_telemetry(run_folder: Path) -> None:
    states: dict[str, str] = {}
    with make(run_folder) as launcher:
        launcher.launch()
        while launcher.running and states.get("replay-0") != "gone":
            launcher.poll()
            states = {row.name: row.state for row in launcher.status()}
    assert states == {
        "learner": "gone",
        "agent-0": "gone",
        "replay-0": "gone",
        "loggerplex": "running",
    }


@pytest.mark.parametrize(("kept", "begins"), [(41, 42), (1 << 60, 1), ("41", 1)])
def test_a_damaged_beat_is_no_earlier_start(run_folder: Path, kept: object, begins: int) -> None:
    beat = asdict(Beat("agent-0", 1, State.done, 1, 1.0)) | {"incarnation": kept}
    with make(run_folder) as launcher:
        folder = RunFolder(run_folder)
        folder.make_below()
        (folder.alive / "agent-0").write_text(json.dumps(beat))
        launcher.launch()
        launcher.poll()
        assert read_beats(folder.alive)["agent-0"].incarnation == begins


def events(path: Path) -> list[tuple[str, str]]:
    records = [json.loads(line) for line in RunFolder(path).events.read_text().splitlines()]
    return [(each["component"], each["event"]) for each in records if "event" in each]


def test_events_reach_the_log_to_the_last(run_folder: Path) -> None:
    make_and_run(run_folder)
    assert {(name, "start") for name in ACTS if name != "loggerplex"} <= set(events(run_folder))


def test_events_of_a_run_that_broke_reach_the_log(run_folder: Path) -> None:
    with make(run_folder, {**ACTS, "learner": "crash"}) as launcher:
        launcher.launch()
        assert "the environment is broken" in launcher.wait().details
    assert ("learner", "failed") in events(run_folder)


def make_and_run(path: Path, acts: Mapping[str, str] = ACTS) -> SerialLauncher:
    launcher = make(path, acts)
    launcher.launch()
    launcher.wait()
    return launcher


def test_two_runs_do_the_same(tmp_path: Path) -> None:
    acts = {"learner": "solve", "eval-0": "ask", "eval-1": "ask", "agent-0": "work"}
    notes = []
    for name in ("one", "two"):
        make_and_run(tmp_path / name, acts)
        notes.append([(tmp_path / name / f"eval-{i}.answers").read_text() for i in (0, 1)])
    assert notes[0] == notes[1]
    answers = json.loads(notes[0][0])
    assert len(answers) > 10
    assert answers == sorted(answers)


def test_numbers_of_the_global_generators_are_those_of_the_seed(tmp_path: Path) -> None:
    names = ("replay-0", "agent-0", "agent-1")
    acts = {"learner": "solve", **dict.fromkeys(names, "draw")}
    numbers = []
    for run in ("one", "two"):
        make_and_run(tmp_path / run, acts)
        numbers.append([number for name in names for number in drawn(tmp_path / run, name)])
    assert numbers[0] == numbers[1]
    assert len(set(numbers[0])) == 2 * len(names)


def test_stopping_asks_the_learner(run_folder: Path) -> None:
    launcher = make(run_folder, {**ACTS, "learner": "learn"})
    launcher.launch()
    for _ in range(300):
        launcher.poll()
    launcher.stop(interrupted=True)
    assert launcher.wait() == Outcome("interrupted", "interrupted")
    assert dict(RunFolder(run_folder).read_result() or {})["iterations"] == 7


def test_stopping_before_the_first_round(run_folder: Path) -> None:
    launcher = make(run_folder, {**ACTS, "learner": "learn"})
    launcher.launch()
    launcher.stop(interrupted=True)
    assert rounds(launcher) < 10
    assert launcher.outcome is not None
    assert launcher.outcome.status == "interrupted"


def test_a_component_that_does_not_end_is_closed(run_folder: Path) -> None:
    acts = {"replay-0": "stubborn", "learner": "solve", "eval-0": "stubborn"}
    launcher = make(run_folder, acts, grace_seconds=0.2)
    launcher.launch()
    assert rounds(launcher) < 1500
    assert launcher.outcome == Outcome("stopped", "solved")


def test_the_first_error_ends_the_run_in_order(run_folder: Path) -> None:
    acts = {"learner": "learn", "eval-0": "ask and break", "agent-0": "work"}
    launcher = make(run_folder, acts)
    launcher.launch()
    outcome = launcher.wait()
    assert re.fullmatch(
        r"eval-0: ValueError\('broken in a turn'\), in Asker\.tick \(.*parts\.py:\d+\)",
        outcome.reason,
    )
    assert outcome.details.endswith("ValueError: broken in a turn")
    assert "in tick" in outcome.details
    folder = RunFolder(run_folder)
    result = dict(folder.read_result() or {})
    assert (result["status"], result["reason"]) == ("failed", outcome.reason)
    codes = {name: c["exit_code"] for name, c in result["components"].items()}
    assert codes == {"learner": 0, "eval-0": 1, "agent-0": 0}
    assert not folder.in_use
    assert f"eval-0: {read_beats(folder.alive)['eval-0'].doing}" == outcome.reason


def test_an_error_of_the_library_is_one_line(run_folder: Path) -> None:
    launcher = make(run_folder, {"learner": "learn", "agent-0": "misconfigured"})
    launcher.launch()
    assert launcher.wait().details == "env_config.env_name is 'parts', which nobody knows"


def test_code_that_exits_fails_the_run(run_folder: Path) -> None:
    launcher = make(run_folder, {"learner": "learn", "eval-0": "ask and exit", "agent-0": "work"})
    launcher.launch()
    assert launcher.wait().reason.startswith("eval-0: SystemExit(), in ")


def test_the_component_that_failed_is_named_not_the_one_that_waited_for_it(
    run_folder: Path,
) -> None:
    """The learner breaks in the turn that it has while the evaluator waits."""
    launcher = make(run_folder, {"eval-0": "ask", "learner": "break"})
    launcher.launch()
    outcome = launcher.wait()
    assert outcome.reason.startswith("learner: ValueError('broken by a question'), in ")


def test_an_interrupt_between_two_lines_leaves_nothing_open(run_folder: Path) -> None:
    launcher = make(run_folder)
    launcher.launch()

    def interrupt() -> bool:
        raise KeyboardInterrupt

    launcher.frames.living()[0].step = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        launcher.wait()
    assert launcher.outcome is not None
    assert launcher.outcome.status == "interrupted"
    assert not RunFolder(run_folder).in_use


def test_a_component_that_is_killed_while_it_waits_is_started_again(run_folder: Path) -> None:
    """The learner is stopped; the evaluator in its turn waits for its reply, and is silent, too."""
    acts = {"loggerplex": "work", "learner": "learn", "eval-0": "ask"}
    launcher = make(run_folder, acts, timeout=0.3, restarts=True)
    launcher.launch()
    for _ in range(300):
        launcher.poll()
    launcher.frames.signal("learner", signal.SIGSTOP)
    seen = []
    while launcher.components()["eval-0"]["restarts"] == 0:
        seen += launcher.poll()
    assert ("eval-0", "restart") in [(each.component, each.kind) for each in seen]
    causes = [each.detail for each in seen if each.kind == "lost"]
    assert causes == ["gave no sign of life for 0 s while running"] * 2
    for _ in range(300):
        launcher.poll()
    # It was killed: the end of its wait is no error of its own.
    assert ("eval-0", "failed") not in events(run_folder)
    assert events(run_folder).count(("eval-0", "start")) == 2
    launcher.stop()
    assert launcher.wait().status == "stopped"


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_signal_ends_is_started_again(run_folder: Path, restarts: bool) -> None:
    launcher = make(run_folder, {**ACTS, "learner": "learn"}, restarts=restarts)
    launcher.launch()
    for name in launcher.components():
        for number in (signal.SIGTERM,) if name == "learner" else (signal.SIGTERM, signal.SIGINT):
            for _ in range(10):
                launcher.poll()
            before = launcher.components()[name]["restarts"]
            launcher.frames.signal(name, number)
            while launcher.components()[name]["restarts"] == before:
                launcher.poll()
                assert launcher.running
    launcher.stop()
    assert launcher.wait().status == "stopped"
    assert {each["exit_code"] for each in launcher.components().values()} == {0}


def test_killing_is_at_once(run_folder: Path) -> None:
    launcher = make(run_folder, {**ACTS, "learner": "learn"})
    launcher.launch()
    launcher.poll()
    launcher.kill()
    assert not launcher.running
    assert launcher.outcome is not None
    assert launcher.outcome.status == "interrupted"
    launcher.kill()


def test_modules_are_there_before_threads_are_set_and_threads_before_anything_is_built(
    run_folder: Path,
) -> None:
    seen: list[bool] = []
    config = make_config(ACTS)
    folder = make_run(run_folder, config)

    def prepare() -> None:
        seen.append(MODULE in sys.modules)
        assert read_beats(folder.alive) == {}

    launcher = SerialLauncher(config, make_topology(config), folder, prepare=prepare)
    launcher.launch()
    launcher.kill()
    assert seen == [True]


def test_own_modules_are_found_behind_all_others(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    config = make_config(ACTS)
    config.session_config.import_path = [str(tmp_path)]
    launcher = SerialLauncher(config, make_topology(config), make_run(run_folder, config))
    launcher.launch()
    # Behind all: first the folders that the config names, then what the run has kept of them.
    assert sys.path[-2:] == [str(tmp_path), str(run_folder / "code")]
    launcher.kill()


def test_another_process_cannot_command_it(run_folder: Path) -> None:
    with make(run_folder) as launcher:
        launcher.launch()
        with (
            open_run(run_folder) as adopted,
            pytest.raises(UsageError, match="runs in one thread: it takes no commands"),
        ):
            adopted.stop()


def test_waiting_has_a_deadline(run_folder: Path) -> None:
    with make(run_folder, {**ACTS, "learner": "learn"}) as launcher:
        launcher.launch()
        with pytest.raises(DeadlineError, match=r"goes on after 0\.05 s"):
            launcher.wait(0.05)


def test_a_run_that_was_never_launched_has_no_end(run_folder: Path) -> None:
    with pytest.raises(UsageError, match="never launched"):
        make(run_folder).wait()


def test_a_folder_in_use_is_left_alone(run_folder: Path) -> None:
    launcher, other = make(run_folder), RunFolder(run_folder)
    other.lock()
    with pytest.raises(UsageError, match="is in use"):
        launcher.launch()
    other.unlock()
    assert not RunFolder(run_folder).topology.exists()


@pytest.mark.parametrize("part", [1, 3])
def test_the_starts_of_a_component_that_sends_the_same_are_one_incarnation_in_a_part(
    run_folder: Path, part: int
) -> None:
    config = make_config({**ACTS, "learner": "learn"})
    config["run"] = {"part": part}
    plain = make_topology(config)
    topology = Topology(replace(each, sends="rows" * (each.kind == "agent")) for each in plain)
    launcher = SerialLauncher(config, topology, make_run(run_folder, config), restarts=True)
    launcher.launch()

    def incarnations() -> dict[str, int]:
        found = {each.context.name: each.context.incarnation for each in launcher.frames.living()}
        return {name: found.get(name, 0) for name in ("agent-0", "replay-0")}

    assert incarnations() == {"agent-0": part, "replay-0": part}
    for starts in (1, 2):
        for name in ("agent-0", "replay-0"):
            launcher.frames.signal(name, signal.SIGKILL)
        while min(restarts(launcher)) < starts:
            launcher.poll()
        assert incarnations() == {"agent-0": part, "replay-0": part + starts}
    launcher.stop()
    assert launcher.wait().status == "stopped"


def restarts(launcher: SerialLauncher) -> list[int]:
    found = launcher.components()
    return [int(found[name]["restarts"]) for name in ("agent-0", "replay-0")]
