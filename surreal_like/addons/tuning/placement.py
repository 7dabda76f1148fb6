"""Placement of trials: the machines of a tuning, and which trial works where; pure."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping

from session.launchers.instruction import Event
from session.launchers.silence_and_restarts import (
    Deadlines,
    Loss,
    SupervisedComponent,
    SupervisedComponents,
    restart_time,
)
from session.process.component import Component, Restart
from surreal_like.addons.tuning.dialogues import Dialogues
from surreal_like.addons.tuning.state import OVER, Dialogue, Outcome, Place, TrialState

# Name of this machine among the places of trials; the others are workers.
HERE = ""
# A time after each pause.
_EVER = sys.float_info.max
# Workers that a trial may lose in a row; then that counts as a death.
LOST_LIMIT = 20
# A machine whose trials die, or that is lost soon after it came, gets none for a while, and after
# so many times in a row none any more; its next process may try after this time.
_MACHINE = Restart(2, 3600.0)
# Trials that live longer say nothing against their machine [s].
_PROVEN_SECONDS = 60.0


class Placement:
    """The machines of a tuning, their failures, and the trials there.

    Args:
        processes: processes of the trials, in their order.
        dialogues: dialogues with them.
        out: trials, and what follows for them.
        here: slots of this machine.
        deadlines: pauses after failures of a machine.

    Attributes:
        places: machine -> its slots.
        admits: False while too much memory is used here, so that nothing is started.
    """

    def __init__(
        self,
        processes: SupervisedComponents,
        dialogues: Dialogues,
        out: Outcome,
        here: Place,
        deadlines: Deadlines,
    ) -> None:
        self.places = {HERE: here}
        self.admits = True
        self._processes, self._children = processes, list(processes.children.values())
        self._dialogues, self._out, self._trials = dialogues, out, out.trials
        self._deadlines = deadlines
        # Place of the process of each trial that has one, and the workers it has lost in a row.
        self._at = [HERE for _ in out.trials]
        self._lost = [0 for _ in out.trials]
        # Places where each trial has died.
        self._died_at: list[set[str]] = [set() for _ in out.trials]
        # Place -> the failures there.
        self._machines: dict[str, SupervisedComponent] = {}

    # -- machines

    @property
    def slots(self) -> int:
        """Maximum number of trials that work at the same time, on all machines that get some."""
        return sum(each.slots for name, each in self.places.items() if self._gets(name, _EVER))

    @property
    def unfit(self) -> dict[str, str]:
        """The machines that get no trials any more, each with the reason."""
        return {
            name: f"{len(each.losses)} failures in a row, the last: {each.losses[-1].error}"
            for name, each in self._machines.items()
            if not self._gets(name, _EVER)
        }

    def set_place(self, place: str, slots: int, max_resident: int, now: float = 0.0) -> None:
        """Adds a worker, or changes its slots.

        Args:
            place: name of the worker.
            slots: maximum number of trials that work there at the same time.
            max_resident: maximum number of trials that have processes there.
            now: monotonic time [s].
        """
        if place not in self.places:
            machine = self._machine(place)
            machine.started_at = now
            if machine.losses and now - machine.losses[-1].time > _MACHINE.window_seconds:
                machine.losses, machine.due = [], 0.0
        self.places[place] = Place(slots, max_resident)

    def on_lost(self, place: str, now: float) -> None:
        """Counts the loss of a worker that had trials; one that was there for long has no fault."""
        if now - self._machine(place).started_at < _PROVEN_SECONDS:
            self._on_failure(place, "it was lost", now)

    def on_success(self, number: int) -> None:
        """Notes that a trial has worked where it is."""
        place = self._at[number]
        if place in self.places:
            machine = self._machine(place)
            machine.ran, machine.losses, machine.due = True, [], 0.0

    def on_report(self, number: int) -> None:
        """Notes that a trial works: the machines that it loses count anew."""
        self._lost[number] = 0
        self.on_success(number)

    def on_death(self, number: int, error: str, now: float) -> None:
        """Counts the death of a trial for its machine, unless it lived for long."""
        place = self._at[number]
        self._died_at[number].add(place)
        if now - self._children[number].started_at < _PROVEN_SECONDS:
            self._on_failure(place, f"{self._trials[number].name}: {error}", now)
        else:
            self.on_success(number)

    def counts_as_death(self, number: int) -> bool:
        """Counts a worker that a trial has lost; returns True for the last one of many in a row."""
        self._lost[number] = (self._lost[number] + 1) % LOST_LIMIT
        return self._lost[number] == 0

    def _on_failure(self, place: str, error: str, now: float) -> None:
        """Counts a failure for a machine; it is not given up while trials are at work there."""
        machine = self._machine(place)
        due = restart_time(machine, Loss(now, error, ""), self._deadlines, allowed=True)
        if due is None and self.residents(place):
            due = now + self._deadlines.pause_seconds(len(machine.losses))
        machine.due = math.inf if due is None else due
        if due is None and (reason := self.unfit.get(place)):
            self._out.add(Event(place, "unfit", f"gets no trials any more: {reason}"))

    def _machine(self, place: str) -> SupervisedComponent:
        component = Component(place or "tuner", "worker", "", restart=_MACHINE)
        return self._machines.setdefault(place, SupervisedComponent(component))

    def _gets(self, place: str, now: float) -> bool:
        """Returns True if trials may be started on a machine; here also if no other one works."""
        if place not in self._machines or now >= self._machines[place].due:
            return True
        others = (name for name, each in self.places.items() if name != HERE and each.slots)
        return place == HERE and not any(self._gets(name, now) for name in others)

    # -- trials

    def place(self, name: str) -> str:
        """Returns the machine that has, or had last, the process of a trial."""
        return self._at[list(self._processes.children).index(name)]

    def residents(self, place: str) -> list[int]:
        """Returns the trials with a process on a machine."""
        return [
            number
            for number, (child, at) in enumerate(zip(self._children, self._at, strict=True))
            if child.alive and at == place
        ]

    def has_place_for(self, number: int) -> bool:
        """Returns True if a trial can work on one of the machines, once a slot is free."""
        return any(each.slots and self._suits(number, name) for name, each in self.places.items())

    def fill(self, now: float) -> None:
        """Lets trials work while there are slots: pending ones first, then paused ones.

        Args:
            now: monotonic time [s].
        """
        for place in self.places:
            self._fill(place, now)

    def _fill(self, place: str, now: float) -> None:
        """Lets trials work on one machine."""
        room, gets = self.places[place], self._gets(place, now)
        if len(self.residents(place)) > room.max_resident:
            self._make_room(place)
        while self._free(place):
            number = self._next(now, place)
            if number is None:
                if gets:
                    self._call_over(place)
                break
            child = self._children[number]
            if not child.alive and not (gets and (place != HERE or self.admits)):
                break
            if not child.alive and len(self.residents(place)) >= room.max_resident:
                self._make_room(place)
                break
            self._out.become(number, TrialState.running)
            if child.alive:
                self._dialogues.answer(number)
            else:
                # What the scheduler has decided meanwhile is in its files.
                self._dialogues.talks[number] = Dialogue()
                self._at[number] = place
                if place == HERE:
                    self._choose_slot(number)
                self._out.add(self._processes.start(child, now))

    def _next(self, now: float, place: str) -> int | None:
        """Returns the trial to work next: pending by number, then paused by time and number.

        One that has processes can work where they are only.
        """
        exploits = self._dialogues.exploits
        # A donor goes on only after its checkpoint is copied.
        busy = {*exploits, *(each.donor for each in exploits.values())}
        waiting = [
            (
                trial.state is TrialState.paused,
                trial.time if trial.state is TrialState.paused else 0.0,
                number,
            )
            for number, (trial, talk) in enumerate(
                zip(self._trials, self._dialogues.talks, strict=True)
            )
            if number not in busy
            and (not self._children[number].alive or self._at[number] == place)
            and self._suits(number, place)
            and (
                (trial.state is TrialState.paused and not talk.held and not talk.asked)
                or (trial.state is TrialState.pending and self._may_start(number, now))
            )
        ]
        return min(waiting)[2] if waiting else None

    def _may_start(self, number: int, now: float) -> bool:
        child = self._children[number]
        return not child.alive and now >= child.due

    def _suits(self, number: int, place: str) -> bool:
        """Returns False if a trial would use up its last life where alone it has died."""
        child = self._children[number]
        last = len(child.losses) >= child.component.restart.max_restarts
        if child.alive or not last or self._died_at[number] != {place}:
            return True
        others = any(other != place and each.slots for other, each in self.places.items())
        return not others and (place == HERE or self._machine(place).ran)

    def _free(self, place: str) -> bool:
        """Returns True if a further trial can work on a machine."""
        running = TrialState.running
        at = (
            each
            for each, trial in zip(self._at, self._trials, strict=True)
            if trial.state is running
        )
        return sum(each == place for each in at) < self.places[place].slots

    def _choose_slot(self, number: int) -> None:
        """Gives a trial the slot that the fewest others have, for its whole life."""
        taken = Counter(each.slot for each in self._trials if each.state not in OVER)
        if self._trials[number].slot is None:
            self._trials[number].slot = min(
                range(self.places[HERE].slots), key=lambda slot: taken[slot]
            )

    # -- room for others

    def relieve(self, memory: Mapping[str, float], cause: str, now: float) -> None:
        """Makes room in the memory here, as :meth:`Tuning.relieve`."""
        admitted, self.admits = self.admits, False
        # One at a time: the next look shows what its end has freed.
        ends = any(child.alive and child.cause for child in self._children)
        if ends or any(talk.asked for talk in self._dialogues.talks):
            return
        self._make_room(HERE)
        working = [self._children[number] for number in self.residents(HERE)]
        if not self._out.instructions and not admitted and working:
            largest = max(working, key=lambda child: memory.get(child.name, 0.0))
            largest.cause, largest.kill_at = cause, now

    def _call_over(self, place: str) -> None:
        """Asks a trial that waits for a slot of another machine to leave that: one here is free."""
        if any(talk.asked for talk in self._dialogues.talks):
            return
        for other in self.places:
            if other != place and not self._free(other) and self._next(0.0, other) is not None:
                self._make_room(other, held=False)
                return

    def _make_room(self, place: str, *, held: bool = True) -> None:
        """Asks the trial that was paused longest to leave, unless another one is leaving.

        Args:
            place: machine of the trials.
            held: False leaves those out about which the scheduler has not decided.
        """
        alive = {number: self._dialogues.talks[number] for number in self.residents(place)}
        if any(talk.asked for talk in alive.values()):
            return
        resting = {
            talk.paused: number
            for number, talk in alive.items()
            if self._trials[number].state is TrialState.paused
            and number not in self._dialogues.exploits
            and (held or not talk.held)
        }
        if resting:
            self._dialogues.leave(resting[min(resting)])
