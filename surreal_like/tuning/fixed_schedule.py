"""A scheduler that changes the settings of one trial at given times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from session.config.merge import shown
from surreal_like.tuning.scheduler import Decision, Decisions, Load, Scheduler

Settings = Mapping[str, Any]


class FixedSchedule(Scheduler):
    """Lets each trial save, and go on from that with other settings, once a time is reached.

    Args:
        changes: for each change ``time``, of the weights, and ``settings``; the first one is at 0.

    Attributes:
        changes: pairs of time and settings.

    Raises:
        ValueError: it is no such list, or times do not rise.
    """

    def __init__(self, changes: Sequence[Mapping[str, Any]]) -> None:
        self.changes = [_pair(each) for each in changes]
        times = [time for time, _ in self.changes]
        if times[:1] != [0] or times != sorted(times):
            raise ValueError(f"times of changes are {times}, expected rising ones from 0 on")
        # Trial -> index of its present settings.
        self._places: dict[int, int] = {}

    def report(self, trial: int, time: float, score: float | None, **others: Any) -> Decisions:
        """Returns the newest change that is due."""
        due = sum(time >= at for at, _ in self.changes) - 1
        if due <= self._places.get(trial, 0):
            return {trial: Decision()}
        return {trial: Decision(load=Load(trial, self.changes[due][1]))}

    def on_load(self, trial: int, settings: Settings | None) -> None:
        """Records a change that was carried out; one that was not is due again."""
        if settings is not None:
            known = [index for index, (_, each) in enumerate(self.changes) if each == settings]
            self._places[trial] = max(known)

    def state(self) -> dict[str, Any]:
        """Returns the present place of each trial."""
        return {"places": {str(trial): place for trial, place in self._places.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores the places of the state."""
        self._places = {int(trial): place for trial, place in state["places"].items()}


def _pair(change: Any) -> tuple[float, Settings]:
    if (
        isinstance(change, Mapping)
        and change.keys() == {"time", "settings"}
        and isinstance(change["time"], int | float)
        and isinstance(change["settings"], Mapping)
    ):
        return float(change["time"]), dict(change["settings"])
    raise ValueError(f"a change is {shown(change)}, expected time and settings")
