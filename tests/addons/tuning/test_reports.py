"""The dialogue between the learner of a trial and its tuning, over real sockets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from session.errors import RefusedError
from session.folder import RunFolder
from session.process.heartbeat import State, read_beat
from session.run_connection import Client
from session.wire import AddressBook, Message
from session.wire.requests import Request
from session.wire.socket_state import poll
from surreal_like.addons.tuning import reporter as module
from surreal_like.addons.tuning.handle import Control, Reported
from surreal_like.addons.tuning.reporter import (
    CONTROL,
    MEMORY_BYTES,
    REPORTS,
    TrialBeat,
    TrialReporter,
)
from surreal_like.addons.tuning.state import Answer
from tests.session.made_run import made_line
from tests.session.wire.rig import until

CONFIG = {"report_every": 100.0, "report_by": "env_steps", "report_timeout_seconds": 60.0}
LINE = made_line(100, training=1.5)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.alive.mkdir()
    folder.addresses.write_text(AddressBook.ipc([CONTROL], tmp_path).dump())
    return folder


@contextmanager
def tuner(folder: RunFolder) -> Iterator[Control]:
    with Client(AddressBook.load(folder.addresses), "tuner") as client:
        yield Control(client.router(CONTROL, REPORTS), ["trial-000"])


class Asking(threading.Thread):
    """Asks in another thread."""

    def __init__(self, reporter: TrialReporter) -> None:
        super().__init__()
        self._reporter = reporter
        self.found: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.found = self._reporter.ask(LINE)
        except RefusedError as error:
            self.found = error

    def result(self, control: Control) -> Any:
        """Its result, while the tuner goes on without a new report."""
        until(lambda: quiet(control) and not self.is_alive())
        return self.found


def quiet(control: Control) -> bool:
    poll([control.socket], 0.01)
    assert control.receive() is None
    return True


def receive(control: Control) -> Reported:
    found: list[Reported] = []

    def look() -> bool:
        poll([control.socket], 0.05)
        reported = control.receive()
        found.extend([] if reported is None else [reported])
        return bool(found)

    until(look)
    return found[0]


def make(folder: RunFolder, steps: int = 0, **config: Any) -> TrialReporter:
    return TrialReporter(folder, "trial-000", CONFIG | config, at(steps))


def at(steps: float) -> dict[str, float]:
    return {"env_steps": steps, "iterations": steps, "seconds": steps}


@pytest.mark.parametrize("by", ["env_steps", "iterations", "seconds"])
def test_due_at_multiples(folder: RunFolder, by: str) -> None:
    def at(time: int) -> dict[str, float]:
        return {"env_steps": 0, "iterations": 0, "seconds": 0.0, by: time}

    reporter = TrialReporter(folder, "trial-000", CONFIG | {"report_by": by}, at(250))
    assert not reporter.due(at(299))
    assert reporter.due(at(300))
    assert reporter.begin(at(555)) == 5
    assert not reporter.due(at(599))
    assert reporter.due(at(600))


def test_reports_go_on_from_the_time_of_weights_that_were_loaded(folder: RunFolder) -> None:
    reporter = make(folder, 1150)
    assert reporter.begin(at(1201)) == 12
    reporter.on_load(at(950))
    assert not reporter.due(at(999))
    assert reporter.due(at(1000))
    # Numbers rise, so that the tuner does not take it for an older report.
    assert reporter.begin(at(1010)) == 13
    assert not reporter.due(at(1099))
    reporter.on_load(at(3000))
    assert reporter.begin(at(3100)) == 31


def test_a_dialogue(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.02)
    reporter = make(folder)
    reporter.begin(at(120))
    with tuner(folder) as control:
        asking = Asking(reporter)
        first = receive(control)
        assert (first.trial, first.time, first.line) == (0, 120.0, LINE)
        # The same report comes again: it is no new one.
        received = control.socket.counters.received
        until(lambda: quiet(control) and control.socket.counters.received > received + 3)
        control.answer(Answer(0, first.report, "save"))
        assert asking.result(control).kind == "save"
        asking = Asking(reporter)
        second = receive(control)
        assert second.report == (first.report[0], 1, 1)
        # An answer to an older report is not sent.
        control.answer(Answer(0, first.report, "continue"))
        control.answer(Answer(0, second.report, "stop", "worse than others"))
        answer = asking.result(control)
        assert (answer.kind, answer.fields["reason"]) == ("stop", "worse than others")
    reporter.close()


def test_a_new_process_reports_whatever_the_clock_of_the_system_says() -> None:
    control = Control(cast(Any, None), ["trial-000", "trial-001"])

    def accept(incarnation: int, number: int) -> Reported | None:
        fields = {"trial": "trial-000", "incarnation": incarnation, "number": number}
        message = Message("report", {**fields, "step": 0, "time": 1.0, "line": LINE})
        return control.accept(Request(b"", message), cast(Any, None))

    assert accept(1_000_000, 7) is not None
    # One of an earlier process, as far as is known.
    assert accept(5, 1) is None
    control.begin(0)
    found = accept(5, 1)
    assert found is not None
    assert found.report == (5, 1, 0)


def test_the_end_of_a_trial_is_written_soon_after_a_beat_of_its_reporter(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = TrialBeat(folder.path, "trial-000")
    later = time.time() + 2.0
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: int(later * 1e9))
        TrialBeat(folder.path, "trial-000").beat()
    run.beat("ended", state=State.done)
    beat = read_beat(folder.alive, "trial-000")
    assert beat is not None
    assert beat.state == "done"


def test_a_lost_answer_is_given_again(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.02)
    reporter = make(folder)
    reporter.begin(at(100))
    with tuner(folder) as control:
        asking = Asking(reporter)
        report = receive(control).report
        lost: list[Any] = []
        with monkeypatch.context() as patch:
            patch.setattr(control.socket, "reply", lambda *args: lost.append(args))
            control.answer(Answer(0, report, "continue"))
        assert len(lost) == 1
        assert asking.result(control).kind == "continue"
    reporter.close()


def test_without_an_answer_the_trial_leaves(folder: RunFolder) -> None:
    reporter = make(folder, report_timeout_seconds=0.0)
    reporter.begin(at(100))
    assert reporter.ask(LINE) == Message("leave")
    reporter.close()


def test_a_broken_lifeline_ends_the_wait(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("session.process.entry.Lifeline.broken", True)

    def never(*args: Any) -> None:
        raise AssertionError("it waits")

    monkeypatch.setattr(module, "poll", never)
    reporter = make(folder)
    reporter.begin(at(100))
    assert reporter.ask(LINE) == Message("leave")
    reporter.close()


def test_it_beats_while_it_waits(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_SECONDS", "_MEMORY_SECONDS"):
        monkeypatch.setattr(f"surreal_like.addons.tuning.reporter.{name}", 0.01)
    beat = TrialBeat(folder.path, "trial-000")
    reporter = TrialReporter(folder, "trial-000", CONFIG, at(0), beat)
    reporter.begin(at(100))

    def waits() -> bool:
        beat = read_beat(folder.alive, "trial-000")
        return beat is not None and beat.doing == "waits for the tuner"

    with tuner(folder) as control:
        asking = Asking(reporter)
        report = receive(control).report
        until(waits)
        # Of this process, which has imported torch.
        waiting = read_beat(folder.alive, "trial-000")
        assert waiting is not None
        assert 2e7 < waiting.status[MEMORY_BYTES] < 2e9
        control.answer(Answer(0, report, "continue"))
        assert asking.result(control).kind == "continue"
    reporter.close()


def test_a_learner_that_ends_does_not_wait(folder: RunFolder) -> None:
    reporter = make(folder)
    reporter.begin(at(100))
    looks = iter((False, False, True))
    assert reporter.ask(LINE, lambda: next(looks)) is None
    # Its process is not all of the trial, so another one writes the heartbeat.
    assert read_beat(folder.alive, "trial-000") is None
    reporter.close()


def test_an_unknown_trial_is_refused(folder: RunFolder) -> None:
    reporter = TrialReporter(folder, "trial-009", CONFIG, at(0))
    reporter.begin(at(100))
    with tuner(folder) as control:
        assert "no trial trial-009" in str(Asking(reporter).result(control))
    reporter.close()
