"""Machines come to a tuning and go: where trials work, and what becomes of them."""

from __future__ import annotations

import signal

import pytest

from session.launchers.instruction import Event, Signal
from surreal_like.addons.tuning.state import Answer
from surreal_like.addons.tuning.tuning_state_machine import Tuning
from tests.addons.tuning.test_tuning_state_machine import (
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
    tuning.placement.set_place(ONE, 2, 2)
    tuning.placement.set_place(TWO, 1, 1)
    assert without_changes(tuning.choose(0.0)) == [start(number) for number in range(4)]
    assert [tuning.placement.place(each.name) for each in tuning.trials[:4]] == ["", ONE, ONE, TWO]
    assert (tuning.placement.slots, tuning.working) == (4, 4)
    # The fifth one goes where a slot becomes free.
    tuning.on_end(2, "done", 0.0)
    assert without_changes(tuning.choose(0.0)) == [start(4)]
    assert tuning.placement.place("trial-004") == ONE


def test_without_a_slot_trials_wait_for_a_machine() -> None:
    tuning = make(2, slots=0)
    assert tuning.choose(0.0) == []
    assert tuning.doing(0) == "no slot: join a machine"
    assert not tuning.over
    tuning.placement.set_place(ONE, 2, 2)
    assert without_changes(tuning.choose(0.0)) == [start(0), start(1)]


def test_trials_of_a_lost_machine_are_pending_at_once_without_a_failure() -> None:
    tuning = make(2, slots=1)
    tuning.placement.set_place(ONE, 1, 1)
    tuning.choose(0.0)
    tuning.lose_place(ONE, 5.0)
    assert states(tuning) == ["running", "pending"]
    assert tuning.trials[1].failures == 0
    # What its process still sends is of an earlier one.
    assert report(tuning, 1, 1, 0, 3.0) == []
    tuning.placement.set_place(TWO, 1, 1)
    assert without_changes(tuning.choose(5.0)) == [start(1)]
    assert tuning.placement.place("trial-001") == TWO


def test_twenty_lost_machines_in_a_row_are_a_failure() -> None:
    tuning = make(1, slots=0, max_failures=0)

    def lose(number: int) -> None:
        tuning.placement.set_place(ONE, 1, 1, 100.0 * number)
        tuning.choose(100.0 * number)
        assert states(tuning) == ["running"]
        if number == 19:
            report(tuning, 0, 1, 0, 3.0)
        tuning.lose_place(ONE, 100.0 * number + 61.0)

    # It had reported: they are counted anew.
    for number in range(38):
        lose(number)
        assert (states(tuning), tuning.trials[0].failures) == (["pending"], 0)
    lose(38)
    assert states(tuning) == ["error"]
    assert tuning.trials[0].reason == "its machine was lost 20 times in a row"


def running(tuning: Tuning, place: str) -> list[int]:
    return [
        number
        for number, trial in enumerate(tuning.trials)
        if trial.state == "running" and tuning.placement.place(trial.name) == place
    ]


def fail_all(tuning: Tuning, place: str, now: float, exit_code: int = 1) -> list[object]:
    """Lets trials start, and all of a machine die at once; returns what follows."""
    tuning.choose(now)
    out: list[object] = []
    for number in running(tuning, place):
        out += tuning.on_death(number, "no space left on device", now, exit_code=exit_code)
    return out


@pytest.mark.parametrize("exit_code", [1, 2, 70, 75, -9])
@pytest.mark.parametrize("slots", [1, 6])
def test_a_machine_whose_trials_die_gets_none_any_more(slots: int, exit_code: int) -> None:
    tuning = make(6, slots=0)
    tuning.placement.set_place(ONE, slots, 9)
    out = [each for now in range(60) for each in fail_all(tuning, ONE, now * 100.0, exit_code)]
    assert [str(each.state) for each in tuning.trials] == ["pending"] * 6
    assert max(each.failures for each in tuning.trials) <= 2
    [event] = [each for each in out if isinstance(each, Event)]
    assert (event.component, event.kind) == (ONE, "unfit")
    assert "gets no trials any more: 3 failures in a row" in event.detail or slots > 1
    assert list(tuning.placement.unfit) == list(tuning.state()["unfit"]) == [ONE]
    assert (tuning.placement.slots, tuning.doing(0)) == (0, "no slot: join a machine")
    # Another machine does all of it.
    tuning.placement.set_place(TWO, 6, 9, 6000.0)
    tuning.choose(6000.0)
    assert running(tuning, TWO) == list(range(6))
    for number in range(6):
        tuning.on_end(number, "done", 6001.0)
    assert tuning.over


def test_a_machine_that_failed_comes_back_after_an_hour_as_a_new_process() -> None:
    tuning = make(3, slots=0)
    tuning.placement.set_place(ONE, 1, 1)
    for number in range(9):
        fail_all(tuning, ONE, number * 100.0)
    for now, gets in ((3000.0, []), (3900.0, [1])):
        tuning.lose_place(ONE, now)
        tuning.placement.set_place(ONE, 1, 1, now)
        tuning.choose(now)
        assert running(tuning, ONE) == gets


def test_processes_of_a_machine_that_come_fast_use_up_no_lives() -> None:
    tuning = make(4, slots=0)
    for now in range(75):
        tuning.placement.set_place(ONE, 4, 9, now / 75)
        tuning.choose(now / 75)
        tuning.lose_place(ONE, now / 75)
    assert [(str(each.state), each.failures) for each in tuning.trials] == [("pending", 0)] * 4
    assert "it was lost" in tuning.placement.unfit[ONE]


def test_trials_at_work_speak_for_their_machine() -> None:
    tuning = make(6, slots=0, max_failures=9)
    tuning.placement.set_place(ONE, 2, 9)
    tuning.choose(0.0)
    # The other one lives.
    for now in range(1, 9):
        tuning.on_death(1, "bad settings", now * 100.0 - 50.0)
        tuning.choose(now * 100.0)
        assert running(tuning, ONE) == [0, 1]
    assert tuning.placement.unfit == {}


def test_the_last_life_of_a_trial_is_for_another_machine() -> None:
    tuning = make(1, slots=0, max_failures=1)
    tuning.placement.set_place(ONE, 1, 1)
    tuning.placement.set_place(TWO, 1, 1)
    fail_all(tuning, ONE, 0.0)
    tuning.choose(100.0)
    assert tuning.placement.place("trial-000") == TWO
    tuning.on_death(0, "no driver", 100.0)
    assert (states(tuning), tuning.trials[0].failures) == (["error"], 2)


def test_a_machine_at_which_others_work_may_use_up_a_life() -> None:
    tuning = make(2, slots=0, max_failures=1)
    tuning.placement.set_place(ONE, 1, 1)
    fail_all(tuning, ONE, 0.0)
    tuning.choose(100.0)
    # Alone and unproven, it does not get the same trial again.
    assert running(tuning, ONE) == [1]
    assert tuning.doing(0) == "waits for another machine: no space left on device"
    tuning.on_end(1, "done", 101.0)
    fail_all(tuning, ONE, 200.0)
    assert states(tuning) == ["error", "terminated"]
    assert tuning.over


def test_here_trials_die_as_before_unless_another_machine_works() -> None:
    alone = make(1)
    for now in range(3):
        fail_all(alone, "", now * 100.0)
    assert states(alone) == ["error"]
    tuning = make(4)
    for now in range(3):
        fail_all(tuning, "", now * 10.0)
    assert tuning.placement.unfit == {}
    tuning.placement.set_place(ONE, 1, 1, 100.0)
    assert list(tuning.placement.unfit) == [""]
    tuning.choose(100.0)
    assert (running(tuning, ""), len(running(tuning, ONE))) == ([], 1)
    # Where no other one works, this one does.
    tuning.lose_place(ONE, 200.0)
    tuning.choose(200.0)
    assert len(running(tuning, "")) == 1


def test_a_machine_that_leaves_saves_its_trials_and_gets_no_others() -> None:
    tuning = make(4, pbt(0.0, 1.0, 2.0, 3.0, synch=True), slots=0)
    tuning.placement.set_place(ONE, 2, 4)
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
    assert tuning.placement.slots == 0


def test_a_machine_lost_at_the_end_of_the_tuning_leaves_its_trials_paused() -> None:
    tuning = make(1, slots=0)
    tuning.placement.set_place(ONE, 1, 1)
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
    tuning.placement.set_place(ONE, 1, 1)
    assert kinds(tuning.choose(0.0)) == [(1, "leave")]
    # One at a time.
    assert tuning.choose(0.0) == []
    tuning.on_left(1, 0.0)
    assert without_changes(tuning.choose(0.0)) == [start(1)]
    assert tuning.placement.place("trial-001") == ONE
    # The last one goes on where its processes are.
    assert tuning.choose(0.0) == []
    assert states(tuning) == ["running", "running", "paused"]


def test_memory_here_is_no_reason_to_end_trials_elsewhere() -> None:
    tuning = make(2, slots=1)
    tuning.placement.set_place(ONE, 1, 1)
    tuning.choose(0.0)
    tuning.relieve({"trial-000": 1.0, "trial-001": 9.0}, "memory", 1.0)
    tuning.relieve({"trial-000": 1.0, "trial-001": 9.0}, "memory", 1.0)
    assert tuning.tick(2.0) == [Signal("trial-000", signal.SIGKILL)]
    tuning.on_death(0, "killed", 2.0)
    tuning.on_death(1, "killed", 2.0)
    # Nothing is started here until there is memory.
    assert without_changes(tuning.choose(9.0)) == [start(0)]
    assert tuning.placement.place("trial-000") == ONE
