"""Records a tuning: its state, events and exploits in files, and what its observer sees."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from session.atomic_file import write_atomically
from session.errors import ConfigError
from session.folder import RunFolder
from session.launchers.instruction import Event
from session.loggerplex.append_file import AppendFile
from session.show.text import decimal
from surreal_like.addons.tuning.exploit_files import (
    LINEAGE,
    PBT_LOG,
    donors,
    exploit_text,
    read_exploits,
)
from surreal_like.addons.tuning.result import result_of, write_session
from surreal_like.addons.tuning.state import OVER, Changed, plain_trial, state_text
from surreal_like.addons.tuning.trial import FORMAT
from surreal_like.addons.tuning.tuning_state_machine import Tuning
from surreal_like.run.folder import TUNING
from surreal_like.run.observer import RunObserver, pass_report


class TuningRecord:
    """The files that a tuning writes about itself, and its observer.

    Args:
        folder: folder of the tuning.
        tuning: the state machine.
        watch: observer of the tuning.
        seconds_before: duration of earlier parts of the tuning [s].

    Attributes:
        unsaved: error of the newest write of the state; empty if it was written.
    """

    def __init__(
        self, folder: RunFolder, tuning: Tuning, watch: RunObserver, seconds_before: float
    ) -> None:
        self._folder, self._tuning, self._watch = folder, tuning, watch
        self._began, self._seconds_before = time.monotonic(), seconds_before
        self._events = AppendFile(folder.events, lines=True)
        self._exploits = AppendFile(folder.path / PBT_LOG, lines=True)
        self.unsaved = ""

    @property
    def seconds(self) -> float:
        """Duration of the tuning, earlier parts included [s]."""
        return self._seconds_before + (time.monotonic() - self._began)

    def show(self, report: Callable[[RunObserver], object]) -> None:
        """Shows something to the observer; one that fails is replaced."""
        self._watch = pass_report(self._watch, report)

    def show_message(self, text: str) -> None:
        """Shows a line to the observer."""
        self.show(lambda watch: watch.on_message(text))

    def show_trials(self) -> None:
        """Shows all trials to the observer."""
        tuning = self._tuning
        rows = {
            each.name: {**plain_trial(each), "doing": tuning.doing(number)}
            for number, each in enumerate(tuning.trials)
        }
        self.show(lambda watch: watch.on_components(rows))

    def add_event(self, name: str, kind: str, detail: str) -> None:
        """Records an event of a trial or a machine."""
        self._log(name, kind, detail)
        self._show_event(Event(name, kind, detail))

    def add_change(self, change: Changed) -> None:
        """Records a change of the state of a trial."""
        trial = self._tuning.trials[change.trial]
        reason = {"reason": change.reason} if change.reason else {}
        self._log(trial.name, "trial", f"{change.before} -> {change.after}", **reason)
        score = "" if trial.score is None else f"score {decimal(trial.score)}"
        detail = ", ".join(filter(None, [change.reason, score]))
        self._show_event(Event(trial.name, str(change.after), detail))
        if change.after in OVER:
            write_session(self._folder.path, trial)

    def add_exploit(self, line: Mapping[str, Any]) -> None:
        """Records an exploit, or one that was skipped: ``pbt.jsonl``, lineage and an event."""
        self._exploits.add((json.dumps({"time_of_day": time.time(), **line}) + "\n").encode())
        self._exploits.flush()
        name, text = line["recipient"], exploit_text(line)
        self._log(name, "exploit", text)
        skipped = line.get("skipped")
        kind, detail = ("exploit", text) if skipped is None else ("skipped", skipped)
        self._show_event(Event(name, kind, detail))
        if skipped is None:
            # A damaged line does not end the tuning: plot and --replay name it.
            with suppress(OSError, ConfigError):
                names = [each.name for each in self._tuning.trials]
                found = json.dumps(donors(read_exploits(self._folder.path, names)))
                write_atomically(self._folder.path / LINEAGE, found + "\n")

    def save(self) -> None:
        """Writes the state of the tuning."""
        state = {"format": FORMAT, "seconds": round(self.seconds, 3), **self._tuning.state()}
        before, self.unsaved = self.unsaved, ""
        try:
            write_atomically(self._folder.path / TUNING, state_text(state))
        except OSError as error:
            # A full disk must not end the trials; the state is written once there is room again.
            self.unsaved = str(error.strerror or error)
            if not before:
                self.add_failure(f"{TUNING} cannot be written: {self.unsaved}")

    def add_failure(self, text: str) -> None:
        """Records that a file cannot be written."""
        self._log("", "not_written", text)
        self.show_message(text)

    def write_result(self) -> dict[str, Any]:
        """Writes ``result.json`` and returns its content."""
        result = result_of(self._folder.path, self._tuning, self.seconds)
        with suppress(OSError):
            write_atomically(self._folder.result, json.dumps(result, indent=2) + "\n")
        return result

    def close(self) -> None:
        """Writes the events that a full disk has kept back, if there is room again."""
        self._events.flush()

    def _log(self, trial: str, kind: str, detail: str, **more: str) -> None:
        event = {"time": time.time(), "trial": trial, "event": kind, "detail": detail, **more}
        self._events.add((json.dumps(event) + "\n").encode())
        self._events.flush()

    def _show_event(self, event: Event) -> None:
        self.show(lambda watch: watch.on_event(event))
