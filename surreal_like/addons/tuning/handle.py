"""Control of a tuning: commands from any process of its machine, and reports of its trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from session.errors import UsageError, WireError
from session.folder import RunFolder
from session.json_file import NUMBER, TEXT, parse_object
from session.launchers.control_client import ANSWERS
from session.launchers.handle import RunHandle, open_run
from session.launchers.status import ComponentStatus
from session.run_connection import Client
from session.show.run_view import CUT_OFF, state_of
from session.tail import Tail
from session.wire import AddressBook
from session.wire.requests import Request, RouterSocket
from surreal_like.addons.tuning.reporter import CONTROL
from surreal_like.addons.tuning.state import (
    Answer,
    Report,
    Trial,
    TrialState,
    best_of,
    restore_trials,
)
from surreal_like.addons.tuning.trial import TUNE_FILE, read_tuning
from surreal_like.addons.tuning.tune_file import TuneFile, read_tune_file

_ANSWER_SECONDS = 5.0
_EVENT = {"time": NUMBER, "trial": TEXT, "detail": TEXT}


class TuningHandle(RunHandle):
    """Controls a tuning from any process of its machine.

    Args:
        folder: folder of the tuning.
    """

    @property
    def file(self) -> TuneFile:
        """The tune file, with all defaults.

        Raises:
            ConfigError: it is wrong.
        """
        return read_tune_file(self._folder.path / TUNE_FILE)

    @property
    def ending_seconds(self) -> float:
        """Time that the trials have to save and end [s]."""
        return 2 * self.file.deadlines.grace_seconds

    def trials(self) -> list[dict[str, Any]]:
        """Returns the entries of all trials in ``tuning.json``.

        Raises:
            ConfigError: that is damaged.
        """
        return list(read_tuning(self._folder.path)["trials"])

    def best(self) -> Trial | None:
        """Returns the trial with the best newest score, None without a score."""
        return best_of(restore_trials(read_tuning(self._folder.path)), self.file.tune.mode)

    def best_run(self) -> RunFolder:
        """Returns the run of the best trial.

        Raises:
            UsageError: no trial has a score.
        """
        best = self.best()
        if best is None:
            raise UsageError(
                f"no trial of tuning {self._folder} has a score yet; name a trial: "
                f"{self._folder}/trial-000"
            )
        return RunFolder(self._folder.path / best.name)

    def summary(self) -> dict[str, Any]:
        """Returns state, best trial, all trials and their number by state, and unfit machines."""
        trials, best, state = self.trials(), self.best(), state_of(self._folder)
        if not self._folder.in_use:
            # Its trials have ended with it; without a result it was killed.
            state = state if self._folder.read_result() else CUT_OFF
            dead = {"state": CUT_OFF}
            trials = [
                {**each, **dead} if each["state"] == TrialState.running else each for each in trials
            ]
        return {
            "tuning": str(self._folder),
            "state": state,
            "states": dict(Counter(each["state"] for each in trials)),
            "best": None if best is None else {"trial": best.name, "score": best.score},
            "unfit": read_tuning(self._folder.path).get("unfit") or {},
            "trials": {each["name"]: each for each in trials},
        }

    def status(self) -> list[ComponentStatus]:
        """Returns none: a tuning has trials."""
        return []

    def stop(self, *, interrupted: bool = False, reason: str = "stopped by command") -> None:
        """Asks the tuning to save all trials and to end, and returns at once.

        Raises:
            UsageError: it does not run, or does not answer.
        """
        if not self._folder.in_use:
            raise UsageError(
                f"tuning {self._folder} does not run; to go on with it: {self._resume}"
            )
        try:
            with Client(AddressBook.load(self._folder.addresses)) as client:
                socket = client.dealer(CONTROL, ANSWERS)
                fields = {"reason": reason, "interrupted": interrupted}
                socket.request("stop", fields, timeout_seconds=_ANSWER_SECONDS)
        except WireError as error:
            # A tuning that ends at once takes its reply along.
            if self._folder.in_use:
                raise UsageError(f"tuning {self._folder} takes no commands: {error}") from None

    @property
    def _resume(self) -> str:
        return f"surreal-like tune --resume --folder {self._folder}"

    def log_lines(self, name: str = "", *, follow: bool = False) -> Iterator[str]:
        """Yields the events of the tuning as log lines; with the name of a trial, its log.

        Raises:
            UsageError: there is no such trial, or it has logged nothing.
        """
        if name:
            trial = RunFolder(self._folder.path / name)
            if name not in {each["name"] for each in self.trials()}:
                raise UsageError(f"tuning {self._folder} has no trial '{name}'")
            return open_run(trial).log_lines(follow=follow)
        tail = Tail(self._folder.events, catch_up_bytes=None)
        return filter(None, map(_event_line, self._lines(tail, follow=follow)))


def _event_line(line: str) -> str:
    """Returns an event as a line of a log; empty for a damaged line."""
    try:
        event = parse_object(line, _EVENT)
        at = datetime.fromtimestamp(event["time"]).isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):
        return ""
    reason = f": {event['reason']}" if event.get("reason") else ""
    return f"{at} INFO     {event['trial']}: {event['detail']}{reason}"


@dataclass(frozen=True, slots=True)
class Reported:
    """A new report.

    Args:
        trial: number of the trial.
        report: incarnation, number and step.
        time: time of the trial, in the unit of the tuning.
        line: line of progress.
        score: score that the line shows, None if it shows none.
    """

    trial: int
    report: Report
    time: float
    line: Mapping[str, Any]
    score: float | None = None


@dataclass(slots=True)
class _Dialogue:
    """The newest report of a trial: the request to answer, and the answer once it is known."""

    report: Report = (0, 0, 0)
    request: Request | None = None
    socket: RouterSocket | None = None
    answer: tuple[str, dict[str, Any]] | None = field(default=None)


class Control:
    """Holds each report until its answer is known; repeats the answer if the report comes again.

    Args:
        socket: the router.
        names: names of the trials, in the order of their numbers.

    Attributes:
        stops: True once a command has asked to end the tuning.
    """

    def __init__(self, socket: RouterSocket, names: list[str]) -> None:
        self.socket = socket
        self.stops = False
        self._numbers = {name: number for number, name in enumerate(names)}
        self._dialogues = [_Dialogue() for _ in names]

    def begin(self, trial: int) -> None:
        """Forgets the reports of a trial whose process is started now.

        Reports of a process are ordered by the clock of the system at its start, which may have
        been set back since the process before.
        """
        self._dialogues[trial] = _Dialogue()

    def receive(self) -> Reported | None:
        """Returns the next new report, None if there is none now."""
        while (request := self.socket.receive()) is not None:
            if (reported := self.accept(request, self.socket)) is not None:
                return reported
        return None

    def accept(self, request: Request, socket: RouterSocket) -> Reported | None:
        """Returns the report of a request if it is new; answers it if the answer is known.

        Args:
            request: the request.
            socket: the router that has received it.
        """
        if request.message.kind == "stop":
            self.stops = True
            socket.reply(request, "stopping")
            return None
        fields = request.message.fields
        number = self._numbers.get(fields["trial"])
        if number is None:
            socket.refuse(request, f"this tuning has no trial {fields['trial']}")
            return None
        report = (fields["incarnation"], fields["number"], fields["step"])
        dialogue = self._dialogues[number]
        if report > dialogue.report:
            self._dialogues[number] = _Dialogue(report, request, socket)
            return Reported(number, report, float(fields["time"]), fields["line"])
        if report == dialogue.report:
            dialogue.request, dialogue.socket = request, socket
            self._reply(dialogue)
        return None

    def answer(self, answer: Answer) -> None:
        """Answers a report; does nothing if the trial has sent a newer one."""
        dialogue = self._dialogues[answer.trial]
        if dialogue.report == answer.report:
            fields = {"reason": answer.reason} if answer.kind == "stop" else {}
            dialogue.answer = (answer.kind, fields)
            self._reply(dialogue)

    def _reply(self, dialogue: _Dialogue) -> None:
        if dialogue.answer is not None and dialogue.request is not None and dialogue.socket:
            dialogue.socket.reply(dialogue.request, *dialogue.answer)
            dialogue.request = None
