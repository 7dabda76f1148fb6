"""The frame around every component: start, turns, beats, drain, end, failure."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from session.errors import START_AGAIN, ConfigError, DeadlineError, SurrealError
from session.folder import RunFolder
from session.process.clock import CountedClock
from session.process.component import Component, Topology
from session.process.context import Context, Launch
from session.process.handshake import Accepted
from session.process.heartbeat import Beat, read_beat
from session.process.service import Frame, Service
from session.wire import AddressBook, Identity, Wire
from tests.session.launchers.parts import MODULE, make_config, make_run

ROOT = Path(__file__).resolve().parents[3]


class Counting(Service):
    """A service that counts what is done to it."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.ticks = self.drains = self.closes = 0
        self.finished = False
        self.busy = False
        self.over = False
        self.code = 0
        self.proven_by_now = True

    @property
    def proven(self) -> bool:
        return self.proven_by_now

    def tick(self) -> bool:
        self.ticks += 1
        return self.busy

    def drain(self) -> None:
        self.drains += 1

    @property
    def done(self) -> bool:
        return self.finished

    @property
    def ready(self) -> bool:
        return not self.over

    @property
    def exit_code(self) -> int:
        return self.code

    def close(self) -> None:
        self.closes += 1


class Desk:
    """One frame on a counted clock, and what its component left behind."""

    def __init__(self, folder: RunFolder, *, hello: bool = False, kind: str = "agent") -> None:
        self.folder = folder
        self.services: list[Counting] = []
        self.zmq_context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(0)
        self.clock = CountedClock()
        config = make_config({})
        ps = Component("ps", "ps", MODULE, binds=("ps.requests",))
        agent = Component("agent-0", kind, MODULE, connects=("ps.requests",) if hello else ())
        topology = Topology([ps, agent])
        book = AddressBook.inproc(topology.endpoints)
        identity = Identity("ps", 1, bytes.fromhex(config.fingerprint()[:16]))
        self.router = Wire(self.zmq_context, book, identity).router("ps.requests")
        launch = Launch(agent, config, topology, book, folder)
        context = Context(launch, self.zmq_context, clock=self.clock, incarnation=1)
        self.frame = Frame(context, self.build)

    def build(self, context: Context) -> Service:
        self.services.append(Counting(context))
        return self.services[-1]

    @property
    def service(self) -> Counting:
        (service,) = self.services
        return service

    @property
    def beat(self) -> Beat:
        beat = read_beat(self.folder.alive, "agent-0")
        assert beat is not None
        return beat

    def step(self, seconds: float = 0.001) -> bool:
        """Passes time in one go, then takes one step."""
        for _ in range(round(seconds * 1000)):
            self.clock.advance()
        return self.frame.step()

    def close(self) -> None:
        self.frame.close()
        self.router.close()
        self.zmq_context.destroy(0)


@pytest.fixture
def desk(run_folder: Path) -> Iterator[Desk]:
    made = Desk(make_run(run_folder, make_config({})))
    yield made
    made.close()


@pytest.fixture
def greeting(run_folder: Path) -> Iterator[Desk]:
    """One that says hello first."""
    made = Desk(make_run(run_folder, make_config({})), hello=True)
    yield made
    made.close()


def test_the_service_is_built_at_the_first_step(desk: Desk) -> None:
    assert (desk.frame.state, desk.services) == ("starting", [])
    assert desk.step()
    assert desk.frame.state == "running"
    assert desk.service.ticks == 0
    assert (desk.beat.state, desk.beat.pid) == ("running", os.getpid())
    desk.step()
    assert desk.service.ticks == 1


def test_a_step_says_if_there_is_more_to_do(desk: Desk) -> None:
    desk.step()
    assert not desk.step()
    desk.service.busy = True
    assert desk.step()


def test_it_beats_as_often_as_it_should(desk: Desk) -> None:
    desk.step()
    times = set()
    for _ in range(20):
        desk.step(0.5)  # the interval is twice as long
        times.add(desk.beat.time)
    assert 9 <= len(times) <= 11


def test_nothing_is_built_before_the_welcome(greeting: Desk) -> None:
    for _ in range(10):
        greeting.step()
    assert greeting.services == []
    request = greeting.router.receive()
    assert request is not None
    assert request.message.kind == "hello"
    welcome = {"starts": 3, "incarnation": 5, "version": [4, 9], "iteration": 70}
    greeting.router.reply(request, "welcome", welcome)
    greeting.step()
    context = greeting.service.context
    assert (context.incarnation, context.welcome.starts) == (5, 3)
    assert context.welcome.version == (4, 9)


def test_no_welcome_in_time_is_an_error(greeting: Desk) -> None:
    greeting.step(119.0)
    with pytest.raises(DeadlineError, match="parameter server did not answer the hello in time"):
        greeting.step(1.5)


def test_it_drains_once_and_ends_when_it_is_done(desk: Desk) -> None:
    desk.step()
    desk.frame.context.stopping = True
    for _ in range(5):
        desk.step()
    assert (desk.service.drains, desk.frame.state, desk.beat.state) == (1, "draining", "draining")
    assert not desk.frame.finished
    desk.service.finished = True
    desk.step()
    assert desk.frame.finished
    assert desk.service.closes == 1
    assert desk.beat.state == "done"


@pytest.mark.parametrize(("orphaned", "seconds"), [(False, 5.0), (True, 2.0)])
def test_draining_has_a_deadline(desk: Desk, orphaned: bool, seconds: float) -> None:
    desk.step()
    desk.frame.context.stopping = True
    desk.frame.context.orphaned = orphaned
    desk.step()
    desk.step(seconds - 0.01)
    assert not desk.frame.finished
    desk.step(0.02)
    assert desk.frame.finished
    assert desk.service.closes == 1


def test_one_that_is_done_ends_by_itself(desk: Desk) -> None:
    desk.step()
    desk.service.finished = True
    desk.step()
    assert desk.frame.finished
    assert desk.service.drains == 0


def test_one_that_has_ended_does_not_sleep_on_its_closed_sockets(
    greeting: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[int] = []
    monkeypatch.setattr(
        "session.process.service.poll", lambda sockets, seconds: slept.append(len(sockets))
    )
    greeting.step()
    greeting.frame.idle()
    greeting.frame.close()
    greeting.frame.idle()
    assert slept == [1]


def test_a_beat_says_how_long_its_component_has_waited(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(sockets: object, seconds: float) -> None:
        for _ in range(250):
            desk.clock.advance()

    monkeypatch.setattr("session.process.service.poll", wait)
    desk.step()
    assert desk.beat.status == {"idle_seconds": 0.0}
    desk.frame.idle()
    desk.step(2.0)
    assert desk.beat.status == {"idle_seconds": pytest.approx(0.25)}


def test_one_that_is_asked_to_end_before_it_has_begun_builds_nothing(desk: Desk) -> None:
    desk.frame.context.stopping = True
    desk.step()
    assert desk.frame.finished
    assert desk.services == []


def test_a_failure_leaves_a_note_and_closes_what_is_open(desk: Desk) -> None:
    desk.step()
    desk.frame.fail(ValueError("bad reward"))
    assert (desk.beat.state, desk.beat.doing) == ("failed", "ValueError('bad reward')")
    assert desk.service.closes == 1
    assert desk.frame.state == "failed"


def test_the_traceback_of_an_environment_worker_is_logged(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.step()
    logged: list[str] = []
    monkeypatch.setattr(
        type(desk.frame.context.log), "error", lambda self, text: logged.append(text)
    )
    error = SurrealError("the environment worker failed")
    error.add_note("Traceback of the worker")
    desk.frame.fail(error)
    assert logged == ["Traceback of the worker"]


def test_a_service_that_cannot_be_closed_does_not_hide_the_first_error(desk: Desk) -> None:
    desk.step()

    def close() -> None:
        raise RuntimeError("broken pipe")

    desk.service.close = close  # type: ignore[method-assign]
    desk.frame.fail(ConfigError("env_config.env_name is wrong"))
    assert (desk.beat.state, desk.beat.doing) == ("failed", "env_config.env_name is wrong")


def test_a_long_task_stands_in_the_beat_until_the_next(desk: Desk) -> None:
    desk.step()
    desk.frame.context.busy(12.0, "compiling")
    assert (desk.beat.state, desk.beat.busy_seconds, desk.beat.doing) == (
        "running",
        12.0,
        "compiling",
    )
    desk.step(2.0)
    assert (desk.beat.busy_seconds, desk.beat.doing) == (0.0, "")


def test_a_long_start_is_still_a_start(run_folder: Path) -> None:
    desk = Desk(make_run(run_folder, make_config({})))
    seen: list[Beat] = []

    def build(context: Context) -> Service:
        context.busy(60.0, "building")
        seen.append(desk.beat)
        return Counting(context)

    desk.frame._build = build
    desk.step()
    assert [(beat.state, beat.doing) for beat in seen] == [("starting", "building")]
    desk.close()


def test_a_beat_names_its_component(desk: Desk) -> None:
    desk.step()
    assert desk.beat.ready
    desk.service.over = True
    desk.step(1.0)
    assert (desk.beat.state, desk.beat.ready) == ("running", False)


def test_a_component_is_not_ready_before_the_welcome(greeting: Desk) -> None:
    greeting.step(1.0)
    greeting.step(1.0)
    assert (greeting.beat.state, greeting.beat.ready) == ("starting", False)


def test_the_exit_code_is_the_service_s(desk: Desk) -> None:
    desk.step()
    assert desk.frame.exit_code == 0
    desk.service.code = 7
    assert desk.frame.exit_code == 7


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(
    ("kind", "number", "over", "code"),
    [
        ("agent", signal.SIGTERM, False, START_AGAIN),
        ("agent", signal.SIGINT, False, START_AGAIN),
        ("agent", signal.SIGTERM, True, 0),
        ("learner", signal.SIGTERM, False, START_AGAIN),
        ("learner", signal.SIGINT, False, 0),
        ("learner", signal.SIGTERM, True, 0),
    ],
)
def test_what_a_signal_ends_while_the_run_goes_on_asks_for_a_new_start(
    run_folder: Path, kind: str, number: int, over: bool, code: int, begun: bool
) -> None:
    desk = Desk(folder := make_run(run_folder, make_config({})), kind=kind)
    if begun:
        desk.step()
        desk.service.finished = True
    desk.frame.context.on_signal(number)
    if over:
        folder.result.write_text('{"status": "stopped", "reason": "goal", "goal_met": true}')
    desk.step()
    assert desk.frame.finished
    assert desk.frame.exit_code == code
    desk.close()


def test_the_folders_that_components_write_into_are_made(run_folder: Path) -> None:
    folder = make_run(run_folder, make_config({}))
    folder.alive.rmdir()
    desk = Desk(folder)
    desk.step()
    assert desk.beat.state == "running"
    desk.close()


def test_what_fails_before_it_has_worked_would_fail_again(desk: Desk) -> None:
    wrong, passing = ValueError("bad reward"), ConnectionError("no simulator")
    assert desk.frame.is_hopeless(wrong)
    assert not desk.frame.is_hopeless(passing)
    desk.step()
    assert not desk.frame.is_hopeless(wrong)
    desk.service.proven_by_now = False
    assert desk.frame.is_hopeless(wrong)
    desk.frame.context.welcome = Accepted(starts=2)
    assert not desk.frame.is_hopeless(wrong)
