"""Trials of a tuning with their states, and the instructions of its state machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from session.config.string_enum import StringEnum
from session.launchers.instruction import Event, Signal, Start

# Report of a trial: incarnation of its process, number of the report, step within its dialogue.
Report = tuple[int, int, int]


class TrialState(StringEnum):
    """State of a trial.

    Attributes:
        pending: it waits for a slot to be started.
        running: it learns in processes of its own.
        paused: it has saved and waits for a slot, with or without processes.
        terminated: it has ended as planned.
        error: it was given up.
    """

    pending = ()
    running = ()
    paused = ()
    terminated = ()
    error = ()


NEXT = {
    # The result of a machine that was lost at once: its trial is pending.
    TrialState.pending: {TrialState.running, TrialState.terminated, TrialState.error},
    TrialState.running: {*TrialState} - {TrialState.running},
    # A machine may send the result of a trial that waits for an answer.
    TrialState.paused: {*TrialState} - {TrialState.paused},
    TrialState.terminated: set[TrialState](),
    TrialState.error: {TrialState.pending},
}
OVER = (TrialState.terminated, TrialState.error)


def want_slots(states: Mapping[str, int]) -> tuple[int, str]:
    """Returns the slots that all unfinished trials need, of the number by state; and the reason."""
    found = {state: states.get(state, 0) for state in TrialState if state not in OVER}
    reason = ", ".join(f"{number} {state}" for state, number in found.items() if number)
    return sum(found.values()), reason or "all trials are over"


@dataclass(slots=True)
class Trial:
    """One trial, as ``tuning.json`` has it.

    Args:
        name: name of its folder.
        settings: dotted key -> value.
        state: present state.
        time: time of its newest report, in the unit of the tuning.
        score: newest one, None before the first.
        best_score: best one.
        generation: number of its exploits.
        parent: name of the newest donor; empty: none.
        failures: number of its deaths.
        reason: reason of its end, or its first error.
        cpu_seconds: processor time of its processes that have ended.
        slot: number of the slot whose GPU it has; None before its first start.
    """

    name: str
    settings: Mapping[str, Any]
    state: TrialState = TrialState.pending
    time: float = 0.0
    score: float | None = None
    best_score: float | None = None
    generation: int = 0
    parent: str = ""
    failures: int = 0
    reason: str = ""
    cpu_seconds: float = 0.0
    slot: int | None = None


@dataclass(slots=True)
class Place:
    """A machine for trials.

    Args:
        slots: maximum number of trials that work there at the same time.
        max_resident: maximum number of trials that have processes there.
    """

    slots: int
    max_resident: int


@dataclass(slots=True)
class Dialogue:
    """The dialogue with the process of a trial.

    Args:
        report: newest report, None before the first.
        waiting: True if that report has no answer yet.
        left: further answers of the present dialogue.
        asked: it was asked to save and end.
        held: the scheduler has not decided about that report yet.
        saving: it was asked to save, and has not reported since.
        paused: number of the pause, in the order of pauses.
    """

    report: Report | None = None
    waiting: bool = False
    left: list[str] = field(default_factory=list)
    asked: bool = False
    held: bool = False
    saving: bool = False
    paused: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a report: ``continue``, ``save``, ``load``, ``leave`` or ``stop``."""

    trial: int
    report: Report
    kind: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Changed:
    """A trial has changed its state."""

    trial: int
    before: TrialState
    after: TrialState
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Exploit:
    """Copy the newest checkpoint of a donor, and give a trial its new settings.

    Args:
        trial: number of the recipient.
        donor: number of that trial.
        settings: settings of the recipient from then on.
    """

    trial: int
    donor: int
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Skipped:
    """An exploit of a trial was left out."""

    trial: int
    reason: str


Instruction = Start | Signal | Answer | Changed | Exploit | Skipped | Event


class Outcome:
    """The trials of a tuning, and what follows for them from an event.

    Args:
        trials: all trials by number.

    Attributes:
        instructions: instructions since the last :meth:`pop`, in their order.
    """

    def __init__(self, trials: Sequence[Trial]) -> None:
        self.trials = list(trials)
        self.instructions: list[Instruction] = []

    def add(self, instruction: Instruction) -> None:
        """Adds an instruction."""
        self.instructions.append(instruction)

    def become(self, number: int, state: TrialState, reason: str = "") -> None:
        """Changes the state of a trial.

        Raises:
            ValueError: there is no such transition.
        """
        trial = self.trials[number]
        if state not in NEXT[trial.state]:
            raise ValueError(f"{trial.name}: no transition from {trial.state} to {state}")
        self.add(Changed(number, trial.state, state, reason))
        trial.state = state

    def pop(self) -> list[Instruction]:
        """Returns and removes the instructions."""
        out, self.instructions = self.instructions, []
        return out


_FIELDS = tuple(each.name for each in fields(Trial))


def plain_trial(trial: Trial) -> dict[str, Any]:
    """Returns the entry of a trial in ``tuning.json``; faster than ``asdict``, which copies all."""
    return {name: getattr(trial, name) for name in _FIELDS} | {"state": str(trial.state)}


def state_text(state: Mapping[str, Any]) -> str:
    """Returns the content of ``tuning.json``, with one line for each trial.

    1,000 trials take a few milliseconds; with ``indent``, ``json`` would encode in Python.
    """
    others = {name: value for name, value in state.items() if name != "trials"}
    lines = ",\n".join(map(json.dumps, state["trials"]))
    return f'{json.dumps(others)[:-1]}, "trials": [\n{lines}\n]}}\n'


def best_of(trials: Sequence[Trial], mode: str) -> Trial | None:
    """Returns the trial with the best newest score, the earlier one of two; None without a score.

    Args:
        trials: all trials by number; one that was given up is never best.
        mode: ``max`` or ``min`` of the score is best.
    """
    sign = -1.0 if mode == "max" else 1.0
    scored = [
        (sign * each.score, number, each)
        for number, each in enumerate(trials)
        if each.score is not None and each.state is not TrialState.error
    ]
    return min(scored)[2] if scored else None


def restore_trials(state: Mapping[str, Any], *, retry_errors: bool = False) -> list[Trial]:
    """Returns the trials of a state of :meth:`Tuning.state`; those that worked are pending.

    Args:
        state: content of ``tuning.json``.
        retry_errors: trials that were given up are pending, too, and their failures count anew.

    Raises:
        KeyError, TypeError, ValueError: it is no such state.
    """
    trials = []
    for entry in state["trials"]:
        known = {each.name: entry[each.name] for each in fields(Trial) if each.name in entry}
        trial = Trial(**known)
        trial.state = TrialState(trial.state)
        if trial.state is TrialState.error and retry_errors:
            trial.failures, trial.reason = 0, ""
            trial.state = TrialState.pending
        if trial.state not in OVER:
            trial.state = TrialState.pending
        trials.append(trial)
    return trials
