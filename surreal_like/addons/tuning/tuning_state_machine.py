"""A tuning as a state machine: events come in, instructions go out; no socket, clock or file."""

from __future__ import annotations

import math
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from session.errors import START_AGAIN
from session.launchers.instruction import Signal, exit_error
from session.launchers.silence_and_restarts import Deadlines, Loss, SupervisedComponents
from session.process.component import Component, Restart, Topology
from session.process.heartbeat import Beat
from surreal_like.addons.tuning.dialogues import LEAVE, Dialogues
from surreal_like.addons.tuning.placement import HERE, LOST_LIMIT, Placement
from surreal_like.addons.tuning.scheduler import Scheduler, valid_score
from surreal_like.addons.tuning.state import (
    OVER,
    Dialogue,
    Exploit,
    Instruction,
    Outcome,
    Place,
    Report,
    Skipped,
    Trial,
    TrialState,
    best_of,
    plain_trial,
)

# Each start of a trial costs seconds of a processor.
_BACK_OFF = {"back_off_seconds": 0.5, "back_off_limit_seconds": 60.0}
_NO_DEADLINES = Deadlines(math.inf, math.inf)


class Tuning:
    """The trials of a tuning and the decisions about them; each is a supervised component.

    Every method returns the instructions that follow; the state between two calls is consistent.

    Attributes:
        trials: all trials by number.
        placement: the machines, and which trial works where.
        ending: reason for which it ends before all trials have; empty: it goes on.
        planned: True if that reason is a budget or a goal of the tuning.
        skipped: number of exploits that were left out.

    Args:
        trials: all trials by number.
        scheduler: decisions about reports.
        slots: maximum number of trials that work here at the same time.
        deadlines: deadlines of the process of a trial; it has none by default.
        max_resident: maximum number of trials that have processes here, at least ``slots``; 0: any.
        mode: ``max`` or ``min`` of the score is best.
        max_failures: deaths of a trial after which it is still started again; -1: any number.
        fail_fast: end at the first trial that is given up.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        scheduler: Scheduler,
        *,
        slots: int,
        deadlines: Deadlines = _NO_DEADLINES,
        max_resident: int = 0,
        mode: str = "max",
        max_failures: int = 2,
        fail_fast: bool = False,
    ) -> None:
        self._out = Outcome(trials)
        self.trials = self._out.trials
        self.ending, self.planned = "", False
        self.skipped = 0
        self._scheduler = scheduler
        self._mode, self._sign = mode, 1.0 if mode == "max" else -1.0
        self._fail_fast = fail_fast
        most = sys.maxsize if max_failures < 0 else max_failures
        rule = Restart(most, math.inf)
        components = Topology(
            Component(each.name, "trial", "main.trial", needs_torch=True, restart=rule)
            for each in trials
        )
        deadlines = replace(deadlines, **_BACK_OFF)
        self._processes = SupervisedComponents(components, deadlines, restarts=True)
        # In the order of the trials.
        self.children = list(self._processes.children.values())
        for trial, child in zip(trials, self.children, strict=True):
            child.losses = [Loss(0.0, trial.reason, "")] * trial.failures
        self._dialogues = Dialogues(scheduler, self._out)
        here = Place(slots, max_resident or len(trials))
        self.placement = Placement(self._processes, self._dialogues, self._out, here, deadlines)

    @property
    def over(self) -> bool:
        """True once no process is left, and no trial is to be started."""
        if any(self._processes.alive()):
            return False
        return bool(self.ending) or all(each.state in OVER for each in self.trials)

    @property
    def best(self) -> Trial | None:
        """The trial with the best newest score, the earlier one of two; None without a score."""
        return best_of(self.trials, self._mode)

    @property
    def working(self) -> int:
        """Number of trials that have a slot."""
        return sum(each.state is TrialState.running for each in self.trials)

    def doing(self, number: int) -> str:
        """Returns what a trial waits for, or the reason of its end; empty while it learns."""
        if waits := self._dialogues.doing(number):
            return waits
        trial = self.trials[number]
        if trial.state is TrialState.paused:
            return "waits for a slot"
        if trial.state is TrialState.pending and not self.placement.slots:
            return "no slot: join a machine"
        if trial.state is TrialState.pending and not self.placement.has_place_for(number):
            return f"waits for another machine: {trial.reason}"
        return trial.reason

    def retry_at(self) -> float:
        """Returns the earliest time at which a trial may be started again [s]."""
        pending = [
            child.due
            for trial, child in zip(self.trials, self.children, strict=True)
            if trial.state is TrialState.pending and not child.alive
        ]
        return min(pending, default=math.inf)

    def choose(self, now: float) -> list[Instruction]:
        """Lets trials work while there are slots.

        Args:
            now: monotonic time [s].
        """
        if not self.ending:
            self.placement.fill(now)
        return self._pop()

    def empty_place(self, place: str) -> list[Instruction]:
        """Asks all trials of a worker to save and end, and starts none there."""
        self.placement.places[place] = Place(0, 0)
        self._ask_to_leave(self.placement.residents(place))
        return self._pop()

    def lose_place(self, place: str, now: float) -> list[Instruction]:
        """Removes a worker; its trials go on elsewhere, from the newest files that are here.

        That is no death of a trial, unless it has lost 20 workers in a row.

        Args:
            place: name of the worker.
            now: monotonic time [s].
        """
        numbers, out = self.placement.residents(place), list[Instruction]()
        self.placement.places.pop(place, None)
        for number in numbers:
            if self.placement.counts_as_death(number):
                error = f"its machine was lost {LOST_LIMIT} times in a row"
                out += self.on_death(number, error, now)
                continue
            self.children[number].end(START_AGAIN, now)
            ends = TrialState.paused if self.ending else TrialState.pending
            out += self._bury(number, ends, f"{place} was lost")
        if numbers:
            self.placement.on_lost(place, now)
        return [*out, *self._pop()]

    def relieve(self, memory: Mapping[str, float], cause: str, now: float) -> list[Instruction]:
        """Makes room in the memory here: a paused trial leaves, else the largest one ends.

        Nothing is started here until ``placement.admits`` is True. The largest is started again,
        as after each death, unless it has died too often.

        Args:
            memory: name of each trial with processes -> its memory [bytes].
            cause: cause of its end.
            now: monotonic time [s].
        """
        self.placement.relieve(memory, cause, now)
        return self._pop()

    def on_heartbeat(self, beat: Beat, now: float) -> None:
        """Handles a heartbeat of a trial."""
        self._processes.on_heartbeat(beat, now)

    def tick(self, now: float) -> list[Instruction]:
        """Kills the trials whose heartbeats have been missing for too long."""
        self._processes.tick(now)
        self._processes.check_heartbeats(now)
        return [*self._processes.kill_due(now)]

    def on_report(
        self, number: int, report: Report, time: float, score: float | None, now: float
    ) -> list[Instruction]:
        """Decides about a report; one of an earlier process, or an older one, is ignored.

        Args:
            number: number of the trial.
            report: a step above 0 continues the dialogue about the same report.
            time: time of the trial, in the unit of the tuning.
            score: None if it has none.
            now: monotonic time [s].
        """
        if not self.children[number].alive or not self._dialogues.accept(number, report):
            return []
        self.placement.on_report(number)
        if report[2] == 0:
            self.note(number, time, score)
        # A donor goes on only after its checkpoint is copied.
        self._dialogues.begin_exploits()
        if self.ending:
            self._dialogues.leave(number)
        else:
            self._dialogues.decide(number, time, score, now)
        return self._pop()

    def on_exploit(
        self, exploit: Exploit, time: float | None, *, in_place: bool = True, skipped: str = ""
    ) -> list[Instruction]:
        """Records that the files of an exploit are written, or that they could not be.

        Args:
            exploit: the instruction.
            time: time of the copied checkpoint, in the unit of the tuning; None: it was skipped.
            in_place: the process of the trial can take over the settings; else it starts again.
            skipped: reason for which it was.
        """
        number, talk = exploit.trial, self._dialogues.talks[exploit.trial]
        if time is None:
            self._dialogues.skip_exploit(number, skipped)
        else:
            self._dialogues.end_exploit(number, in_place=in_place)
        if self.ending:
            talk.left = [LEAVE]
        if talk.waiting and self.trials[number].state is TrialState.running:
            self._dialogues.answer(number)
        return self._pop()

    def take_over(self, exploit: Exploit, time: float) -> None:
        """Changes settings, time and generation of a recipient, before its answer."""
        trial = self.trials[exploit.trial]
        trial.settings, trial.time = dict(exploit.settings), time
        self._scheduler.on_load(exploit.trial, exploit.settings)
        trial.generation += 1
        trial.parent = self.trials[exploit.donor].name

    def note(self, number: int, time: float, score: float | None) -> None:
        """Records time and score of a trial."""
        trial = self.trials[number]
        trial.time = time
        if score is None or not valid_score(score):
            return
        trial.score, best = score, trial.best_score
        if best is None or self._sign * score > self._sign * best:
            trial.best_score = score

    def on_end(self, number: int, reason: str, now: float) -> list[Instruction]:
        """Records that the process of a trial has ended because its run is complete."""
        self.children[number].end(0, now)
        self.placement.on_success(number)
        return self._bury(number, TrialState.terminated, reason)

    def on_left(self, number: int, now: float) -> list[Instruction]:
        """Records that the process of a trial has saved and ended; unasked, that is a death."""
        talk, trial = self._dialogues.talks[number], self.trials[number]
        if not (talk.asked or self.ending):
            return self.on_death(number, exit_error(START_AGAIN), now, exit_code=START_AGAIN)
        self.children[number].end(START_AGAIN, now)
        if trial.state is TrialState.paused and talk.asked and not self.ending:
            # It made room for another one, and waits without processes.
            self._dialogues.forget(number, Dialogue(held=talk.held, paused=talk.paused))
            return self._pop()
        ends = TrialState.paused if self.ending else TrialState.pending
        return self._bury(number, ends, "")

    def on_death(
        self, number: int, error: str, now: float, *, exit_code: int = 1
    ) -> list[Instruction]:
        """Records that the process of a trial has died; it is started again, or given up.

        Args:
            number: Number of the trial.
            error: The cause in one line; that of a kill for missing heartbeats is known.
            now: Monotonic time [s].
            exit_code: Exit code of the process.
        """
        trial, child = self.trials[number], self.children[number]
        here = self.placement.place(trial.name) == HERE
        # That another start cannot help may be the fault of the machine: another one is tried.
        child.end(exit_code if here else 1, now)
        if trial.state in OVER:
            return self._bury(number, trial.state, "")
        loss = Loss(now, child.cause or error, "")
        self.placement.on_death(number, loss.error, now)
        again = self._processes.record_death(child, loss)
        trial.failures, trial.reason = len(child.losses), trial.reason or loss.error
        if again:
            return self._bury(number, TrialState.pending, loss.error)
        if self._fail_fast:
            self.ending = self.ending or f"{trial.name} was given up: {trial.reason}"
        return self._bury(number, TrialState.error, trial.reason)

    def end(self, reason: str, *, planned: bool = False) -> list[Instruction]:
        """Ends the tuning: every trial saves and ends; a repeated call asks no trial again.

        Args:
            reason: reason of the end; the first one counts.
            planned: a budget or a goal of the tuning.
        """
        if not self.ending:
            self.ending, self.planned = reason, planned
        self._ask_to_leave(range(len(self.trials)))
        return self._pop()

    def _ask_to_leave(self, numbers: Iterable[int]) -> None:
        """Asks trials to save and end; a repeated call asks none again."""
        for number in numbers:
            talk = self._dialogues.talks[number]
            if not self.children[number].alive or self.trials[number].state in OVER:
                continue
            if talk.waiting and number not in self._dialogues.exploits:
                self._dialogues.leave(number)
            elif not talk.asked:
                talk.asked = True
                self._out.add(Signal(self.trials[number].name, signal.SIGINT))

    def state(self) -> dict[str, Any]:
        """Returns plain data for ``tuning.json``."""
        trials = list(map(plain_trial, self.trials))
        return {
            "trials": trials,
            "skipped": self.skipped,
            "unfit": self.placement.unfit,
            "scheduler": self._scheduler.state(),
        }

    def _bury(self, number: int, state: TrialState, reason: str) -> list[Instruction]:
        trial = self.trials[number]
        self._dialogues.forget(number)
        if trial.state is state or trial.state in OVER:
            return self._pop()
        if state is TrialState.terminated:
            trial.reason = reason
        self._out.become(number, state, reason)
        if state in OVER:
            self._dialogues.on_over(number)
        return self._pop()

    def _pop(self) -> list[Instruction]:
        out = self._out.pop()
        self.skipped += sum(isinstance(each, Skipped) for each in out)
        return out
