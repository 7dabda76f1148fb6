"""Reports and heartbeat of a trial, and the messages between it and its tuning."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from session.errors import RefusedError
from session.folder import PROGRESS, RunFolder
from session.launchers.control_client import STOP
from session.process.entry import Lifeline
from session.process.heartbeat import Beat, State, write_beat
from session.process.periodic import Every
from session.run_connection import Client
from session.wire import AddressBook, Message
from session.wire.requests import Call
from session.wire.schema import (
    COUNT_LIMIT,
    Count,
    Incarnation,
    Kinds,
    Name,
    Number,
    Plain,
    Schema,
    Text,
)
from session.wire.socket_state import poll
from surreal_like.coordinator.stop_rule import LEFT, WAITS, Verdict

if TYPE_CHECKING:
    from surreal_like.coordinator.coordinator import RunCoordinator

CONTROL = "tune.control"
_STEPS = 8
_LINE_BYTES = 1 << 20

REPORT = {
    "trial": Name(),
    "incarnation": Incarnation(),
    "number": Count(),
    "step": Count(0, _STEPS),
    "time": Number(0.0, COUNT_LIMIT),
    "line": Plain(PROGRESS),
}
REPORTS: Kinds = {"report": Schema(REPORT, header_bytes=_LINE_BYTES), "stop": STOP}
ANSWERS: Kinds = {
    **dict.fromkeys(("continue", "save", "load", "leave"), Schema()),
    "stop": Schema({"reason": Text()}),
}


# Entries of the status: processor time of the process and of its children that have ended; memory
# of the process and of all below it, pages that several share in equal parts.
CPU_SECONDS, MEMORY_BYTES = "cpu_seconds", "memory_bytes"
_SECONDS = 1.0
# The kernel adds up all pages for it: some milliseconds.
_MEMORY_SECONDS = 10.0


class TrialBeat:
    """Writes the heartbeat of a trial once a second.

    The components of a serial run beat by a counted clock, which says nothing about a process that
    hangs.

    Args:
        tuning: folder of the tuning.
        name: name of the trial.
    """

    def __init__(self, tuning: Path, name: str) -> None:
        self._alive, self._name = tuning / "alive", name
        # Of the process: the run and its reporter both beat, and the end must not look like an
        # older process.
        self._incarnation = int(psutil.Process().create_time() * 1000)
        self._due = Every(seconds=_SECONDS, clock=time.monotonic)
        self._memory_due = Every(seconds=_MEMORY_SECONDS, clock=time.monotonic)
        self._memory_bytes = 0
        self._starting = False

    def beat(self, doing: str = "", *, state: State = State.running) -> None:
        """Writes the heartbeat now."""
        now, pid = time.time(), os.getpid()
        beat = Beat(self._name, self._incarnation, state, pid, now, doing=doing)
        if self._memory_due():
            self._memory_bytes = _memory_bytes()
        beat.status = {CPU_SECONDS: sum(os.times()[:4]), MEMORY_BYTES: self._memory_bytes}
        write_beat(self._alive, beat)
        self._starting = state is State.starting

    def tick(self, doing: str = "") -> None:
        """Writes the heartbeat if it is due, and at once that a trial which was starting runs."""
        if self._due() or self._starting:
            self.beat(doing)


def _memory_bytes() -> int:
    this, total = psutil.Process(), 0
    for process in (this, *this.children(recursive=True)):
        # One that has just ended has no memory; of another user's it cannot be read.
        with suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total


# A trial reports at multiples of environment steps, so it counts them often.
_COUNTS_SECONDS = 0.01
_AGAIN_SECONDS = 1.0
_LOOK_SECONDS = 0.25

Times = Mapping[str, float]


class TrialReporter:
    """Reports when a multiple of ``session_config.learner.report_every`` is reached, and waits.

    While it waits, the learner learns and publishes nothing. A serial run stands still as a whole:
    no round passes, and its clock stands.

    Args:
        tuning: folder of the tuning.
        trial: name of this trial.
        config: ``session_config.learner``.
        times: times of the weights, as :meth:`RunStats.times`.
        beat: heartbeat of the trial if this process is all of it, else None.
    """

    def __init__(
        self,
        tuning: RunFolder,
        trial: str,
        config: Mapping[str, Any],
        times: Times,
        beat: TrialBeat | None = None,
    ) -> None:
        self._tuning, self._trial = tuning, trial
        self._every: float = config["report_every"]
        self._by: str = config["report_by"]
        self._timeout: float = config["report_timeout_seconds"]
        # Intervals that fit into the time of the weights; fewer after older weights were loaded.
        self._intervals = self._count_intervals(times)
        # Number of the newest report; it never falls.
        self._number = self._intervals
        self._at = 0.0
        self._step = 0
        self._client: Client | None = None
        self._beat = beat

    def due(self, times: Times) -> bool:
        """Returns True if the next multiple of the interval is reached."""
        return times[self._by] >= (self._intervals + 1) * self._every

    def begin(self, times: Times) -> int:
        """Begins a report; returns its number, which rises also where time has gone back."""
        self._at, self._step = times[self._by], 0
        self._intervals = self._count_intervals(times)
        self._number = max(self._number + 1, self._intervals)
        return self._number

    def on_load(self, times: Times) -> None:
        """Goes on from the time of weights that were loaded."""
        self._intervals = self._count_intervals(times)

    def _count_intervals(self, times: Times) -> int:
        return math.floor(times[self._by] / self._every)

    def ask(
        self, line: Mapping[str, Any], ends: Callable[[], bool] = lambda: False
    ) -> Message | None:
        """Reports, or asks for the next answer about the same report, and waits for the answer.

        Args:
            line: line of progress.
            ends: function called while it waits; True ends the wait.

        Returns:
            ``continue``, ``save``, ``load``, ``stop`` or ``leave``; the last also without an
            answer in time. None if ``ends`` has ended the wait.

        Raises:
            RefusedError: the tuning does not know this trial.
        """
        client = self._connect()
        socket = client.dealer(CONTROL, ANSWERS)
        fields = {
            "trial": self._trial,
            "incarnation": client.identity.incarnation,
            "number": self._number,
            "step": self._step,
            "time": self._at,
            "line": dict(line),
        }
        self._step += 1
        call = Call(lambda: Message("report", dict(fields)), again_seconds=_AGAIN_SECONDS)
        lifeline, deadline = Lifeline(), time.monotonic() + self._timeout
        while (answer := socket.ask(call, time.monotonic())) is None:
            if lifeline.broken or time.monotonic() > deadline:
                return Message("leave")
            if ends():
                return None
            if self._beat is not None:
                self._beat.tick(WAITS)
            poll([socket], _LOOK_SECONDS)
        if answer.kind == "refused":
            raise RefusedError(f"{CONTROL}: {answer.fields['reason']}")
        return answer

    def _connect(self) -> Client:
        if self._client is None:
            # Its own context: that of a serial run has no thread for other processes.
            self._client = Client(AddressBook.load(self._tuning.addresses), self._trial)
        return self._client

    def close(self) -> None:
        """Closes the connection."""
        if self._client is not None:
            self._client.close(0.0)
            self._client = None


class ReportedTrial:
    """Reports a run to its tuning when it is time, and obeys the answers.

    Args:
        reporter: reports, and waits for the answers.
        run: coordinator of the run.

    Attributes:
        doing: present wait, for the heartbeat; empty: none.
    """

    def __init__(self, reporter: TrialReporter, run: RunCoordinator) -> None:
        self.doing = ""
        self._reporter, self._run = reporter, run
        self._counts_due = Every(seconds=_COUNTS_SECONDS, clock=run.context.clock.now)

    def tick(self) -> None:
        """Asks for counts when it is due."""
        if self._counts_due():
            self._run.learners.ask_counts()

    def on_updates(self) -> None:
        """Reports if it is time; a goal or budget of the run goes first."""
        run, reporter = self._run, self._reporter
        run.count()
        if run.ending or not reporter.due(run.record.times()):
            return
        run.judge()
        if run.ending:
            return
        run.report(reporter.begin(run.record.times()))
        while (answer := self._ask()) is not None and answer.kind in ("save", "load"):
            if answer.kind == "load":
                run.take_over()
                reporter.on_load(run.record.times())
            run.save()
        if answer is None:
            # The run ends already, or the next learner goes on and reports again.
            return
        if answer.kind == "stop":
            goal_met = False if run.record.judge.has_goal else None
            run.end(Verdict("stopped", goal_met, answer.fields["reason"]))
        elif answer.kind == "leave":
            run.end(Verdict("interrupted", None, LEFT))

    def _ask(self) -> Message | None:
        """Waits for the next answer; None if this learner ends before it."""
        began, clock = time.monotonic(), self._run.context.clock
        held = clock.now()
        self.doing = WAITS
        try:
            return self._reporter.ask(self._run.line, self._run.ends_while_waiting)
        finally:
            self.doing = ""
            real_seconds = time.monotonic() - began
            self._run.record.add_held(clock.now() - held, real_seconds=real_seconds)

    def close(self) -> None:
        """Closes the connection."""
        self._reporter.close()


def make_reported(run: RunCoordinator) -> ReportedTrial | None:
    """Returns what reports a run; None if the run is no trial, or never reports."""
    trial = (run.context.config.get("run") or {}).get("trial")
    config = run.context.config.session_config.learner
    if not trial or not config.report_every:
        return None
    tuning = RunFolder(Path(run.folder.path).absolute().parent)
    beat = TrialBeat(tuning.path, trial) if run.runs_alone else None
    reporter = TrialReporter(tuning, trial, config, run.record.times(), beat)
    return ReportedTrial(reporter, run)
