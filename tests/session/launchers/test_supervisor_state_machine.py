"""Supervision decides without processes, sockets or clocks: events in, instructions out."""

import signal
from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from session.errors import FOLLOWS, HOPELESS, START_AGAIN, ConfigError, UsageError
from session.launchers.instruction import (
    Event,
    Failure,
    Instruction,
    Signal,
    Start,
    Stop,
    exit_error,
)
from session.launchers.silence_and_restarts import Deadlines
from session.launchers.supervisor_state_machine import Phase, Supervision
from session.process.component import Component, Restart, Topology
from session.process.heartbeat import Beat, State
from tests.add_ons import needs
from tests.examples import examples

DEADLINES = Deadlines(silent_seconds=30.0, grace_seconds=10.0)
NAMES = ["loggerplex", "tensorplex", "ps", "replay-0", "learner", "agent-0", "agent-1", "eval-0"]
SERVERS = {"ps", "replay-0"}
TELEMETRY = {"tensorplex", "loggerplex"}


def make_topology(names: Sequence[str] = NAMES, restart: Restart | None = None) -> Topology:
    return Topology(
        Component(
            name,
            {"eval": "evaluator"}.get(name.split("-")[0], name.split("-")[0]),
            "main.any",
            int(name.partition("-")[2] or 0),
            restart=restart or Restart(3, 60.0),
        )
        for name in names
    )


class Run:
    """A supervision whose clock the test moves, with what it wanted last."""

    def __init__(self, names: Sequence[str] = NAMES, restart: Restart | None = None) -> None:
        self.supervision = Supervision(make_topology(names, restart), DEADLINES)
        self.now = 0.0
        self.did: list[Instruction] = self.supervision.launch(self.now)

    def after(self, seconds: float) -> list[Instruction]:
        """Passes time in steps that a supervisor takes."""
        self.did = []
        for _ in range(round(seconds)):
            self.now += 1
            self.did += self.supervision.tick(self.now)
        self.now += seconds - round(seconds)
        self.did += self.supervision.tick(self.now)
        return self.did

    def beat(self, *names: str, state: str = "running", busy_seconds: float = 0.0) -> None:
        for name in names:
            beat = Beat(name, 1, State(state), 1, 1000 + self.now, busy_seconds)
            self.supervision.on_heartbeat(beat, self.now)

    def exits(self, name: str, exit_code: int, error: str = "boom") -> list[Instruction]:
        details = f"traceback of {error}"
        self.did = self.supervision.on_exit(name, exit_code, error, self.now, details=details)
        return self.did

    def stop(self, *, interrupted: bool = True) -> list[Instruction]:
        self.did = self.supervision.stop(self.now, reason="asked to", interrupted=interrupted)
        return self.did

    def scale(self, kind: str, num: int) -> list[Instruction]:
        self.did = self.supervision.scale(kind, num, self.now)
        return self.did

    @property
    def started(self) -> list[str]:
        return [each.name for each in self.did if isinstance(each, Start)]

    @property
    def terminated(self) -> set[str]:
        """Those that were asked to end; SIGTERM would make a learner return."""
        number = {"learner": signal.SIGINT}
        signals = [each for each in self.did if isinstance(each, Signal)]
        return {e.name for e in signals if e.number == number.get(e.name, signal.SIGTERM)}

    @property
    def killed(self) -> set[str]:
        return {e.name for e in self.did if isinstance(e, Signal) and e.number == signal.SIGKILL}

    @property
    def asked(self) -> list[Stop]:
        return [each for each in self.did if isinstance(each, Stop)]

    @property
    def events(self) -> list[tuple[str, str]]:
        return [(e.component, e.kind) for e in self.did if isinstance(e, Event)]

    @property
    def phase(self) -> str:
        return self.supervision.phase


@pytest.fixture
def run() -> Run:
    """A run in which everybody has started well."""
    run = Run()
    run.beat(*NAMES)
    return run


def test_all_components_are_started_in_order() -> None:
    assert Run().started == NAMES


def test_the_first_death_is_mended_at_once(run: Run) -> None:
    run.exits("agent-1", -9, "killed by SIGKILL")
    assert run.did == [
        Event("agent-1", "lost", "killed by SIGKILL"),
        Event("agent-1", "restart"),
        Start("agent-1"),
    ]
    assert run.supervision.report(run.now)["agent-1"]["restarts"] == 1
    assert run.supervision.report(run.now)["agent-0"]["restarts"] == 0


def test_what_would_come_again_is_not_tried_again(run: Run) -> None:
    run.exits("agent-1", HOPELESS, "obs: NaN")
    assert ("agent-1", "failed") in run.events
    assert run.started == []
    failure = run.supervision.failure
    assert failure is not None
    assert failure.error == "obs: NaN"


def test_further_deaths_wait_longer_each_time(run: Run) -> None:
    waits = []
    for _ in range(3):
        died = run.now
        run.exits("agent-0", 1)
        while not run.started:
            run.now += 0.01
            run.did = run.supervision.tick(run.now)
        waits.append(run.now - died)
    assert waits == [0.0, pytest.approx(0.25, abs=0.02), pytest.approx(0.5, abs=0.02)]


def test_old_deaths_are_forgotten(run: Run) -> None:
    for _ in range(10):
        run.exits("agent-0", 1)
        assert run.started == ["agent-0"]
        run.beat(*NAMES)
        for _ in range(3):
            run.after(20.5)
            run.beat(*NAMES)
    assert run.phase == Phase.running


def test_deaths_beyond_the_budget_fail_the_run_with_the_first_error(run: Run) -> None:
    for number in range(4):
        run.exits("agent-0", 1, f"error {number}")
        assert run.events[0] == ("agent-0", "lost")
        if number < 3:
            run.after(6)
    failure = run.supervision.failure
    assert failure == Failure("agent-0", "error 0 (the first of 4 deaths)", "traceback of error 0")
    assert run.events[-1] == ("agent-0", "failed")
    assert run.asked == [Stop(f"agent-0: {failure.error}", interrupted=False, failed=True)]
    assert run.phase == Phase.ending


def test_others_are_unaffected_until_the_budget_is_spent(run: Run) -> None:
    for number in range(3):
        run.exits("agent-0", 1, f"error {number}")
        assert not run.killed | run.terminated
        run.after(6)
        assert not run.killed | run.terminated


def test_a_wrong_config_is_not_tried_again() -> None:
    run = Run()
    run.exits("agent-0", UsageError.exit_code, "no environment of that name")
    assert run.supervision.failure == Failure(
        "agent-0", "no environment of that name", "traceback of no environment of that name"
    )
    assert run.started == []


def test_the_same_exit_code_of_one_that_has_worked_is_a_death_like_others(run: Run) -> None:
    run.exits("agent-0", UsageError.exit_code)
    assert run.started == ["agent-0"]


@pytest.mark.parametrize("name", sorted(TELEMETRY))
def test_a_run_goes_on_without_telemetry(name: str) -> None:
    run = Run(restart=Restart(0, 60.0))
    run.beat(*NAMES)
    run.exits(name, -9)
    assert run.events == [(name, "lost")]
    assert run.phase == Phase.running
    assert run.supervision.failure is None
    run.after(5)
    assert run.started == []


@needs("mirror")
def test_a_mirror_ends_with_telemetry_and_a_run_goes_on_without_it() -> None:
    names = ["mirror", *NAMES]
    run = Run(names, restart=Restart(0, 60.0))
    run.beat(*names)
    for name in ("learner", "agent-0", "agent-1", "eval-0", "ps", "replay-0"):
        assert "mirror" not in run.terminated
        run.exits(name, 0)
    assert run.terminated == {"mirror", *TELEMETRY}
    run = Run(names, restart=Restart(0, 60.0))
    run.beat(*names)
    run.exits("mirror", UsageError.exit_code)
    assert run.events == [("mirror", "lost")]
    assert run.phase == Phase.running


def test_a_component_that_ends_well_is_not_started_again(run: Run) -> None:
    run.exits("tensorplex", 0)
    assert run.events == [("tensorplex", "ended")]
    run.after(5)
    assert run.started == []
    assert run.phase == Phase.running


def test_silence_is_death(run: Run) -> None:
    run.after(30)
    assert run.killed == set()
    run.beat(*(name for name in NAMES if name != "agent-0"))
    run.after(1)
    assert run.killed == {"agent-0"}
    run.after(1)
    assert run.killed == set()
    run.exits("agent-0", -9, "killed by SIGKILL")
    lost = Event("agent-0", "lost", "gave no sign of life for 31 s while running")
    assert run.did[0] == lost
    assert run.started == ["agent-0"]


def test_a_repeated_beat_is_no_sign_of_life(run: Run) -> None:
    # It may differ from the first beat, of which the clock gives the moment, too.
    old, killed = Beat("agent-0", 1, State.running, 1, 1000.0), list[str]()
    for _ in range(32):
        run.after(1)
        killed += run.killed
        run.beat(*(name for name in NAMES if name != "agent-0"))
        run.supervision.on_heartbeat(old, run.now)
    assert killed == ["agent-0"]


def test_a_busy_component_has_that_much_more_time(run: Run) -> None:
    run.beat("learner", busy_seconds=100.0)
    for _ in range(4):
        run.after(30)
        run.beat(*(name for name in NAMES if name != "learner"))
        assert run.killed == set()
    run.after(11)
    assert run.killed == {"learner"}


def test_starting_has_a_deadline_of_its_own() -> None:
    run = Run()
    for _ in range(4):
        run.after(30)
        run.beat(*(name for name in NAMES if name != "eval-0"))
        run.beat("eval-0", state="starting")
        assert run.killed == set()
    run.after(3)
    assert run.killed == {"eval-0"}


def test_draining_has_a_deadline_of_its_own(run: Run) -> None:
    run.beat("replay-0", state="draining")
    run.after(12)
    assert run.killed == set()
    run.beat("replay-0", state="draining")
    run.after(1)
    assert run.killed == {"replay-0"}


def test_a_component_that_said_goodbye_and_stays_is_killed(run: Run) -> None:
    run.beat("eval-0", state="done")
    run.after(13)
    assert run.killed == {"eval-0"}


def test_deadlines_are_extended_while_the_supervisor_itself_was_stopped(run: Run) -> None:
    run.after(1)
    run.now += 1000
    run.did = run.supervision.tick(run.now)
    assert run.killed == set()
    run.after(25)
    assert run.killed == set()
    run.after(6)
    assert run.killed == set(NAMES)


def test_the_run_is_over_when_the_learner_says_so(run: Run) -> None:
    run.exits("learner", 0)
    assert run.phase == Phase.leaving
    assert run.terminated == set()
    run.exits("agent-0", 0)
    run.exits("eval-0", 0)
    assert run.terminated == set()
    run.exits("agent-1", 0)
    assert run.terminated == SERVERS
    run.exits("ps", 0)
    assert run.terminated == set()
    run.exits("replay-0", 0)
    assert run.terminated == TELEMETRY
    run.exits("tensorplex", 0)
    assert not run.supervision.over
    run.exits("loggerplex", 0)
    assert run.supervision.over


def test_no_component_is_started_once_the_run_is_over(run: Run) -> None:
    run.exits("agent-0", 1)
    run.exits("agent-0", 1)  # waits for its next start
    run.exits("learner", 0)
    run.exits("agent-1", 1)
    run.after(5)
    assert run.started == []


def test_a_component_that_does_not_end_is_terminated_and_then_killed(run: Run) -> None:
    run.exits("learner", 0)
    run.after(11)
    assert run.terminated == set()
    run.after(1)
    assert run.terminated == set(NAMES) - {"learner"}
    run.exits("agent-0", 0)
    run.after(11)
    assert run.killed == set()
    run.after(1)
    assert run.killed == set(NAMES) - {"learner", "agent-0"}


def test_stopping_asks_the_learner_first(run: Run) -> None:
    run.stop()
    assert run.asked == [Stop("asked to", interrupted=True)]
    assert not run.terminated | run.killed
    run.exits("learner", 0)
    assert run.phase == Phase.leaving
    assert run.supervision.interrupted
    assert run.supervision.reason == "asked to"


def test_stopping_again_changes_nothing(run: Run) -> None:
    run.stop()
    assert run.stop(interrupted=False) == []
    assert run.supervision.interrupted


def test_a_learner_that_does_not_end_the_run_is_overruled(run: Run) -> None:
    run.stop()
    run.after(12)
    assert run.terminated == set(NAMES)
    run.after(12)
    assert run.killed == set(NAMES)


def test_a_learner_has_more_time_to_end_a_run_whose_last_parameters_are_played() -> None:
    deadlines = Deadlines(silent_seconds=30.0, grace_seconds=10.0, final_seconds=60.0)
    supervision = Supervision(make_topology(), deadlines)
    supervision.launch(0.0)
    beats = [Beat(name, 1, State.running, 1, 1000.0, 0.0) for name in NAMES]
    for beat in beats:
        supervision.on_heartbeat(beat, 1.0)
    supervision.stop(1.0, reason="asked to", interrupted=True)
    assert supervision.tick(72.0) == []
    assert len(supervision.tick(73.0)) == len(NAMES)


def test_a_learner_that_dies_while_it_ends_the_run_is_not_started_again(run: Run) -> None:
    run.stop()
    run.exits("learner", -9)
    assert run.started == []
    assert run.terminated == set(NAMES) - {"learner"}


def test_a_learner_that_drains_need_not_be_asked(run: Run) -> None:
    run.beat("learner", state="draining")
    assert run.stop() == [Event("", "stop", "asked to")]
    assert run.phase == Phase.ending


def test_without_a_learner_that_could_end_the_run_all_are_terminated() -> None:
    run = Run()
    run.stop()
    assert run.asked == []
    assert run.terminated == set(NAMES)


def test_a_failed_learner_ends_the_run_for_all(run: Run) -> None:
    run = Run(restart=Restart(0, 60.0))
    run.exits("learner", 1, "no such network")
    assert run.supervision.failure == Failure(
        "learner", "no such network", "traceback of no such network"
    )
    assert run.terminated == set(NAMES) - {"learner"}
    for name in NAMES:
        if name != "learner":
            run.exits(name, 0)
    assert run.supervision.over


def test_killing_is_at_once(run: Run) -> None:
    run.stop()
    run.did = run.supervision.kill(run.now)
    assert run.killed == set(NAMES)
    for name in NAMES:
        assert not run.supervision.over
        run.exits(name, -9)
        assert run.started == []
    assert run.supervision.over


def test_a_failure_from_outside_ends_the_run_once(run: Run) -> None:
    failure = Failure("zygote", "no module named torch")
    run.did = run.supervision.fail(failure, run.now)
    assert run.events == [("zygote", "failed")]
    assert run.supervision.fail(Failure("zygote", "another"), run.now) == []
    assert run.supervision.failure is failure


def test_scaling_up_and_down(run: Run) -> None:
    run.scale("agent", 4)
    assert run.started == ["agent-2", "agent-3"]
    assert run.events == [("", "scale")]
    run.beat("agent-2", "agent-3")
    run.scale("agent", 1)
    assert run.terminated == {"agent-1", "agent-2", "agent-3"}
    assert run.exits("agent-1", 0) == [Event("agent-1", "ended")]
    run.exits("agent-2", -15)
    assert run.started == []
    run.after(13)
    assert run.killed == {"agent-3"}
    run.exits("agent-3", -9)
    assert run.started == []
    assert run.phase == Phase.running
    assert run.supervision.failure is None


def test_scaling_up_again_brings_back_those_that_are_leaving(run: Run) -> None:
    run.scale("agent", 0)
    run.scale("agent", 2)
    assert run.started == []
    run.exits("agent-0", 0)
    assert run.started == ["agent-0"]
    run.scale("agent", 2)
    assert run.started == []


def test_scaling_evaluators(run: Run) -> None:
    run.scale("eval", 2)
    assert run.started == ["eval-1"]
    assert run.supervision.children["eval-1"].component.kind == "evaluator"


def test_one_that_waits_for_its_start_is_scaled_away(run: Run) -> None:
    run.exits("agent-1", 1)
    run.exits("agent-1", 1)
    run.scale("agent", 1)
    run.after(10)
    assert run.started == []


@pytest.mark.parametrize("kind", ["replay", "learner", "agents", "agent-0", ""])
def test_what_cannot_be_scaled_is_named(run: Run, kind: str) -> None:
    with pytest.raises(UsageError, match=f"cannot scale '{kind}'; this run has agent, eval"):
        run.scale(kind, 2)


@pytest.mark.parametrize("num", [-1, 1001])
def test_scaling_has_bounds(run: Run, num: int) -> None:
    with pytest.raises(UsageError, match=f"cannot scale agent to {num}; expected 0 to 1000"):
        run.scale("agent", num)


def test_restarting_is_no_death(run: Run) -> None:
    for _ in range(5):
        run.did = run.supervision.restart("replay-0", run.now)
        assert run.terminated == {"replay-0"}
        did = run.exits("replay-0", START_AGAIN) + run.after(5)
        assert did == [Event("replay-0", "restart", "as asked"), Start("replay-0")]
        run.beat("replay-0")
    assert run.supervision.report(run.now)["replay-0"]["restarts"] == 5
    assert run.phase == Phase.running
    # Only the pause before the next start counts them.
    run.exits("replay-0", -9)
    assert run.started == []
    assert run.after(5)[-1] == Start("replay-0")
    assert run.supervision.children["replay-0"].last_loss(run.now) == ("boom", 5.0)


def test_a_component_that_does_not_end_for_its_restart_is_killed(run: Run) -> None:
    run.supervision.restart("agent-0", run.now)
    run.after(12)
    assert run.killed == {"agent-0"}
    run.exits("agent-0", -9)
    assert run.started == ["agent-0"]


def test_a_learner_saves_itself_before_its_restart(run: Run) -> None:
    run.did = run.supervision.restart("learner", run.now)
    # SIGINT would end the run.
    assert run.did == [Signal("learner", signal.SIGTERM)]
    run.exits("learner", START_AGAIN)
    assert run.started == ["learner"]
    assert run.phase == Phase.running
    assert run.events == [("learner", "restart")]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_signal_ends_while_the_run_goes_on_is_started_again(run: Run, name: str) -> None:
    for _ in range(3):
        # Not at once: the launcher may have got the same signal.
        assert run.exits(name, START_AGAIN) == [Event(name, "lost", "boom")]
        assert run.after(5) == [Event(name, "restart"), Start(name)]
        run.beat(name)
    run.exits(name, START_AGAIN)
    run.after(5)
    assert run.started == []
    # A run goes on without metrics and logs.
    assert (run.phase == Phase.running) == (name in TELEMETRY)


def test_the_end_of_one_of_several_learners_counts_once_for_all() -> None:
    run = Run([*NAMES, "learner-1"])
    for number in range(6):
        name, other = ("learner-1", "learner")[:: 1 - number % 2 * 2]
        assert run.exits(name, -9)[0] == Event(name, "lost", "boom")
        assert Event(other, "lost", "boom") not in run.exits(other, FOLLOWS)
        did = [*run.did, *run.after(6)]
        assert Event(other, "restart", "with its group") in did
        assert Start(other) in did
        run.beat(name, other)
    # Three of each were allowed within the time; the fourth of one fails the run.
    assert run.phase == Phase.running
    run.exits("learner-1", -9)
    assert run.phase != Phase.running


@pytest.mark.parametrize("name", NAMES)
def test_what_a_signal_ends_as_the_launcher_ends_is_not_started_again(run: Run, name: str) -> None:
    run.exits(name, START_AGAIN)
    run.stop()
    run.after(5)
    assert run.started == []


def test_what_was_scaled_away_is_not_started_again_and_has_left_well(run: Run) -> None:
    run.scale("agent", 0)
    assert run.exits("agent-0", START_AGAIN) == [Event("agent-0", "ended")]
    run.after(5)
    assert run.started == []
    assert run.supervision.report(run.now)["agent-0"]["exit_code"] == 0


def test_restarts_that_a_user_asks_for_are_not_refused() -> None:
    run = Run(["learner", "agent-0"], Restart(0, 60.0))
    run.supervision.restart("agent-0", run.now)
    assert run.exits("agent-0", UsageError.exit_code)[-1] == Start("agent-0")


def test_a_signal_is_no_error_where_the_first_error_ends_the_run() -> None:
    supervision = Supervision(make_topology(), DEADLINES, restarts=False)
    supervision.launch(0.0)
    supervision.on_exit("agent-0", START_AGAIN, "boom", 1.0)
    assert Start("agent-0") in supervision.tick(2.0)
    assert supervision.phase == Phase.running


def test_a_learner_that_does_not_save_itself_is_restarted_all_the_same(run: Run) -> None:
    run.supervision.restart("learner", run.now)
    run.after(12)
    assert run.killed == {"learner"}


def test_one_that_has_ended_can_be_started_again(run: Run) -> None:
    run.exits("tensorplex", 0)
    run.did = run.supervision.restart("tensorplex", run.now)
    assert run.started == ["tensorplex"]


def test_restarting_what_is_not_there_names_what_is(run: Run) -> None:
    with pytest.raises(UsageError, match=r"no component 'agent-9'; there are loggerplex, .*eval-0"):
        run.supervision.restart("agent-9", run.now)
    with pytest.raises(UsageError, match="agent-1000 is not on this machine"):
        run.supervision.restart("agent-1000", run.now)


def test_a_run_that_ends_cannot_be_changed(run: Run) -> None:
    run.stop()
    with pytest.raises(UsageError, match="the run is ending"):
        run.scale("agent", 3)
    with pytest.raises(UsageError, match="the run is ending"):
        run.supervision.restart("agent-0", run.now)


def test_the_report_adds_up_what_each_has_lived(run: Run) -> None:
    run.after(10)
    run.exits("agent-0", -9)
    run.after(5)
    run.exits("learner", 0)
    report = run.supervision.report(run.now)
    assert report["agent-0"] == {"restarts": 1, "exit_code": None, "alive_seconds": 15.0}
    assert report["learner"] == {"restarts": 0, "exit_code": 0, "alive_seconds": 15.0}


def test_components_without_a_learner_end_the_run_when_all_have_ended() -> None:
    run = Run(["ps", "replay-0"])
    run.exits("ps", 0)
    assert not run.supervision.over
    run.exits("replay-0", 0)
    assert run.supervision.over


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [
        (1, "ended with exit code 1"),
        (-9, "killed by SIGKILL"),
        (-11, "killed by SIGSEGV"),
        (-200, "killed by signal 200"),
    ],
)
def test_exits_in_words(exit_code: int, words: str) -> None:
    assert exit_error(exit_code) == words


class AnyHistory(RuleBasedStateMachine):
    """Whatever happens: nobody is started twice, and a stop always comes to an end."""

    def __init__(self) -> None:
        super().__init__()
        self.run = Run(["ps", "learner", "agent-0", "agent-1", "tensorplex"], Restart(2, 10.0))
        self.processes = set(self.run.started)
        self.killed: set[str] = set()

    def follow(self, did: list[Instruction]) -> None:
        for each in did:
            if isinstance(each, Start):
                assert each.name not in self.processes
                assert self.run.phase == Phase.running
                self.processes.add(each.name)
            if isinstance(each, Signal):
                assert each.name in self.processes
                if each.number == signal.SIGKILL:
                    self.killed.add(each.name)

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), exit_code=st.sampled_from([0, 1, 2, -9]))
    def exit(self, data: st.DataObject, exit_code: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.processes)))
        self.end(name, exit_code)

    def end(self, name: str, exit_code: int) -> None:
        self.processes.remove(name)
        self.killed.discard(name)
        self.follow(self.run.exits(name, exit_code))

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), state=st.sampled_from(["starting", "running", "draining", "done"]))
    def beat(self, data: st.DataObject, state: str) -> None:
        self.run.beat(data.draw(st.sampled_from(sorted(self.processes))), state=state)

    @rule(seconds=st.sampled_from([0.1, 3.0, 20.0, 100.0]))
    def wait(self, seconds: float) -> None:
        self.follow(self.run.after(seconds))

    @rule(kind=st.sampled_from(["agent", "eval"]), num=st.integers(0, 4))
    def scale(self, kind: str, num: int) -> None:
        try:
            self.follow(self.run.scale(kind, num))
        except (UsageError, ConfigError):
            return

    @rule(name=st.sampled_from(["learner", "agent-0", "agent-3", "ps"]))
    def restart(self, name: str) -> None:
        try:
            self.follow(self.run.supervision.restart(name, self.run.now))
        except UsageError:
            return

    @precondition(lambda self: not self.run.supervision.over)
    @rule(data=st.data())
    def start_by_hand(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.run.supervision.children)))
        self.processes.add(name)
        self.killed.discard(name)
        self.follow(self.run.supervision.on_manual_restart(name, self.run.now))

    @rule(interrupted=st.booleans())
    def stop(self, interrupted: bool) -> None:
        self.follow(self.run.stop(interrupted=interrupted))

    @rule()
    def kill(self) -> None:
        self.follow(self.run.supervision.kill(self.run.now))

    @invariant()
    def knows_what_lives(self) -> None:
        alive = {c.name for c in self.run.supervision.children.values() if c.alive}
        assert alive == self.processes
        assert self.run.supervision.over <= (not self.processes)

    def teardown(self) -> None:
        self.follow(self.run.stop())
        for _ in range(40):
            self.follow(self.run.after(1))
            for name in list(self.killed):
                self.end(name, -9)
        assert not self.processes
        assert self.run.supervision.over


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=examples(60), stateful_step_count=25)


# -- taking over ----------------------------------------------------------------------------------


def take_over(**starts: int) -> Run:
    """A supervision that finds these components, by names with underscores."""
    run = Run()
    run.supervision = Supervision(make_topology(), DEADLINES)
    found = {name.replace("_", "-"): number for name, number in starts.items()}
    run.did = run.supervision.adopt(found, run.now)
    return run


ALL_FOUND = {name.replace("-", "_"): 1 for name in NAMES}


def test_a_living_component_is_adopted_with_what_is_known_of_it() -> None:
    run = take_over(**{**ALL_FOUND, "agent_1": 3})
    assert run.did == []
    assert {child.state for child in run.supervision.children.values()} == {"starting"}
    run.beat(*NAMES)
    assert run.after(20) == []
    report = run.supervision.report(run.now)
    assert {n: r["restarts"] for n, r in report.items() if r["restarts"]} == {"agent-1": 2}


def test_servers_are_completed_and_clients_that_are_missing_were_scaled_away() -> None:
    run = take_over(learner=1, agent_0=1, agent_5=2, loggerplex=1, ps=1)
    assert set(run.did) == {Start("tensorplex"), Start("replay-0")}
    states = {name: child.state for name, child in run.supervision.children.items()}
    assert {name for name, state in states.items() if state == "gone"} == {"agent-1", "eval-0"}
    # One that was added in flight is there as well.
    assert states["agent-5"] == "starting"
    assert run.scale("agent", 2) == [
        Event("", "scale", "agent: 2"),
        Start("agent-1"),
        Signal("agent-5", signal.SIGTERM),
    ]


def test_a_component_that_has_died_meanwhile_is_started_again() -> None:
    run = take_over(**ALL_FOUND)
    assert run.exits("agent-0", -9) == [
        Event("agent-0", "lost", "boom"),
        Event("agent-0", "restart"),
        Start("agent-0"),
    ]


def test_a_run_that_has_ended_meanwhile_is_over() -> None:
    run = take_over(**ALL_FOUND)
    for name in NAMES:
        run.exits(name, 0)
    assert run.supervision.over
    assert run.supervision.failure is None


def test_one_that_is_started_by_hand_is_supervised_like_any_other() -> None:
    run = Run()
    run.beat(*NAMES)
    run.exits("agent-0", 0)
    assert run.supervision.children["agent-0"].state == "gone"
    assert run.supervision.on_manual_restart("agent-0", run.now) == [
        Event("agent-0", "restart", "by hand")
    ]
    child = run.supervision.children["agent-0"]
    assert (child.state, child.starts, child.exit_code) == ("starting", 2, None)
    run.beat("agent-0")
    assert Start("agent-0") in run.exits("agent-0", -9)


def test_a_restart_by_hand_is_not_done_twice() -> None:
    run = Run()
    run.beat(*NAMES)
    run.supervision.restart("agent-0", run.now)
    run.supervision.on_manual_restart("agent-0", run.now)
    run.beat("agent-0")
    assert run.exits("agent-0", 0) == [Event("agent-0", "ended")]
    assert run.supervision.report(run.now)["agent-0"]["alive_seconds"] == 0.0


def test_one_that_is_started_by_hand_while_the_run_ends_must_end_too() -> None:
    run = Run()
    # The learner does not run yet, so everybody is told at once.
    run.stop()
    assert run.supervision.phase is Phase.terminating
    run.exits("agent-0", 0)
    assert Signal("agent-0", signal.SIGTERM) in run.supervision.on_manual_restart(
        "agent-0", run.now
    )
    run.supervision.kill(run.now)
    run.exits("agent-0", -9)
    assert Signal("agent-0", signal.SIGKILL) in run.supervision.on_manual_restart(
        "agent-0", run.now
    )


def test_a_death_is_shown_for_as_long_as_it_counts() -> None:
    run = Run(restart=Restart(3, 60.0))
    run.beat(*NAMES)
    child = run.supervision.children["agent-0"]
    assert child.last_loss(run.now) is None
    run.exits("agent-0", -9, "killed by SIGKILL")
    run.now += 5
    assert child.last_loss(run.now) == ("killed by SIGKILL", 5.0)
    run.now += 60
    assert child.last_loss(run.now) is None
