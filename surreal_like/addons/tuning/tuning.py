"""A tuning as a state machine: events come in, instructions go out; no socket, clock or file."""

from __future__ import annotations

import math
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from session.errors import START_AGAIN
from session.launchers.instruction import Event, Signal, exit_error
from session.launchers.supervised_components import (
    Deadlines,
    Loss,
    SupervisedComponent,
    SupervisedComponents,
    restart_time,
)
from session.process.component import Component, Restart, Topology
from session.process.heartbeat import Beat
from surreal_like.addons.tuning.scheduler import (
    CONTINUE,
    PAUSE,
    STOP,
    Decision,
    Scheduler,
    valid_score,
)
from surreal_like.addons.tuning.state import (
    NEXT,
    OVER,
    Answer,
    Changed,
    Dialogue,
    Exploit,
    Instruction,
    Place,
    Report,
    Skipped,
    Trial,
    TrialState,
    best_of,
    plain_trial,
)

SAVE, LOAD, LEAVE = "save", "load", "leave"
# A time after each pause.
_EVER = sys.float_info.max
# Name of this machine among the places of trials; the others are workers.
HERE = ""
# Workers that a trial may lose in a row; then that counts as a death.
_LOST_LIMIT = 20

# Each start of a trial costs seconds of a processor.
_BACK_OFF = {"back_off_seconds": 0.5, "back_off_limit_seconds": 60.0}
_NO_DEADLINES = Deadlines(math.inf, math.inf)
# A machine whose trials die, or that is lost soon after it came, gets none for a while, and after
# so many times in a row none any more; its next process may try after this time.
_MACHINE = Restart(2, 3600.0)
# Trials that live longer say nothing against their machine [s].
_PROVEN_SECONDS = 60.0


class Tuning:
    """The trials of a tuning and the decisions about them; each is a supervised component.

    Every method returns the instructions that follow; the state between two calls is consistent.

    Attributes:
        trials: all trials by number.
        places: machine -> its slots.
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
        self.trials = list(trials)
        self.ending, self.planned = "", False
        self.skipped = 0
        self.places = {HERE: Place(slots, max_resident or len(trials))}
        # Place of the process of each trial that has one, and the workers it has lost in a row.
        self._at = [HERE for _ in trials]
        self._lost = [0 for _ in trials]
        # Places where each trial has died.
        self._died_at: list[set[str]] = [set() for _ in trials]
        # Place -> the failures there.
        self._machines: dict[str, SupervisedComponent] = {}
        self._scheduler = scheduler
        self._mode, self._sign = mode, 1.0 if mode == "max" else -1.0
        self._fail_fast = fail_fast
        most = sys.maxsize if max_failures < 0 else max_failures
        rule = Restart(most, math.inf)
        components = Topology(
            Component(each.name, "trial", "main.trial", needs_torch=True, restart=rule)
            for each in trials
        )
        self._deadlines = replace(deadlines, **_BACK_OFF)
        self._processes = SupervisedComponents(components, self._deadlines, restarts=True)
        # In the order of the trials.
        self.children = list(self._processes.children.values())
        for trial, child in zip(trials, self.children, strict=True):
            child.losses = [Loss(0.0, trial.reason, "")] * trial.failures
        self._pauses = 0
        # False while too much memory is used.
        self._admits = True
        self._dialogues = [Dialogue() for _ in trials]
        self._out: list[Instruction] = []
        # Recipient -> its exploit, until the donor has saved and the files are copied.
        self._exploits: dict[int, Exploit] = {}

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
    def slots(self) -> int:
        """Maximum number of trials that work at the same time, on all machines that get some."""
        return sum(each.slots for name, each in self.places.items() if self._gets(name, _EVER))

    @property
    def working(self) -> int:
        """Number of trials that have a slot."""
        return sum(each.state is TrialState.running for each in self.trials)

    def place(self, name: str) -> str:
        """Returns the machine that has, or had last, the process of a trial."""
        return self._at[list(self._processes.children).index(name)]

    def doing(self, number: int) -> str:
        """Returns what a trial waits for, or the reason of its end; empty while it learns."""
        trial, talk = self.trials[number], self._dialogues[number]
        if number in self._exploits:
            return f"waits for {self.trials[self._exploits[number].donor].name}"
        if trial.state is TrialState.paused and talk.held:
            late = [
                each.name
                for each, other in zip(self.trials, self._dialogues, strict=True)
                if not other.held and each.state not in OVER
            ]
            return f"waits for {late[0] if len(late) == 1 else f'{len(late)} trials'}"
        if trial.state is TrialState.paused:
            return "waits for a slot"
        if trial.state is TrialState.pending and not self.slots:
            return "no slot: join a machine"
        if trial.state is TrialState.pending and not any(
            each.slots and self._suits(number, name) for name, each in self.places.items()
        ):
            return f"waits for another machine: {trial.reason}"
        return trial.reason

    @property
    def unfit(self) -> dict[str, str]:
        """The machines that get no trials any more, each with the reason."""
        return {
            name: f"{len(each.losses)} failures in a row, the last: {each.losses[-1].error}"
            for name, each in self._machines.items()
            if not self._gets(name, _EVER)
        }

    def retry_at(self) -> float:
        """Returns the earliest time at which a trial may be started again [s]."""
        pending = [
            child.due
            for trial, child in zip(self.trials, self.children, strict=True)
            if trial.state is TrialState.pending and not child.alive
        ]
        return min(pending, default=math.inf)

    def choose(self, now: float) -> list[Instruction]:
        """Lets trials work while there are slots: pending ones first, then paused ones.

        Args:
            now: monotonic time [s].
        """
        for place in self.places if not self.ending else ():
            self._fill(place, now)
        return self._pop()

    def _fill(self, place: str, now: float) -> None:
        """Lets trials work on one machine."""
        room, gets = self.places[place], self._gets(place, now)
        if self._resident(place) > room.max_resident:
            self._make_room(place)
        while self._free(place):
            number = self._next(now, place)
            if number is None:
                if gets:
                    self._call_over(place)
                break
            child = self.children[number]
            if not child.alive and not (gets and (place != HERE or self._admits)):
                break
            if not child.alive and self._resident(place) >= room.max_resident:
                self._make_room(place)
                break
            self._become(number, TrialState.running)
            if child.alive:
                self._answer(number)
            else:
                # What the scheduler has decided meanwhile is in its files.
                self._dialogues[number] = Dialogue()
                self._at[number] = place
                if place == HERE:
                    self._choose_slot(number)
                self._out.append(self._processes.start(child, now))

    def _machine(self, place: str) -> SupervisedComponent:
        component = Component(place or "tuner", "worker", "", restart=_MACHINE)
        return self._machines.setdefault(place, SupervisedComponent(component))

    def _gets(self, place: str, now: float) -> bool:
        """Returns True if trials may be started on a machine; here also if no other one works."""
        if place not in self._machines or now >= self._machines[place].due:
            return True
        others = (name for name, each in self.places.items() if name != HERE and each.slots)
        return place == HERE and not any(self._gets(name, now) for name in others)

    def _suits(self, number: int, place: str) -> bool:
        """Returns False if a trial would use up its last life where alone it has died."""
        child = self.children[number]
        last = len(child.losses) >= child.component.restart.max_restarts
        if child.alive or not last or self._died_at[number] != {place}:
            return True
        others = any(other != place and each.slots for other, each in self.places.items())
        return not others and (place == HERE or self._machine(place).ran)

    def _on_failure(self, place: str, error: str, now: float) -> None:
        """Counts a failure for a machine; it is not given up while trials are at work there."""
        machine = self._machine(place)
        due = restart_time(machine, Loss(now, error, ""), self._deadlines, allowed=True)
        if due is None and self._resident(place):
            due = now + self._deadlines.pause_seconds(len(machine.losses))
        machine.due = math.inf if due is None else due
        if due is None and (reason := self.unfit.get(place)):
            self._out.append(Event(place, "unfit", f"gets no trials any more: {reason}"))

    def _on_success(self, place: str) -> None:
        """Notes that a trial has worked on a machine."""
        if place in self.places:
            machine = self._machine(place)
            machine.ran, machine.losses, machine.due = True, [], 0.0

    def _free(self, place: str) -> bool:
        """Returns True if a further trial can work on a machine."""
        running = TrialState.running
        at = (
            each
            for each, trial in zip(self._at, self.trials, strict=True)
            if trial.state is running
        )
        return sum(each == place for each in at) < self.places[place].slots

    def _call_over(self, place: str) -> None:
        """Asks a trial that waits for a slot of another machine to leave that: one here is free."""
        if any(talk.asked for talk in self._dialogues):
            return
        for other in self.places:
            if other != place and not self._free(other) and self._next(0.0, other) is not None:
                self._make_room(other, held=False)
                return

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

    def empty_place(self, place: str) -> list[Instruction]:
        """Asks all trials of a worker to save and end, and starts none there."""
        self.places[place] = Place(0, 0)
        self._ask_to_leave(number for number, at in enumerate(self._at) if at == place)
        return self._pop()

    def lose_place(self, place: str, now: float) -> list[Instruction]:
        """Removes a worker; its trials go on elsewhere, from the newest files that are here.

        That is no death of a trial, unless it has lost 20 workers in a row.

        Args:
            place: name of the worker.
            now: monotonic time [s].
        """
        had, out = self._resident(place) > 0, list[Instruction]()
        self.places.pop(place, None)
        for number, (child, at) in enumerate(zip(self.children, self._at, strict=True)):
            if at != place or not child.alive:
                continue
            self._lost[number] += 1
            if self._lost[number] >= _LOST_LIMIT:
                self._lost[number] = 0
                error = f"its machine was lost {_LOST_LIMIT} times in a row"
                out += self.on_death(number, error, now)
                continue
            child.end(START_AGAIN, now)
            ends = TrialState.paused if self.ending else TrialState.pending
            out += self._bury(number, ends, f"{place} was lost")
        if had and now - self._machine(place).started_at < _PROVEN_SECONDS:
            self._on_failure(place, "it was lost", now)
        return [*out, *self._pop()]

    def relieve(self, memory: Mapping[str, float], cause: str, now: float) -> list[Instruction]:
        """Makes room in the memory here: a paused trial leaves, else the largest one ends.

        Nothing is started until :meth:`admit`. The largest is started again, as after each death,
        unless it has died too often.

        Args:
            memory: name of each trial with processes -> its memory [bytes].
            cause: cause of its end.
            now: monotonic time [s].
        """
        admitted, self._admits = self._admits, False
        # One at a time: the next look shows what its end has freed.
        ends = any(child.alive and child.cause for child in self.children)
        if ends or any(talk.asked for talk in self._dialogues):
            return self._pop()
        self._make_room(HERE)
        working = [
            child
            for child, at in zip(self.children, self._at, strict=True)
            if child.alive and at == HERE
        ]
        if not self._out and not admitted and working:
            largest = max(working, key=lambda child: memory.get(child.name, 0.0))
            largest.cause, largest.kill_at = cause, now
        return self._pop()

    def admit(self) -> None:
        """Lets trials start again."""
        self._admits = True

    def on_heartbeat(self, beat: Beat, now: float) -> None:
        """Handles a heartbeat of a trial."""
        self._processes.on_heartbeat(beat, now)

    def tick(self, now: float) -> list[Instruction]:
        """Kills the trials whose heartbeats have been missing for too long."""
        self._processes.tick(now)
        self._processes.check_heartbeats(now)
        return [*self._processes.kill_due(now)]

    def _resident(self, place: str) -> int:
        pairs = zip(self.children, self._at, strict=True)
        return sum(child.alive and at == place for child, at in pairs)

    def _choose_slot(self, number: int) -> None:
        """Gives a trial the slot that the fewest others have, for its whole life."""
        taken = Counter(each.slot for each in self.trials if each.state not in OVER)
        if self.trials[number].slot is None:
            self.trials[number].slot = min(
                range(self.places[HERE].slots), key=lambda slot: taken[slot]
            )

    def _make_room(self, place: str, *, held: bool = True) -> None:
        """Asks the trial that was paused longest to leave, unless another one is leaving.

        Args:
            place: machine of the trials.
            held: False leaves those out about which the scheduler has not decided.
        """
        alive = {
            number: talk
            for number, talk in enumerate(self._dialogues)
            if self.children[number].alive and self._at[number] == place
        }
        if not any(talk.asked for talk in alive.values()):
            resting = {
                talk.paused: number
                for number, talk in alive.items()
                if self.trials[number].state is TrialState.paused
                and number not in self._exploits
                and (held or not talk.held)
            }
            if resting:
                number = resting[min(resting)]
                self._dialogues[number].left = [LEAVE]
                self._answer(number)

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
        trial, talk = self.trials[number], self._dialogues[number]
        alive, newer = self.children[number].alive, talk.report is None or report > talk.report
        if alive and newer and talk.waiting:
            # Its learner was started again while it waited; the answer goes to the new one.
            talk.report = report
            return []
        if not alive or not newer or trial.state is not TrialState.running:
            return []
        talk.report, talk.waiting, talk.saving = report, True, False
        self._lost[number] = 0
        self._on_success(self._at[number])
        if report[2] == 0:
            self.note(number, time, score)
        # A donor goes on only after its checkpoint is copied.
        self._exploit()
        if self.ending:
            talk.left = [LEAVE]
            self._answer(number)
        elif report[2] == 0 and talk.left[:1] not in ([LOAD], [LEAVE]):
            others_wait = any(each.state is TrialState.pending for each in self.trials)
            others_wait |= any(each.state is TrialState.paused for each in self.trials)
            decisions = self._scheduler.report(
                number, time, score, now=now, others_wait=others_wait
            )
            talk.held = not decisions
            if decisions:
                self._decide(decisions)
            else:
                # A trial that is held saves; then its slot is free for another.
                talk.left = [SAVE, PAUSE]
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
            time: time of the copied checkpoint, in the unit of the tuning; None: it was skipped.
            in_place: the process of the trial can take over the settings; else it starts again.
            skipped: reason for which it was.
        """
        number, talk = exploit.trial, self._dialogues[exploit.trial]
        self._exploits.pop(number, None)
        if time is None:
            self._scheduler.on_load(number, None)
            self._out.append(Skipped(number, skipped))
        else:
            talk.left.insert(0, LOAD if in_place else LEAVE)
        if self.ending:
            talk.left = [LEAVE]
        if talk.waiting and self.trials[number].state is TrialState.running:
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

    def on_end(self, number: int, reason: str, now: float) -> list[Instruction]:
        """Records that the process of a trial has ended because its run is complete."""
        self.children[number].end(0, now)
        self._on_success(self._at[number])
        return self._bury(number, TrialState.terminated, reason)

    def on_left(self, number: int, now: float) -> list[Instruction]:
        """Records that the process of a trial has saved and ended; unasked, that is a death."""
        talk, trial = self._dialogues[number], self.trials[number]
        if not (talk.asked or self.ending):
            return self.on_death(number, exit_error(START_AGAIN), now, exit_code=START_AGAIN)
        self.children[number].end(START_AGAIN, now)
        if trial.state is TrialState.paused and talk.asked and not self.ending:
            # It made room for another one, and waits without processes.
            self._dialogues[number] = Dialogue(held=talk.held, paused=talk.paused)
            self._exploit()
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
        trial, child, place = self.trials[number], self.children[number], self._at[number]
        # That another start cannot help may be the fault of the machine: another one is tried.
        child.end(exit_code if place == HERE else 1, now)
        if trial.state in OVER:
            return self._bury(number, trial.state, "")
        loss = Loss(now, child.cause or error, "")
        self._died_at[number].add(place)
        if now - child.started_at < _PROVEN_SECONDS:
            self._on_failure(place, f"{trial.name}: {loss.error}", now)
        else:
            self._on_success(place)
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
            talk = self._dialogues[number]
            if not self.children[number].alive or self.trials[number].state in OVER:
                continue
            if talk.waiting and number not in self._exploits:
                talk.left = [LEAVE]
                self._answer(number)
            elif not talk.asked:
                talk.asked = True
                self._out.append(Signal(self.trials[number].name, signal.SIGINT))

    def state(self) -> dict[str, Any]:
        """Returns plain data for ``tuning.json``."""
        trials = list(map(plain_trial, self.trials))
        return {
            "trials": trials,
            "skipped": self.skipped,
            "unfit": self.unfit,
            "scheduler": self._scheduler.state(),
        }

    def _next(self, now: float, place: str) -> int | None:
        """Returns the trial to work next: pending by number, then paused by time and number.

        One that has processes can work where they are only.
        """
        # A donor goes on only after its checkpoint is copied.
        busy = {*self._exploits, *(each.donor for each in self._exploits.values())}
        waiting = [
            (
                trial.state is TrialState.paused,
                trial.time if trial.state is TrialState.paused else 0.0,
                number,
            )
            for number, (trial, talk) in enumerate(zip(self.trials, self._dialogues, strict=True))
            if number not in busy
            and (not self.children[number].alive or self._at[number] == place)
            and self._suits(number, place)
            and (
                (trial.state is TrialState.paused and not talk.held and not talk.asked)
                or (trial.state is TrialState.pending and self._may_start(number, now))
            )
        ]
        return min(waiting)[2] if waiting else None

    def _may_start(self, number: int, now: float) -> bool:
        child = self.children[number]
        return not child.alive and now >= child.due

    def _decide(self, decisions: Mapping[int, Decision]) -> None:
        for number, decision in decisions.items():
            talk, trial = self._dialogues[number], self.trials[number]
            # One that was held has saved, or is about to.
            saves = (decision.save or decision.then == PAUSE) and not talk.held
            talk.left = [SAVE] if saves and decision.load is None else []
            talk.left.append(decision.then)
            talk.held = False
            if decision.then == STOP:
                trial.reason = decision.reason
            if decision.skipped:
                self._out.append(Skipped(number, decision.skipped))
            if decision.load is not None:
                donor, settings = decision.load.donor, decision.load.settings
                self._exploits[number] = Exploit(number, donor, settings)
                if donor == number:
                    # It saves, and goes on from that with other settings.
                    talk.left.insert(0, SAVE)
                    self._answer(number)
            elif trial.state is TrialState.running and talk.waiting:
                self._answer(number)
        self._exploit()

    def _exploit(self) -> None:
        """Begins the exploits whose donor has saved, in the order in which they were decided.

        So `pbt.jsonl` does not depend on which of two donors saves first.
        """
        for number, exploit in list(self._exploits.items()):
            if self.trials[number].state in OVER:
                del self._exploits[number]
            elif self._dialogues[exploit.donor].saving:
                break
            elif exploit not in self._out:
                self._out.append(exploit)

    def _answer(self, number: int) -> None:
        """Gives the next answer of the dialogue; a pause gives none."""
        talk, trial = self._dialogues[number], self.trials[number]
        kind = talk.left.pop(0) if talk.left else CONTINUE
        if kind == PAUSE:
            self._pauses += 1
            talk.paused = self._pauses
            self._become(number, TrialState.paused)
            return
        assert talk.report is not None  # an answer needs a report
        self._out.append(Answer(number, talk.report, kind, trial.reason if kind == STOP else ""))
        talk.waiting, talk.asked, talk.saving = False, kind == LEAVE, kind == SAVE
        if kind == STOP:
            self._become(number, TrialState.terminated, trial.reason)
            self._decide(self._scheduler.on_end(number))

    def _bury(self, number: int, state: TrialState, reason: str) -> list[Instruction]:
        trial = self.trials[number]
        self._dialogues[number] = Dialogue()
        self._exploit()
        if trial.state is state or trial.state in OVER:
            return self._pop()
        if state is TrialState.terminated:
            trial.reason = reason
        self._become(number, state, reason)
        if state in OVER:
            self._decide(self._scheduler.on_end(number))
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
