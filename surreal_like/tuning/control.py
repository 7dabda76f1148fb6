"""The endpoint ``tune.control``: reports of trials come in, answers go out when they are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from session.wire.requests import Request, RouterSocket
from surreal_like.tuning.state import Answer, Report


@dataclass(frozen=True, slots=True)
class Reported:
    """A new report.

    Args:
        trial: number of the trial.
        report: incarnation, number and step.
        time: of the trial, in the unit of the tuning.
        line: of progress.
    """

    trial: int
    report: Report
    time: float
    line: Mapping[str, Any]


@dataclass(slots=True)
class _Dialogue:
    """The newest report of a trial: the request to answer, and the answer once it is known."""

    report: Report = (0, 0, 0)
    request: Request | None = None
    answer: tuple[str, dict[str, Any]] | None = field(default=None)


class Control:
    """Holds each report until its answer is known; repeats the answer if the report comes again.

    Args:
        socket: the router.
        names: of the trials, in the order of their numbers.

    Attributes:
        stops: True once a command has asked to end the tuning.
    """

    def __init__(self, socket: RouterSocket, names: list[str]) -> None:
        self.socket = socket
        self.stops = False
        self._numbers = {name: number for number, name in enumerate(names)}
        self._dialogues = [_Dialogue() for _ in names]

    def receive(self) -> Reported | None:
        """Returns the next new report, None if there is none now."""
        while (request := self.socket.receive()) is not None:
            if request.message.kind == "stop":
                self.stops = True
                self.socket.reply(request, "stopping")
                continue
            fields = request.message.fields
            number = self._numbers.get(fields["trial"])
            if number is None:
                self.socket.refuse(request, f"this tuning has no trial {fields['trial']}")
                continue
            report = (fields["incarnation"], fields["number"], fields["step"])
            dialogue = self._dialogues[number]
            if report > dialogue.report:
                self._dialogues[number] = _Dialogue(report, request)
                return Reported(number, report, float(fields["time"]), fields["line"])
            if report == dialogue.report:
                dialogue.request = request
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
        if dialogue.answer is not None and dialogue.request is not None:
            self.socket.reply(dialogue.request, *dialogue.answer)
            dialogue.request = None
