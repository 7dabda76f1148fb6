"""The frame around every component: start, turns, beats, drain, end, failure."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from session.clock import CountedClock
from session.component import Component, Topology
from session.context import Context, Launch
from session.errors import ConfigError, DeadlineError
from session.folder import RunFolder, write_atomically
from session.heartbeat import Beat, read_beat
from session.launchers.launcher import make_addresses, write_run_files
from session.process import LIFELINE
from session.service import Frame, Service
from session.wire import AddressBook, Identity, Wire
from tests.session.launchers.parts import MODULE, make_config, make_run, make_topology

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 20.0


class Counting(Service):
    """A service that counts what is done to it."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.ticks = self.drains = self.closes = 0
        self.finished = False
        self.busy = False

    def tick(self) -> bool:
        self.ticks += 1
        return self.busy

    def drain(self) -> None:
        self.drains += 1

    @property
    def done(self) -> bool:
        return self.finished

    def close(self) -> None:
        self.closes += 1


class Desk:
    """One frame on a counted clock, and what its component left behind."""

    def __init__(self, folder: RunFolder, *, hello: bool = False) -> None:
        self.folder = folder
        self.services: list[Counting] = []
        self.zmq_context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(0)
        self.clock = CountedClock()
        config = make_config({})
        ps = Component("ps", "ps", MODULE, binds=("ps.requests",))
        agent = Component("agent-0", "agent", MODULE, connects=("ps.requests",) if hello else ())
        topology = Topology([ps, agent])
        book = AddressBook.inproc(topology.endpoints)
        self.router = Wire(self.zmq_context, book, Identity("ps")).router("ps.requests")
        self.frame = Frame(
            Launch(agent, config, topology, book, folder),
            self.build,
            self.zmq_context,
            clock=self.clock,
            incarnation=1,
        )

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
        desk.step(0.025)  # the interval is twice as long
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
    greeting.step(29.0)
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
    desk.step(0.2)
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


# As a process of its own.


@pytest.fixture
def folder(run_folder: Path) -> Iterator[RunFolder]:
    """A run that can be started by hand, as `plan` would have written it."""
    acts = {
        "learner": "learn",
        "agent-0": "work",
        "agent-1": "crash",
        "agent-2": "misconfigured",
        "agent-3": "hang",
    }
    config = make_config(acts)
    topology = make_topology(config)
    made = make_run(run_folder, config)
    write_run_files(made, topology, make_addresses(topology, "ipc", made))
    yield made
    # A killed process leaves its sockets to whoever supervises it.
    for left in made.sockets.glob("*"):
        left.unlink()
    if made.sockets.exists():
        made.sockets.rmdir()


def start(*arguments: str, lifeline: int | None = None) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if lifeline is not None:
        environment[LIFELINE] = str(lifeline)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", MODULE, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        pass_fds=() if lifeline is None else (lifeline,),
    )


def finish(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Exit code, and what was said on standard error."""
    with process:
        _, said = process.communicate(timeout=DEADLINE_SECONDS)
    return process.returncode, said


def wait_until(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not look():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.01)


def state(folder: RunFolder, name: str) -> str:
    beat = read_beat(folder.alive, name)
    return beat.state if beat is not None else ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_ends_well_when_it_is_asked_to(folder: RunFolder, number: int) -> None:
    process = start("--name", "learner", "--folder", str(folder))
    wait_until(lambda: state(folder, "learner") == "running")
    assert folder.sockets.stat().st_mode & 0o777 == 0o700
    process.send_signal(number)
    assert finish(process) == (0, "")
    assert state(folder, "learner") == "done"
    assert not folder.sockets.exists()


def test_processes_end_with_their_launcher_and_the_last_one_tidies_up(folder: RunFolder) -> None:
    reader, writer = os.pipe()
    names = ("learner", "agent-0")
    processes = [start("--name", n, "--folder", str(folder), lifeline=reader) for n in names]
    wait_until(lambda: all(state(folder, name) == "running" for name in names))
    os.close(writer)
    closed = time.monotonic()
    assert [finish(process) for process in processes] == [(0, "")] * 2
    assert time.monotonic() - closed < 3.0
    assert not folder.sockets.exists()
    os.close(reader)


def test_an_error_of_a_users_code_shows_its_traceback(folder: RunFolder) -> None:
    code, said = finish(start("--name", "agent-1", "--folder", str(folder)))
    assert code == 1
    assert said.startswith("Traceback")
    assert said.endswith("ValueError: the environment is broken\n")
    beat = read_beat(folder.alive, "agent-1")
    assert beat is not None
    assert (beat.state, beat.doing) == ("failed", "ValueError('the environment is broken')")


def test_an_error_of_a_config_is_one_line(folder: RunFolder) -> None:
    code, said = finish(start("--name", "agent-2", "--folder", str(folder)))
    assert (code, said) == (2, "agent-2: env_config.env_name is 'parts', which nobody knows\n")
    assert state(folder, "agent-2") == "failed"


def test_a_process_where_no_folder_is_shared(folder: RunFolder, tmp_path: Path) -> None:
    for path in (folder.config, folder.addresses):
        write_atomically(tmp_path / path.name, path.read_text())
    files = (
        "--config",
        str(tmp_path / "config.yaml"),
        "--address",
        str(tmp_path / "addresses.json"),
    )
    process = start("--name", "learner", *files)
    wait_until(lambda: (folder.sockets / "learner.control").exists())
    assert process.stderr is not None
    assert select.select([process.stderr], [], [], 0)[0] == []
    process.terminate()
    assert finish(process) == (0, "")
    assert list(folder.alive.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--name", "agent-0"], "give --folder, or --config together with --address"),
        (["--name", "agent-0", "--folder", "/nowhere"], "/nowhere"),
        (["--name", "replay-9", "--folder", "{}"], "no component 'replay-9'; there are learner"),
        (["--name", "agent-x", "--folder", "{}"], "no component 'agent-x'; there are learner"),
    ],
)
def test_a_wrong_command_is_one_line(folder: RunFolder, arguments: list[str], words: str) -> None:
    code, said = finish(start(*(each.format(folder) for each in arguments)))
    assert code == 2
    assert words in said.splitlines()[-1]
    assert "Traceback" not in said


def test_an_address_in_use_is_one_line(folder: RunFolder) -> None:
    book = json.loads(folder.addresses.read_text())
    with zmq.Context() as context, context.socket(zmq.ROUTER) as holder:
        port = holder.bind_to_random_port("tcp://127.0.0.1")
        book["learner.control"] = dict.fromkeys(("bind", "connect"), f"tcp://127.0.0.1:{port}")
        folder.addresses.write_text(json.dumps(book))
        code, said = finish(start("--name", "learner", "--folder", str(folder)))
    assert code == 2
    assert said.startswith(f"learner: cannot bind learner.control to tcp://127.0.0.1:{port}: ")
    assert said.count("\n") == 1
