"""Machines come to a tuning and go: where trials work, and what becomes of them."""

from __future__ import annotations

import signal

from session.launchers.instruction import Signal
from surreal_like.tuning.state import Answer
from tests.surreal_like.tuning.test_tuning import (
    interrupt,
    kinds,
    make,
    pbt,
    report,
    start,
    states,
    without_changes,
)

ONE, TWO = "worker-1000", "worker-1001"


def test_trials_go_to_free_slots_here_first() -> None:
    tuning = make(5, slots=1)
    tuning.set_place(ONE, 2, 2)
    tuning.set_place(TWO, 1, 1)
    assert without_changes(tuning.choose(0.0)) == [start(number) for number in range(4)]
    assert [tuning.place(each.name) for each in tuning.trials[:4]] == ["", ONE, ONE, TWO]
    assert (tuning.slots, tuning.working) == (4, 4)
    # The fifth one goes where a slot becomes free.
    tuning.on_end(2, "done", 0.0)
    assert without_changes(tuning.choose(0.0)) == [start(4)]
    assert tuning.place("trial-004") == ONE


def test_without_a_slot_trials_wait_for_a_machine() -> None:
    tuning = make(2, slots=0)
    assert tuning.choose(0.0) == []
    assert tuning.doing(0) == "no slot: join a machine"
    assert not tuning.over
    tuning.set_place(ONE, 2, 2)
    assert without_changes(tuning.choose(0.0)) == [start(0), start(1)]


def test_trials_of_a_lost_machine_are_pending_at_once_without_a_failure() -> None:
    tuning = make(2, slots=1)
    tuning.set_place(ONE, 1, 1)
    tuning.choose(0.0)
    tuning.lose_place(ONE, 5.0)
    assert states(tuning) == ["running", "pending"]
    assert tuning.trials[1].failures == 0
    # What its process still sends is of an earlier one.
    assert report(tuning, 1, 1, 0, 3.0) == []
    tuning.set_place(TWO, 1, 1)
    assert without_changes(tuning.choose(5.0)) == [start(1)]
    assert tuning.place("trial-001") == TWO


def test_twenty_lost_machines_in_a_row_are_a_failure() -> None:
    tuning = make(1, slots=0, max_failures=0)
    for number in range(19):
        tuning.set_place(ONE, 1, 1)
        tuning.choose(float(number))
        tuning.lose_place(ONE, float(number))
    assert states(tuning) == ["pending"]
    tuning.set_place(ONE, 1, 1)
    tuning.choose(20.0)
    report(tuning, 0, 1, 0, 3.0)
    tuning.lose_place(ONE, 20.0)
    # It had reported: they are counted anew.
    for number in range(21, 40):
        assert (states(tuning), tuning.trials[0].failures) == (["pending"], 0)
        tuning.set_place(ONE, 1, 1)
        tuning.choose(float(number))
        tuning.lose_place(ONE, float(number))
    assert states(tuning) == ["error"]
    assert tuning.trials[0].reason == "its machine was lost 20 times in a row"


def test_a_machine_that_leaves_saves_its_trials_and_gets_no_others() -> None:
    tuning = make(4, pbt(0.0, 1.0, 2.0, 3.0, synch=True), slots=0)
    tuning.set_place(ONE, 2, 4)
    tuning.choose(0.0)
    report(tuning, 0, 1, 0, 5.0)
    report(tuning, 0, 1, 1, 5.0)
    tuning.choose(0.0)
    assert states(tuning) == ["paused", "running", "running", "pending"]
    # One waits for an answer, the others learn.
    out = tuning.empty_place(ONE)
    assert out == [Answer(0, (1, 1, 1), "leave"), interrupt(1), interrupt(2)]
    assert tuning.empty_place(ONE) == []
    for number in range(3):
        tuning.on_left(number, 0.0)
    assert tuning.choose(0.0) == []
    assert states(tuning) == ["paused", "pending", "pending", "pending"]
    assert [each.failures for each in tuning.trials] == [0, 0, 0, 0]
    tuning.lose_place(ONE, 0.0)
    assert tuning.slots == 0


def test_a_machine_lost_at_the_end_of_the_tuning_leaves_its_trials_paused() -> None:
    tuning = make(1, slots=0)
    tuning.set_place(ONE, 1, 1)
    tuning.choose(0.0)
    assert tuning.end("interrupted") == [interrupt(0)]
    tuning.lose_place(ONE, 0.0)
    assert (states(tuning), tuning.over) == (["paused"], True)


def test_a_free_slot_calls_over_a_trial_that_waits_at_another_machine() -> None:
    tuning = make(3, pbt(1.0, 1.0, 1.0))
    for number in range(3):
        tuning.choose(0.0)
        report(tuning, number, 1, 0, 5.0)
        report(tuning, number, 1, 1, 5.0)
    tuning.choose(0.0)
    assert states(tuning) == ["running", "paused", "paused"]
    tuning.set_place(ONE, 1, 1)
    assert kinds(tuning.choose(0.0)) == [(1, "leave")]
    # One at a time.
    assert tuning.choose(0.0) == []
    tuning.on_left(1, 0.0)
    assert without_changes(tuning.choose(0.0)) == [start(1)]
    assert tuning.place("trial-001") == ONE
    # The last one goes on where its processes are.
    assert tuning.choose(0.0) == []
    assert states(tuning) == ["running", "running", "paused"]


def test_memory_here_is_no_reason_to_end_trials_elsewhere() -> None:
    tuning = make(2, slots=1)
    tuning.set_place(ONE, 1, 1)
    tuning.choose(0.0)
    tuning.relieve({"trial-000": 1.0, "trial-001": 9.0}, "memory", 1.0)
    tuning.relieve({"trial-000": 1.0, "trial-001": 9.0}, "memory", 1.0)
    assert tuning.tick(2.0) == [Signal("trial-000", signal.SIGKILL)]
    tuning.on_death(0, "killed", 2.0)
    tuning.on_death(1, "killed", 2.0)
    # Nothing is started here until there is memory.
    assert without_changes(tuning.choose(9.0)) == [start(0)]
    assert tuning.place("trial-000") == ONE
