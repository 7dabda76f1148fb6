"""A tuning as a state machine: events come in, instructions go out; no socket, clock or file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from surreal_like.tuning.scheduler import CONTINUE, PAUSE, STOP, Decision, Scheduler, valid_score
from surreal_like.tuning.state import (
    NEXT,
    OVER,
    Answer,
    Changed,
    Exploit,
    Instruction,
    Interrupt,
    Life,
    Report,
    Skipped,
    Start,
    Trial,
    TrialState,
    best_of,
    plain_trial,
)

SAVE, LOAD, LEAVE = "save", "load", "leave"

_FIRST_RETRY_SECONDS = 0.5
_MOST_RETRY_SECONDS = 60.0


class Tuning:
    """The trials of a tuning and the decisions about them.

    Every method returns the instructions that follow; the state between two calls is consistent.

    Attributes:
        trials: in the order of their numbers.
        slots: maximum number of trials that work at the same time.
        max_resident: maximum number of trials that have processes; it may be changed.
        ending: reason for which it ends before all trials have; empty: it goes on.
        planned: that reason is a budget or a goal of the tuning.
        skipped: number of exploits that were left out.

    Args:
        trials: in the order of their numbers.
        scheduler: decides at reports.
        slots: maximum number of trials that work at the same time, at least 1.
        max_resident: maximum number of trials that have processes, at least ``slots``; 0: any.
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
        max_resident: int = 0,
        mode: str = "max",
        max_failures: int = 2,
        fail_fast: bool = False,
    ) -> None:
        self.trials = list(trials)
        self.ending, self.planned = "", False
        self.slots, self.skipped = slots, 0
        self._scheduler = scheduler
        self._mode, self._sign = mode, 1.0 if mode == "max" else -1.0
        self._max_failures, self._fail_fast = max_failures, fail_fast
        self.max_resident = max_resident or len(self.trials)
        self._pauses = 0
        self._lives = [Life() for _ in trials]
        self._out: list[Instruction] = []
        # Recipient -> its exploit, until the donor has saved and the files are copied.
        self._exploits: dict[int, Exploit] = {}

    @property
    def over(self) -> bool:
        """True once no process is left, and no trial is to be started."""
        if any(life.alive for life in self._lives):
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
        trial, life = self.trials[number], self._lives[number]
        if number in self._exploits:
            return f"waits for {self.trials[self._exploits[number].donor].name}"
        if trial.state is TrialState.paused and life.held:
            late = [
                each.name
                for each, other in zip(self.trials, self._lives, strict=True)
                if not other.held and each.state not in OVER
            ]
            return f"waits for {late[0] if len(late) == 1 else f'{len(late)} trials'}"
        if trial.state is TrialState.paused:
            return "waits for a slot"
        return trial.reason

    def retry_at(self) -> float:
        """Returns the earliest time at which a trial may be started again [s]."""
        pending = [
            life.retry_at
            for trial, life in zip(self.trials, self._lives, strict=True)
            if trial.state is TrialState.pending and not life.alive
        ]
        return min(pending, default=math.inf)

    def choose(self, now: float) -> list[Instruction]:
        """Lets trials work while there are slots: pending ones first, then paused ones.

        Args:
            now: monotonic time [s].
        """
        if not self.ending and sum(life.alive for life in self._lives) > self.max_resident:
            self._make_room()
        while not self.ending and self.working < self.slots:
            number = self._next(now)
            if number is None:
                break
            life = self._lives[number]
            if not life.alive and not self._has_room():
                break
            self._become(number, TrialState.running)
            if life.alive:
                self._answer(number)
            else:
                # What the scheduler has decided meanwhile is in its files.
                self._lives[number] = Life(alive=True)
                self._choose_slot(number)
                self._out.append(Start(number))
        return self._pop()

    def _choose_slot(self, number: int) -> None:
        """Gives a trial the slot that the fewest others have, for its whole life."""
        taken = Counter(each.slot for each in self.trials if each.state not in OVER)
        if self.trials[number].slot is None:
            self.trials[number].slot = min(range(self.slots), key=lambda slot: taken[slot])

    def _has_room(self) -> bool:
        """Returns True if another trial can have processes; else the one paused longest leaves."""
        if sum(life.alive for life in self._lives) < self.max_resident:
            return True
        self._make_room()
        return False

    def _make_room(self) -> None:
        """Asks the trial that was paused longest to leave, unless another one is leaving."""
        alive = {number: life for number, life in enumerate(self._lives) if life.alive}
        if not any(life.asked for life in alive.values()):
            resting = {
                life.paused: number
                for number, life in alive.items()
                if self.trials[number].state is TrialState.paused and number not in self._exploits
            }
            if resting:
                number = resting[min(resting)]
                self._lives[number].left = [LEAVE]
                self._answer(number)

    def on_report(
        self, number: int, report: Report, time: float, score: float | None, now: float
    ) -> list[Instruction]:
        """Decides about a report; one of an earlier process, or an older one, is ignored.

        Args:
            number: of the trial.
            report: a step above 0 continues the dialogue about the same report.
            time: of the trial, in the unit of the tuning.
            score: None if it has none.
            now: monotonic time [s].
        """
        trial, life = self.trials[number], self._lives[number]
        newer = life.report is None or report > life.report
        if life.alive and newer and life.waiting:
            # Its learner was started again while it waited; the answer goes to the new one.
            life.report = report
            return []
        if not life.alive or not newer or trial.state is not TrialState.running:
            return []
        life.report, life.waiting, life.saving = report, True, False
        if report[2] == 0:
            self.note(number, time, score)
        # A donor goes on only after its checkpoint is copied.
        self._exploit()
        if self.ending:
            life.left = [LEAVE]
            self._answer(number)
        elif report[2] == 0 and life.left[:1] not in ([LOAD], [LEAVE]):
            others_wait = any(each.state is TrialState.pending for each in self.trials)
            others_wait |= any(each.state is TrialState.paused for each in self.trials)
            decisions = self._scheduler.report(
                number, time, score, now=now, others_wait=others_wait
            )
            life.held = not decisions
            if decisions:
                self._decide(decisions)
            else:
                # A trial that is held saves; then its slot is free for another.
                life.left = [SAVE, PAUSE]
                self._answer(number)
        elif number not in self._exploits:
            self._answer(number)
        return self._pop()

    def on_exploit(
        self, exploit: Exploit, time: float | None, *, in_place: bool = True, skipped: str = ""
    ) -> list[Instruction]:
        """Records that the files of an exploit are written, or that they could not be.

        Args:
            exploit: the instruction.
            time: of the copied checkpoint, in the unit of the tuning; None: it was skipped.
            in_place: the process of the trial can take over the settings; else it starts again.
            skipped: reason for which it was.
        """
        number, life = exploit.trial, self._lives[exploit.trial]
        self._exploits.pop(number, None)
        if time is None:
            self._scheduler.on_load(number, None)
            self._out.append(Skipped(number, skipped))
        else:
            life.left.insert(0, LOAD if in_place else LEAVE)
        if self.ending:
            life.left = [LEAVE]
        if life.waiting and self.trials[number].state is TrialState.running:
            self._answer(number)
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

    def on_end(self, number: int, reason: str) -> list[Instruction]:
        """Records that the process of a trial has ended because its run is complete."""
        return self._bury(number, TrialState.terminated, reason)

    def on_left(self, number: int, now: float) -> list[Instruction]:
        """Records that the process of a trial has ended because it was asked to save and end."""
        life, trial = self._lives[number], self.trials[number]
        if trial.state is TrialState.paused and life.asked and not self.ending:
            # It made room for another one, and waits without processes.
            self._lives[number] = Life(held=life.held, paused=life.paused)
            self._exploit()
            return self._pop()
        ends = TrialState.paused if self.ending else TrialState.pending
        return self._bury(number, ends, "")

    def on_death(
        self, number: int, error: str, now: float, *, hopeless: bool = False
    ) -> list[Instruction]:
        """Records that the process of a trial has died; it is started again, or given up.

        Args:
            number: of the trial.
            error: in one line.
            now: monotonic time [s].
            hopeless: another try would end in the same way.
        """
        trial = self.trials[number]
        if trial.state in OVER:
            return self._bury(number, trial.state, "")
        trial.failures += 1
        trial.reason = trial.reason or error
        again = self._max_failures < 0 or trial.failures <= self._max_failures
        if hopeless or not again:
            if self._fail_fast:
                self.ending = self.ending or f"{trial.name} was given up: {trial.reason}"
            return self._bury(number, TrialState.error, trial.reason)
        delay = _FIRST_RETRY_SECONDS * 2.0 ** (trial.failures - 2) if trial.failures > 1 else 0.0
        out = self._bury(number, TrialState.pending, error)
        self._lives[number].retry_at = now + min(delay, _MOST_RETRY_SECONDS)
        return out

    def end(self, reason: str, *, planned: bool = False) -> list[Instruction]:
        """Ends the tuning: every trial saves and ends; a repeated call asks no trial again.

        Args:
            reason: of the end; the first one counts.
            planned: a budget or a goal of the tuning.
        """
        if not self.ending:
            self.ending, self.planned = reason, planned
        for number, life in enumerate(self._lives):
            if not life.alive or self.trials[number].state in OVER:
                continue
            if life.waiting and number not in self._exploits:
                life.left = [LEAVE]
                self._answer(number)
            elif not life.asked:
                life.asked = True
                self._out.append(Interrupt(number))
        return self._pop()

    def state(self) -> dict[str, Any]:
        """Returns plain data for ``tuning.json``."""
        trials = list(map(plain_trial, self.trials))
        return {
            "trials": trials,
            "skipped": self.skipped,
            "scheduler": self._scheduler.state(),
        }

    def _next(self, now: float) -> int | None:
        """Returns the trial to work next: pending by number, then paused by time and number."""
        # A donor goes on only after its checkpoint is copied.
        busy = {*self._exploits, *(each.donor for each in self._exploits.values())}
        waiting = [
            (
                trial.state is TrialState.paused,
                trial.time if trial.state is TrialState.paused else 0.0,
                number,
            )
            for number, (trial, life) in enumerate(zip(self.trials, self._lives, strict=True))
            if number not in busy
            and (
                (trial.state is TrialState.paused and not life.held and not life.asked)
                or (trial.state is TrialState.pending and not life.alive and now >= life.retry_at)
            )
        ]
        return min(waiting)[2] if waiting else None

    def _decide(self, decisions: Mapping[int, Decision]) -> None:
        for number, decision in decisions.items():
            life, trial = self._lives[number], self.trials[number]
            # One that was held has saved, or is about to.
            saves = (decision.save or decision.then == PAUSE) and not life.held
            life.left = [SAVE] if saves and decision.load is None else []
            life.left.append(decision.then)
            life.held = False
            if decision.then == STOP:
                trial.reason = decision.reason
            if decision.skipped:
                self._out.append(Skipped(number, decision.skipped))
            if decision.load is not None:
                donor, settings = decision.load.donor, decision.load.settings
                self._exploits[number] = Exploit(number, donor, settings)
                if donor == number:
                    # It saves, and goes on from that with other settings.
                    life.left.insert(0, SAVE)
                    self._answer(number)
            elif trial.state is TrialState.running and life.waiting:
                self._answer(number)
        self._exploit()

    def _exploit(self) -> None:
        """Begins the exploits whose donor has saved, in the order in which they were decided.

        So `pbt.jsonl` does not depend on which of two donors saves first.
        """
        for number, exploit in list(self._exploits.items()):
            if self.trials[number].state in OVER:
                del self._exploits[number]
            elif self._lives[exploit.donor].saving:
                break
            elif exploit not in self._out:
                self._out.append(exploit)

    def _answer(self, number: int) -> None:
        """Gives the next answer of the dialogue; a pause gives none."""
        life, trial = self._lives[number], self.trials[number]
        kind = life.left.pop(0) if life.left else CONTINUE
        if kind == PAUSE:
            self._pauses += 1
            life.paused = self._pauses
            self._become(number, TrialState.paused)
            return
        assert life.report is not None  # an answer needs a report
        self._out.append(Answer(number, life.report, kind, trial.reason if kind == STOP else ""))
        life.waiting, life.asked, life.saving = False, kind == LEAVE, kind == SAVE
        if kind == STOP:
            self._become(number, TrialState.terminated, trial.reason)
            self._decide(self._scheduler.finished(number))

    def _bury(self, number: int, state: TrialState, reason: str) -> list[Instruction]:
        trial = self.trials[number]
        self._lives[number] = Life()
        self._exploit()
        if trial.state is state or trial.state in OVER:
            return self._pop()
        if state is TrialState.terminated:
            trial.reason = reason
        self._become(number, state, reason)
        if state in OVER:
            self._decide(self._scheduler.finished(number))
        return self._pop()

    def _become(self, number: int, state: TrialState, reason: str = "") -> None:
        """Changes the state of a trial.

        Raises:
            ValueError: there is no such transition.
        """
        trial = self.trials[number]
        if state not in NEXT[trial.state]:
            raise ValueError(f"{trial.name}: no transition from {trial.state} to {state}")
        self._out.append(Changed(number, trial.state, state, reason))
        trial.state = state

    def _pop(self) -> list[Instruction]:
        out, self._out = self._out, []
        self.skipped += sum(isinstance(each, Skipped) for each in out)
        return out
