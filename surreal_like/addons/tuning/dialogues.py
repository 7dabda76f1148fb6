"""Dialogues with the processes of trials: answers to their reports, and exploits; pure."""

from __future__ import annotations

from collections.abc import Mapping

from surreal_like.addons.tuning.scheduler import CONTINUE, PAUSE, STOP, Decision, Scheduler
from surreal_like.addons.tuning.state import (
    OVER,
    Answer,
    Dialogue,
    Exploit,
    Outcome,
    Report,
    Skipped,
    TrialState,
)

SAVE, LOAD, LEAVE = "save", "load", "leave"


class Dialogues:
    """The decisions of a scheduler, as answers to the reports of trials.

    Args:
        scheduler: decisions about reports.
        out: trials, and what follows for them.

    Attributes:
        talks: dialogue with each trial, by number.
        exploits: recipient -> its exploit, until the donor has saved and the files are copied.
    """

    def __init__(self, scheduler: Scheduler, out: Outcome) -> None:
        self.talks = [Dialogue() for _ in out.trials]
        self.exploits: dict[int, Exploit] = {}
        self._scheduler, self._out, self._trials = scheduler, out, out.trials
        self._pauses = 0

    def doing(self, number: int) -> str:
        """Returns what a trial waits for that others do; empty: for nothing of theirs."""
        if number in self.exploits:
            return f"waits for {self._trials[self.exploits[number].donor].name}"
        if self._trials[number].state is not TrialState.paused or not self.talks[number].held:
            return ""
        late = [
            each.name
            for each, talk in zip(self._trials, self.talks, strict=True)
            if not talk.held and each.state not in OVER
        ]
        return f"waits for {late[0] if len(late) == 1 else f'{len(late)} trials'}"

    def accept(self, number: int, report: Report) -> bool:
        """Notes a report of a process that lives; returns True if it needs an answer of its own.

        Args:
            number: number of the trial.
            report: an older one, and one of an earlier process, are ignored.
        """
        talk = self.talks[number]
        if talk.report is not None and report <= talk.report:
            return False
        if talk.waiting:
            # Its learner was started again while it waited; the answer goes to the new one.
            talk.report = report
            return False
        if self._trials[number].state is not TrialState.running:
            return False
        talk.report, talk.waiting, talk.saving = report, True, False
        return True

    def decide(self, number: int, time: float, score: float | None, now: float) -> None:
        """Answers a report that was accepted, by a decision or by the next step of a dialogue.

        Args:
            number: number of the trial.
            time: time of the trial, in the unit of the tuning.
            score: None if it has none.
            now: monotonic time [s].
        """
        talk = self.talks[number]
        assert talk.report is not None  # it was accepted
        if talk.report[2] > 0 or talk.left[:1] in ([LOAD], [LEAVE]):
            if number not in self.exploits:
                self.answer(number)
            return
        waits = (TrialState.pending, TrialState.paused)
        others_wait = any(each.state in waits for each in self._trials)
        decisions = self._scheduler.report(number, time, score, now=now, others_wait=others_wait)
        talk.held = not decisions
        if decisions:
            self._obey(decisions)
        else:
            # A trial that is held saves; then its slot is free for another.
            talk.left = [SAVE, PAUSE]
            self.answer(number)

    def skip_exploit(self, number: int, reason: str) -> None:
        """Records that the files of an exploit could not be written."""
        self.exploits.pop(number, None)
        self._scheduler.on_load(number, None)
        self._out.add(Skipped(number, reason))

    def end_exploit(self, number: int, *, in_place: bool) -> None:
        """Records that the files of an exploit are written; the next answer says so."""
        self.exploits.pop(number, None)
        self.talks[number].left.insert(0, LOAD if in_place else LEAVE)

    def on_over(self, number: int) -> None:
        """Lets the scheduler decide about the others after the end of a trial."""
        self._obey(self._scheduler.on_end(number))

    def forget(self, number: int, new: Dialogue | None = None) -> None:
        """Ends the dialogue with a process that has ended."""
        self.talks[number] = new or Dialogue()
        self.begin_exploits()

    def begin_exploits(self) -> None:
        """Begins the exploits whose donor has saved, in the order in which they were decided.

        So `pbt.jsonl` does not depend on which of two donors saves first.
        """
        for number, exploit in list(self.exploits.items()):
            if self._trials[number].state in OVER:
                del self.exploits[number]
            elif self.talks[exploit.donor].saving:
                break
            elif exploit not in self._out.instructions:
                self._out.add(exploit)

    def leave(self, number: int) -> None:
        """Answers that a trial shall save and end."""
        self.talks[number].left = [LEAVE]
        self.answer(number)

    def answer(self, number: int) -> None:
        """Gives the next answer of the dialogue; a pause gives none."""
        talk, trial = self.talks[number], self._trials[number]
        kind = talk.left.pop(0) if talk.left else CONTINUE
        if kind == PAUSE:
            self._pauses += 1
            talk.paused = self._pauses
            self._out.become(number, TrialState.paused)
            return
        assert talk.report is not None  # an answer needs a report
        self._out.add(Answer(number, talk.report, kind, trial.reason if kind == STOP else ""))
        talk.waiting, talk.asked, talk.saving = False, kind == LEAVE, kind == SAVE
        if kind == STOP:
            self._out.become(number, TrialState.terminated, trial.reason)
            self.on_over(number)

    def _obey(self, decisions: Mapping[int, Decision]) -> None:
        for number, decision in decisions.items():
            talk, trial = self.talks[number], self._trials[number]
            # One that was held has saved, or is about to.
            saves = (decision.save or decision.then == PAUSE) and not talk.held
            talk.left = [SAVE] if saves and decision.load is None else []
            talk.left.append(decision.then)
            talk.held = False
            if decision.then == STOP:
                trial.reason = decision.reason
            if decision.skipped:
                self._out.add(Skipped(number, decision.skipped))
            if decision.load is not None:
                donor, settings = decision.load.donor, decision.load.settings
                self.exploits[number] = Exploit(number, donor, settings)
                if donor == number:
                    # It saves, and goes on from that with other settings.
                    talk.left.insert(0, SAVE)
                    self.answer(number)
            elif trial.state is TrialState.running and talk.waiting:
                self.answer(number)
        self.begin_exploits()
