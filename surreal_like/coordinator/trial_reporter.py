"""Reports of a trial to the tuning of which it is a part."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from session.client import Client
from session.errors import RefusedError
from session.folder import RunFolder
from session.launchers.registry import launcher_of
from session.process.context import Context
from session.process.lifeline import Lifeline
from session.wire import AddressBook, Message
from session.wire.requests import Call
from session.wire.sockets import poll
from surreal_like.tune.beat import TrialBeat
from surreal_like.tune.control import ANSWERS, CONTROL

# Reason of a run that its tuning has asked to end, to be continued later.
LEFT = "saved, to be continued by its tuning"
# What a trial does until it has an answer.
WAITS = "waits for the tuner"
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
        times: of the weights, as :meth:`RunStats.times`.
        beat: of the trial if this process is all of it, else None.
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

    @classmethod
    def of(cls, context: Context, folder: RunFolder, times: Times) -> TrialReporter | None:
        """Makes the reporter of a run; None if the run is no trial, or never reports."""
        run = context.config.get("run") or {}
        trial = run.get("trial")
        config = context.config.session_config.learner
        if not trial or not config.report_every:
            return None
        tuning = RunFolder(Path(folder.path).absolute().parent)
        alone = launcher_of(run.get("launcher", "")).one_thread
        beat = TrialBeat(tuning.path, trial) if alone else None
        return cls(tuning, trial, config, times, beat)

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
            line: of progress.
            ends: called while it waits; True ends the wait.

        Returns:
            ``continue``, ``save``, ``load``, ``stop`` or ``leave``; the last also without an
            answer in time. None if ``ends`` has ended the wait.

        Raises:
            RefusedError: the tuning does not know this trial.
        """
        client = self._connected()
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

    def _connected(self) -> Client:
        if self._client is None:
            # Its own context: that of a serial run has no thread for other processes.
            self._client = Client(AddressBook.load(self._tuning.addresses), self._trial)
        return self._client

    def close(self) -> None:
        """Closes the connection."""
        if self._client is not None:
            self._client.close(0.0)
            self._client = None
