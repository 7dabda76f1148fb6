"""A tuning as a state machine: transitions, slots, failures, the dialogue with trials."""

from __future__ import annotations

import json
import math
import signal
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from session.errors import HOPELESS
from session.launchers.instruction import Signal, Start
from session.launchers.silence_and_restarts import Deadlines
from session.process.heartbeat import Beat, State
from surreal_like.addons.tuning.pbt import PopulationBased
from surreal_like.addons.tuning.placement import HERE
from surreal_like.addons.tuning.scheduler import Fifo, SuccessiveHalving
from surreal_like.addons.tuning.space_and_mutation import Space
from surreal_like.addons.tuning.state import (
    Answer,
    Changed,
    Exploit,
    Skipped,
    Trial,
    TrialState,
    restore_trials,
    state_text,
    want_slots,
)
from surreal_like.addons.tuning.tuning_state_machine import Tuning
from tests.examples import examples


def make(size: int, scheduler: Any = None, slots: int = 1, **options: Any) -> Tuning:
    trials = [Trial(f"trial-{number:03}", {"x": float(number)}) for number in range(size)]
    return Tuning(trials, scheduler or Fifo(), slots=slots, **options)


def pbt(*settings: float, interval: float = 10, **options: Any) -> PopulationBased:
    space, given = Space.of({"x": {"uniform": [0, 9]}}), [{"x": each} for each in settings]
    return PopulationBased(space, given, perturbation_interval=interval, **options)


def states(tuning: Tuning) -> list[str]:
    return [str(each.state) for each in tuning.trials]


def start(number: int) -> Start:
    return Start(f"trial-{number:03}")


def interrupt(number: int) -> Signal:
    return Signal(f"trial-{number:03}", signal.SIGINT)


def without_changes(out: Any) -> list[Any]:
    return [each for each in out if not isinstance(each, Changed)]


def kinds(out: Any) -> list[tuple[int, str]]:
    return [(each.trial, each.kind) for each in out if isinstance(each, Answer)]


def test_capacity_of_one_slot() -> None:
    tuning = make(3)
    for number in range(3):
        assert without_changes(tuning.choose(0.0)) == [start(number)]
        assert tuning.choose(0.0) == []
        assert states(tuning).count("running") == 1
        ended = Changed(number, TrialState.running, TrialState.terminated, "budget used")
        assert tuning.on_end(number, "budget used", 0.0) == [ended]
    assert tuning.over
    assert tuning.choose(0.0) == []
    assert [each.reason for each in tuning.trials] == ["budget used"] * 3


def test_the_number_of_slots() -> None:
    states = {"pending": 2, "running": 3, "paused": 1, "terminated": 4, "error": 5}
    assert want_slots(states) == (6, "2 pending, 3 running, 1 paused")
    assert want_slots({"terminated": 4}) == (0, "all trials are over")


def test_an_answer_is_given_once_to_each_report() -> None:
    tuning = make(1)
    tuning.choose(0.0)
    out = tuning.on_report(0, (7, 1, 0), 10.0, 5.0, 0.0)
    assert out == [Answer(0, (7, 1, 0), "continue")]
    assert tuning.on_report(0, (7, 1, 0), 10.0, 5.0, 0.0) == []
    assert tuning.on_report(0, (6, 9, 0), 90.0, 50.0, 0.0) == []
    assert (tuning.trials[0].time, tuning.trials[0].score) == (10.0, 5.0)


def test_a_learner_that_was_started_again_gets_the_answer_of_its_predecessor() -> None:
    tuning = make(2, pbt(1.0, 2.0, synch=True))
    tuning.choose(0.0)
    tuning.on_report(0, (7, 1, 0), 10.0, 5.0, 0.0)
    tuning.on_report(0, (7, 1, 1), 10.0, 5.0, 0.0)
    assert states(tuning) == ["paused", "pending"]
    assert tuning.on_report(0, (8, 1, 0), 10.0, 5.0, 0.0) == []
    assert states(tuning) == ["paused", "pending"]
    tuning.choose(0.0)
    tuning.on_end(1, "budget used", 0.0)
    assert Answer(0, (8, 1, 0), "continue") in tuning.choose(0.0)


def test_a_trial_may_end_while_it_is_paused_or_its_machine_is_lost() -> None:
    tuning = make(2, pbt(1.0, 2.0, synch=True), slots=0)
    tuning.placement.set_place("worker-1000", 2, 2)
    tuning.choose(0.0)
    tuning.on_report(0, (7, 1, 0), 10.0, 5.0, 0.0)
    tuning.on_report(0, (7, 1, 1), 10.0, 5.0, 0.0)
    tuning.lose_place("worker-1000", 0.0)
    assert states(tuning) == ["pending", "pending"]
    tuning.placement.set_place("worker-1001", 1, 2)
    tuning.choose(0.0)
    tuning.on_report(0, (8, 1, 0), 10.0, 5.0, 0.0)
    tuning.on_report(0, (8, 1, 1), 10.0, 5.0, 0.0)
    assert states(tuning) == ["paused", "pending"]
    # Both have sent their results.
    for number in range(2):
        tuning.on_end(number, "budget used", 0.0)
    assert states(tuning) == ["terminated", "terminated"]
    assert tuning.over


def test_a_report_of_a_dead_trial_is_ignored() -> None:
    tuning = make(1)
    tuning.choose(0.0)
    tuning.on_death(0, "killed", 0.0)
    assert tuning.on_report(0, (7, 1, 0), 10.0, 5.0, 0.0) == []
    assert tuning.trials[0].score is None


def test_a_trial_that_a_signal_ends_has_died_unless_the_tuning_asked() -> None:
    tuning = make(1)
    for failures in (1, 2, 3):
        assert without_changes(tuning.choose(100.0 * failures)) == [start(0)]
        tuning.on_left(0, 100.0 * failures)
        assert tuning.choose(100.0 * failures) == []
        assert tuning.trials[0].failures == failures
    assert states(tuning) == ["error"]
    assert tuning.trials[0].reason == "got SIGTERM or SIGINT while the run goes on"
    tuning = make(1)
    tuning.choose(0.0)
    assert tuning.end("interrupted") == [interrupt(0)]
    tuning.on_left(0, 0.0)
    assert (states(tuning), tuning.trials[0].failures) == (["paused"], 0)


MEMORY = {"trial-000": 2.0, "trial-001": 5.0, "trial-002": 3.0}
CAUSE = "memory: 97 % of 23.4 GB used"


def kills(tuning: Tuning) -> list[str]:
    """What the tuning kills when it is asked for what is due."""
    out = [each for each in tuning.tick(0.0) if isinstance(each, Signal)]
    return [each.name for each in out if each.number == signal.SIGKILL]


def test_without_memory_a_paused_trial_leaves_then_none_starts_then_the_largest_ends() -> None:
    tuning = make(3, pbt(1.0, 2.0, 3.0, synch=True), slots=2)
    tuning.choose(0.0)
    for step in (0, 1):
        tuning.on_report(0, (7, 1, step), 10.0, 5.0, 0.0)
    assert states(tuning) == ["paused", "running", "pending"]
    assert kinds(tuning.relieve(MEMORY, CAUSE, 0.0)) == [(0, "leave")]
    # It takes a moment to leave: meanwhile no other is asked, and none starts.
    assert tuning.relieve(MEMORY, CAUSE, 0.0) == []
    assert tuning.choose(0.0) == []
    tuning.on_left(0, 0.0)
    assert tuning.choose(0.0) == []
    assert tuning.relieve(MEMORY, CAUSE, 0.0) == []
    assert kills(tuning) == ["trial-001"]
    tuning.on_death(1, "killed by SIGKILL", 0.0, exit_code=-9)
    assert states(tuning) == ["paused", "pending", "pending"]
    assert tuning.trials[1].reason == CAUSE
    tuning.placement.admits = True
    assert without_changes(tuning.choose(0.0)) == [start(1), start(2)]


def test_a_trial_that_ended_for_want_of_memory_three_times_is_given_up() -> None:
    tuning, now = make(1), 0.0
    for ended in ("pending", "pending", "error"):
        now += 100.0
        tuning.placement.admits = True
        assert without_changes(tuning.choose(now)) == [start(0)]
        # First none is admitted, then it ends.
        assert tuning.relieve(MEMORY, CAUSE, now) == []
        assert kills(tuning) == []
        assert tuning.relieve(MEMORY, CAUSE, now) == []
        assert [each.name for each in tuning.tick(now) if isinstance(each, Signal)] == ["trial-000"]
        # One that is being killed is not killed again.
        assert tuning.relieve(MEMORY, CAUSE, now) == []
        assert tuning.tick(now) == []
        tuning.on_death(0, "killed by SIGKILL", now, exit_code=-9)
        assert states(tuning) == [ended]
    assert tuning.trials[0].reason == CAUSE


def population(slots: int, **options: Any) -> Tuning:
    """Two trials that are compared after each 10 of time."""
    return make(2, pbt(0.0, 1.0, **options), slots)


def report(tuning: Tuning, trial: int, number: int, step: int, score: float) -> Any:
    out = tuning.on_report(trial, (1, number, step), 10.0 * number, score, 0.0)
    return without_changes(out)


def test_an_exploit_waits_until_its_donor_has_saved() -> None:
    tuning = population(2)
    tuning.choose(0.0)
    assert kinds(report(tuning, 1, 1, 0, 5.0)) == [(1, "save")]
    assert report(tuning, 0, 1, 0, 1.0) == []
    # The files are copied before the donor goes on.
    exploit, *out = report(tuning, 1, 1, 1, 5.0)
    assert (exploit.trial, exploit.donor, kinds(out)) == (0, 1, [(1, "continue")])
    tuning.take_over(exploit, 9.0)
    assert kinds(tuning.on_exploit(exploit, 9.0)) == [(0, "load")]
    assert kinds(report(tuning, 0, 1, 1, 1.0)) == [(0, "continue")]
    trial = tuning.trials[0]
    assert (trial.settings, trial.time) == (exploit.settings, 9.0)
    assert (trial.generation, trial.parent) == (1, "trial-001")


def test_exploits_of_a_sync_point_come_in_the_order_of_their_recipients() -> None:
    scheduler = pbt(0.0, 1.0, 2.0, 3.0, quantile_fraction=0.5, synch=True, seed=18)
    tuning = make(4, scheduler, slots=3)
    tuning.choose(0.0)
    for number in (0, 1, 2):
        report(tuning, number, 1, 0, float(number))
        report(tuning, number, 1, 1, float(number))
    tuning.choose(0.0)
    assert report(tuning, 3, 1, 0, 3.0) == [Answer(3, (1, 1, 0), "save")]
    # The donor of the first recipient still saves; that of the second one has to wait, too.
    assert tuning.choose(0.0) == []
    first, second, *_ = report(tuning, 3, 1, 1, 3.0)
    assert [(each.trial, each.donor) for each in (first, second)] == [(0, 3), (1, 2)]


def test_an_exploit_goes_on_if_its_donor_dies_while_it_saves() -> None:
    tuning = population(2)
    tuning.choose(0.0)
    report(tuning, 1, 1, 0, 5.0)
    report(tuning, 0, 1, 0, 1.0)
    assert isinstance(without_changes(tuning.on_death(1, "killed", 0.0))[0], Exploit)


def test_a_tuning_that_ends_carries_out_a_pending_exploit_first() -> None:
    tuning = population(2)
    tuning.choose(0.0)
    report(tuning, 1, 1, 0, 5.0)
    report(tuning, 0, 1, 0, 1.0)
    assert tuning.end("interrupted") == [interrupt(0), interrupt(1)]
    exploit, *out = report(tuning, 1, 1, 1, 5.0)
    assert kinds(out) == [(1, "leave")]
    tuning.take_over(exploit, 9.0)
    assert kinds(tuning.on_exploit(exploit, 9.0)) == [(0, "leave")]
    assert tuning.trials[0].generation == 1


def test_an_exploit_by_a_start_and_one_that_is_skipped() -> None:
    tuning = population(2)
    tuning.choose(0.0)
    report(tuning, 1, 1, 0, 5.0)
    report(tuning, 1, 1, 1, 5.0)
    (exploit,) = report(tuning, 0, 1, 0, 1.0)
    skipped, *out = tuning.on_exploit(exploit, None, skipped="the disk is full")
    assert (skipped, kinds(out)) == (Skipped(0, "the disk is full"), [(0, "continue")])
    assert tuning.trials[0].settings == {"x": 0.0}
    assert tuning.state()["scheduler"]["members"][0]["settings"] == {"x": 0.0}
    assert tuning.state()["scheduler"]["members"][0]["exploits"] == 0
    (exploit,) = report(tuning, 0, 2, 0, 1.0)
    assert kinds(tuning.on_exploit(exploit, 10.0, in_place=False)) == [(0, "leave")]
    tuning.on_left(0, 0.0)
    assert without_changes(tuning.choose(0.0)) == [start(0)]


def test_all_trials_wait_for_the_next_sync_point() -> None:
    tuning = population(2, synch=True)
    tuning.choose(0.0)
    assert kinds(report(tuning, 0, 1, 0, 1.0)) == [(0, "save")]
    assert report(tuning, 0, 1, 1, 1.0) == []
    # It is held, although there is a slot.
    assert tuning.choose(0.0) == []
    tuning.on_death(1, "killed", 0.0)
    tuning.choose(0.0)
    assert states(tuning) == ["paused", "running"]
    assert kinds(report(tuning, 1, 1, 0, 5.0)) == [(1, "save")]
    exploit, *out = report(tuning, 1, 1, 1, 5.0)
    assert (exploit.trial, kinds(out)) == (0, [(1, "continue")])
    assert tuning.on_exploit(exploit, 10.0) == []
    tuning.on_end(1, "budget used", 0.0)
    # It has saved when it was held: it loads at once.
    assert kinds(tuning.choose(0.0)) == [(0, "load")]


def test_what_trials_wait_for() -> None:
    tuning = population(1, synch=True)
    tuning.choose(0.0)
    for step in (0, 1):
        tuning.on_report(0, (1, 1, step), 10, 1.0, 0.0)
    assert [tuning.doing(number) for number in (0, 1)] == ["waits for trial-001", ""]
    tuning.trials[1].state, tuning.trials[1].reason = TrialState.error, "no luck"
    assert tuning.doing(1) == "no luck"


def test_a_stopped_trial_frees_its_slot_and_ends_later() -> None:
    tuning = make(3, SuccessiveHalving(1, 9), slots=2)
    tuning.choose(0.0)
    assert kinds(tuning.on_report(0, (1, 1, 0), 1.0, 2.0, 0.0)) == [(0, "continue")]
    out = tuning.on_report(1, (1, 1, 0), 1.0, 1.0, 0.0)
    assert Answer(1, (1, 1, 0), "stop", "stopped by asha at 1") in out
    assert states(tuning) == ["running", "terminated", "pending"]
    assert tuning.on_report(1, (1, 2, 0), 2.0, 9.0, 0.0) == []
    assert without_changes(tuning.choose(0.0)) == [start(2)]
    assert tuning.on_end(1, "another reason", 0.0) == []
    assert tuning.trials[1].reason == "stopped by asha at 1"


@pytest.mark.parametrize(
    ("most", "delays"), [(2, [0.0, 0.5]), (0, []), (-1, [0.0, 0.5, 1.0, 2.0, 4.0, 8.0])]
)
def test_a_trial_is_tried_again_after_a_growing_time(most: int, delays: list[float]) -> None:
    tuning = make(1, max_failures=most)
    for number, delay in enumerate(delays):
        tuning.choose(100.0)
        tuning.on_death(0, f"error {number}", 10.0)
        assert states(tuning) == ["pending"]
        assert tuning.retry_at() == 10.0 + delay
        assert tuning.choose(10.0 + delay - 0.01) == []
    if most >= 0:
        tuning.choose(100.0)
        tuning.on_death(0, "the last error", 10.0)
        assert states(tuning) == ["error"]
        assert tuning.over
        assert tuning.trials[0].reason == ("error 0" if most else "the last error")


def test_a_hopeless_trial_is_given_up_at_once() -> None:
    tuning = make(2, max_failures=5, fail_fast=True)
    tuning.choose(0.0)
    tuning.on_death(0, "unknown key", 0.0, exit_code=HOPELESS)
    assert states(tuning) == ["error", "pending"]
    assert "trial-000 was given up: unknown key" in tuning.ending
    assert tuning.over


def test_failures_of_earlier_parts_of_a_tuning_count() -> None:
    trial = Trial("trial-000", {}, failures=1, reason="the first error")
    tuning = Tuning([trial], Fifo(), slots=1, max_failures=1)
    tuning.choose(0.0)
    tuning.on_death(0, "the second error", 0.0)
    assert (trial.state, trial.failures, trial.reason) == ("error", 2, "the first error")


def test_a_trial_without_heartbeats_is_killed_and_tried_again() -> None:
    tuning = make(1, deadlines=Deadlines(6.0, 5.0))
    tuning.choose(0.0)
    tuning.on_heartbeat(Beat("trial-000", 1, State.running, 1, 0.0), 1.0)
    assert [tuning.tick(now) for now in (1.0, 4.0, 7.0)] == [[], [], []]
    # The tuner itself stood still.
    assert tuning.tick(17.0) == []
    assert tuning.tick(19.0) == [Signal("trial-000", signal.SIGKILL)]
    assert tuning.tick(20.0) == []
    tuning.on_death(0, "killed by SIGKILL", 20.0, exit_code=-9)
    assert states(tuning) == ["pending"]
    assert tuning.trials[0].reason == "gave no sign of life for 8 s while running"


def test_the_end_saves_all_trials() -> None:
    tuning = make(4, pbt(1.0, 1.0, 1.0, interval=1, synch=True), slots=2)
    tuning.choose(0.0)
    # The first trial is held and paused, the second one works.
    assert kinds(tuning.on_report(0, (1, 1, 0), 1.0, 1.0, 0.0)) == [(0, "save")]
    assert kinds(tuning.on_report(0, (1, 1, 1), 1.0, None, 0.0)) == []
    assert states(tuning)[:2] == ["paused", "running"]
    assert without_changes(tuning.end("interrupted")) == [
        Answer(0, (1, 1, 1), "leave"),
        interrupt(1),
    ]
    assert tuning.choose(0.0) == tuning.end("interrupted") == []
    assert kinds(tuning.on_report(1, (1, 1, 0), 1.0, 1.0, 0.0)) == [(1, "leave")]
    assert not tuning.over
    tuning.on_left(0, 0.0)
    tuning.on_left(1, 0.0)
    assert states(tuning) == ["paused", "paused", "pending", "pending"]
    assert tuning.over


def test_a_paused_trial_goes_on_without_a_start() -> None:
    tuning = make(2, pbt(1.0, 1.0, interval=1))
    tuning.choose(0.0)
    assert kinds(tuning.on_report(0, (1, 1, 0), 1.0, 1.0, 0.0)) == [(0, "save")]
    tuning.on_report(0, (1, 1, 1), 1.0, None, 0.0)
    assert without_changes(tuning.choose(0.0)) == [start(1)]
    tuning.on_end(1, "", 0.0)
    out = tuning.choose(0.0)
    assert out == [
        Changed(0, TrialState.paused, TrialState.running),
        Answer(0, (1, 1, 1), "continue"),
    ]


def test_the_trial_paused_longest_makes_room() -> None:
    tuning = make(3, pbt(1.0, 1.0, 1.0), max_resident=2)
    tuning.choose(0.0)
    for number in (0, 1):
        tuning.on_report(number, (1, 1, 0), 10.0, 5.0, 0.0)
        tuning.on_report(number, (1, 1, 1), 10.0, 5.0, 0.0)
        assert states(tuning)[number] == "paused"
        out = tuning.choose(0.0)
    # The third one can start only when the first one has left.
    assert out == [Answer(0, (1, 1, 1), "leave")]
    assert tuning.choose(0.0) == []
    assert tuning.on_left(0, 0.0) == []
    assert states(tuning) == ["paused", "paused", "pending"]
    assert without_changes(tuning.choose(0.0)) == [start(2)]
    tuning.on_end(2, "done", 0.0)
    # Of two paused trials with equal times the first one goes on, by a start.
    assert without_changes(tuning.choose(0.0)) == [start(0)]
    tuning.on_end(0, "done", 0.0)
    assert kinds(tuning.choose(0.0)) == [(1, "continue")]


def test_a_trial_keeps_its_slot() -> None:
    tuning = make(4, slots=2, max_failures=5)
    tuning.choose(0.0)
    assert [each.slot for each in tuning.trials] == [0, 1, None, None]
    tuning.on_death(0, "killed", 0.0)
    tuning.on_end(1, "done", 0.0)
    tuning.choose(0.0)
    tuning.on_end(0, "done", 0.0)
    tuning.choose(0.0)
    # The first one was started again in its own; the others get the one that is free.
    assert [each.slot for each in tuning.trials] == [0, 1, 1, 0]


def test_paused_trials_leave_when_memory_holds_fewer() -> None:
    tuning = make(3, pbt(1.0, 1.0, 1.0))
    for number in range(3):
        tuning.choose(0.0)
        report(tuning, number, 1, 0, 5.0)
        report(tuning, number, 1, 1, 5.0)
    tuning.choose(0.0)
    assert states(tuning) == ["running", "paused", "paused"]
    assert tuning.choose(0.0) == []
    tuning.placement.places[HERE].max_resident = 1
    assert kinds(tuning.choose(0.0)) == [(1, "leave")]
    # One after the other.
    assert tuning.choose(0.0) == []
    tuning.on_left(1, 0.0)
    assert kinds(tuning.choose(0.0)) == [(2, "leave")]
    tuning.on_left(2, 0.0)
    assert tuning.choose(0.0) == []
    assert states(tuning) == ["running", "paused", "paused"]


def test_a_held_trial_that_made_room_goes_on_after_the_sync_point() -> None:
    tuning = make(2, pbt(0.0, 1.0, synch=True), max_resident=1)
    tuning.choose(0.0)
    report(tuning, 0, 1, 0, 1.0)
    report(tuning, 0, 1, 1, 1.0)
    assert kinds(tuning.choose(0.0)) == [(0, "leave")]
    tuning.on_left(0, 0.0)
    assert without_changes(tuning.choose(0.0)) == [start(1)]
    # It is still held, also while the other one waits for its next start.
    for _ in range(2):
        tuning.on_death(1, "killed", 0.0)
        out = without_changes(tuning.choose(0.0))
    assert out == []
    assert without_changes(tuning.choose(1.0)) == [start(1)]
    report(tuning, 1, 1, 0, 5.0)
    exploit, *out = report(tuning, 1, 1, 1, 5.0)
    assert (exploit.trial, exploit.donor, kinds(out)) == (0, 1, [(1, "continue")])
    tuning.take_over(exploit, 10.0)
    tuning.on_exploit(exploit, 10.0)
    assert tuning.choose(0.0) == []
    report(tuning, 1, 2, 0, 5.0)
    report(tuning, 1, 2, 1, 5.0)
    assert kinds(tuning.choose(0.0)) == [(1, "leave")]
    tuning.on_left(1, 0.0)
    # It starts from the files of the exploit.
    assert without_changes(tuning.choose(0.0)) == [start(0)]
    assert (tuning.trials[0].generation, tuning.trials[0].parent) == (1, "trial-001")


def test_the_best_has_the_best_newest_score() -> None:
    for mode, expected in (("max", "trial-001"), ("min", "trial-000")):
        tuning = make(4, slots=4, mode=mode)
        assert tuning.best is None
        for number, score in enumerate((1.0, 3.0, 3.0, 9.0 if mode == "max" else -9.0)):
            tuning.note(number, 1.0, score)
        tuning.choose(0.0)
        tuning.on_death(3, "", 0.0, exit_code=HOPELESS)
        tuning.note(0, 2.0, math.nan)
        assert tuning.best is not None
        assert tuning.best.name == expected


def test_state_goes_through_a_file() -> None:
    tuning = make(4, SuccessiveHalving(1, 9), slots=3, max_failures=0)
    tuning.choose(0.0)
    tuning.on_report(0, (1, 1, 0), 1.0, 2.0, 0.0)
    tuning.on_end(1, "done", 0.0)
    tuning.on_death(2, "broken", 0.0)
    state = json.loads(state_text({"format": 1, **tuning.state()}))
    assert state["format"] == 1
    assert json.loads(state_text({**state, "trials": []}))["trials"] == []
    assert [each["state"] for each in state["trials"]] == [
        "running",
        "terminated",
        "error",
        "pending",
    ]
    trials = restore_trials(state)
    assert [str(each.state) for each in trials] == ["pending", "terminated", "error", "pending"]
    assert (trials[0].time, trials[0].score, trials[2].failures) == (1.0, 2.0, 1)
    again = restore_trials(state, retry_errors=True)[2]
    assert (again.state, again.failures, again.reason) == (TrialState.pending, 0, "")


WORKERS = ("worker-1000", "worker-1001")


class AnyOrder(RuleBasedStateMachine):
    """Random events, machines that come and go: no slot is exceeded, always an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.tuning = make(5, SuccessiveHalving(1, 27), slots=2, max_failures=1)
        self.alive: dict[int, list[Any]] = {}
        self.incarnation = 0

    def follow(self, out: Any) -> None:
        for each in out:
            if isinstance(each, Start):
                number = int(each.name[-3:])
                assert number not in self.alive
                self.incarnation += 1
                self.alive[number] = [self.incarnation, 0, True]
            elif isinstance(each, Answer):
                process = self.alive[each.trial]
                assert each.report == (process[0], process[1], 0)
                process[2] = each.kind == "continue"
            elif isinstance(each, Changed):
                assert each.before is not each.after

    @rule()
    def choose(self) -> None:
        self.follow(self.tuning.choose(1e9))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), score=st.floats(0, 9) | st.none())
    def report(self, data: Any, score: float | None) -> None:
        number = data.draw(st.sampled_from(sorted(self.alive)))
        process = self.alive[number]
        if process[2]:
            process[1] += 1
            key = (process[0], process[1], 0)
            process[2] = False
            before = len(self.alive)
            out = self.tuning.on_report(number, key, float(process[1]), score, 0.0)
            assert kinds(out)
            self.follow(out)
            assert len(self.alive) == before

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), dies=st.booleans())
    def leave(self, data: Any, dies: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.alive)))
        del self.alive[number]
        tuning = self.tuning
        end = tuning.on_death if dies else tuning.on_end
        self.follow(end(number, "x", 0.0))

    @rule(name=st.sampled_from(WORKERS), slots=st.integers(0, 2))
    def join(self, name: str, slots: int) -> None:
        self.tuning.placement.set_place(name, slots, slots)
        working = sum(each.state == "running" for each in self.at(name))
        # A machine with fewer slots than before finishes what it has.
        self.tuning.placement.places[name].slots = max(slots, working)
        self.tuning.placement.places[name].max_resident = max(slots, len(self.at(name)))

    @rule(name=st.sampled_from(WORKERS), ended=st.booleans())
    def lose(self, name: str, ended: bool) -> None:
        lost = [self.tuning.trials.index(each) for each in self.at(name)]
        before = [(each.state, each.failures) for each in self.tuning.trials]
        self.follow(self.tuning.lose_place(name, 0.0))
        for number in lost:
            del self.alive[number]
            # One that was ending as planned needs no other machine.
            ends = before[number][0] in ("terminated", "error")
            assert self.tuning.trials[number].state == (before[number][0] if ends else "pending")
        assert [each.failures for each in self.tuning.trials] == [each for _, each in before]
        # Their results came just before.
        for number in lost if ended else ():
            self.follow(self.tuning.on_end(number, "x", 0.0))

    def at(self, name: str) -> list[Trial]:
        """Returns the trials with processes at a machine."""
        trials = (self.tuning.trials[number] for number in self.alive)
        return [each for each in trials if self.tuning.placement.place(each.name) == name]

    @invariant()
    def slots_suffice(self) -> None:
        running = [n for n, each in enumerate(self.tuning.trials) if each.state == "running"]
        for name, place in self.tuning.placement.places.items():
            assert sum(each.state == "running" for each in self.at(name)) <= place.slots
            assert len(self.at(name)) <= place.max_resident
        assert set(running) <= set(self.alive)
        assert self.tuning.over == (
            not self.alive
            and all(each.state in ("terminated", "error") for each in self.tuning.trials)
        )


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=examples(20), stateful_step_count=30)
