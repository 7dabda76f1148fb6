"""Control of a tuning that another process runs, with the commands of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from session.client import Client
from session.errors import UsageError, WireError
from session.folder import RunFolder
from session.json_file import NUMBER, TEXT, parse_object
from session.launchers import commands
from session.launchers.handle import RunHandle, open_run
from session.launchers.status import ComponentStatus
from session.show.run_view import CUT_OFF, state_of
from session.tail import Tail
from session.wire import AddressBook
from surreal_like.coordinator.trial_reporter import CONTROL
from surreal_like.tuning.state import Trial, TrialState, best_of, restored_trials
from surreal_like.tuning.trial import TUNE_FILE, read_tuning
from surreal_like.tuning.tune_file import TuneFile, read_tune_file

_ANSWER_SECONDS = 5.0
_EVENT = {"time": NUMBER, "trial": TEXT, "detail": TEXT}


class TuningHandle(RunHandle):
    """Controls a tuning from any process of its machine.

    Args:
        folder: of the tuning.
    """

    @property
    def file(self) -> TuneFile:
        """The tune file, with all defaults.

        Raises:
            ConfigError: it is wrong.
        """
        return read_tune_file(self._folder.path / TUNE_FILE)

    @property
    def grace_seconds(self) -> float:
        """Time that a trial has to save and end [s]."""
        return self.file.deadlines.grace_seconds

    def trials(self) -> list[dict[str, Any]]:
        """Returns the entries of all trials in ``tuning.json``.

        Raises:
            ConfigError: that is damaged.
        """
        return list(read_tuning(self._folder.path)["trials"])

    def best(self) -> Trial | None:
        """Returns the trial with the best newest score, None without a score."""
        return best_of(restored_trials(read_tuning(self._folder.path)), self.file.tune.mode)

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
        """Returns state, number of trials by state, best trial and all trials, as plain data."""
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
                socket = client.dealer(CONTROL, commands.ANSWERS)
                fields = {"reason": reason, "interrupted": interrupted}
                socket.request("stop", fields, timeout_seconds=_ANSWER_SECONDS)
        except WireError as error:
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
