"""Faults inside and outside of a run's processes, and what becomes of the run."""

import itertools
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq

from session.config import Config
from session.process.clock import WallClock
from session.process.component import Topology
from session.process.context import Context, Launch
from session.process.handshake import ANSWERS, Handshake
from session.process.heartbeat import read_beats
from session.wire import AddressBook, Identity, Message, Wire
from tests.polling import until
from tests.runs.by_hand import ByHand
from tests.runs.command import CARTPOLE, ROOT, Record, Train, balanced, clean, gone
from tests.runs.faulty import MODULE

SHORT = "session_config.stop={env_steps: 8000, eval_episodes: 10}"
IMPALA = str(ROOT / "configs" / "cartpole_impala.yaml")
CAPACITY, BATCH, UNROLL, ENVS, CLIENTS = 512, 8, 32, 8, 500
SLOW = """
import time
from surreal_like.algorithm.impala import Impala, ImpalaLearner

class SlowLearner(ImpalaLearner):
    def loss(self, batch):
        time.sleep(5.0)
        return super().loss(batch)

class Slow(Impala):
    learner = SlowLearner
"""
FEW = ("session_config.agent.num=1", "session_config.evaluator.num=0")
ENDLESS = "session_config.stop={env_steps: 100000000, eval_episodes: 10}"


def faulty(folder: Path, env: str, *words: str) -> Train:
    """A run with an environment that goes wrong in agents."""
    names = (f"env_config.env_name={MODULE}:{env}", "learner_config.replay.min_size=200")
    path = f"session_config.import_path=[{ROOT}]"
    return Train(folder, CARTPOLE, *names, path, *words, ENDLESS)


def errors(train: Train) -> list[str]:
    return [line for line in train.words.splitlines() if line.startswith("surreal-like: error:")]


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_constructor_that_raises_is_shown_first(run_folder: Path) -> None:
    with faulty(run_folder, "Unbuildable") as train:
        assert train.wait() == 1
    (line,) = errors(train)
    assert "the simulator does not answer on port 5005" in line
    assert "agent-" in line
    assert train.result["status"] == "failed"
    assert "the simulator does not answer on port 5005" in train.result["reason"]
    # The user's own code went wrong, so the place is shown, once.
    assert train.words.count("Traceback (most recent call last)") == 1
    assert "faulty.py" in train.words
    dead = [part for part in train.result["components"].values() if part["restarts"]]
    assert {part["exit_code"] for part in dead} == {1}


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("what", "said"),
    [("nan", "NaN"), ("dtype", "complex64"), ("shape", "[7]"), ("raise", "the simulator gave up")],
)
def test_what_an_environment_must_not_give(run_folder: Path, what: str, said: str) -> None:
    once = "session_config.launcher.max_restarts=1"
    with faulty(run_folder, "Wrong", f"env_config.env_args.what={what}", once) as train:
        assert train.wait() == 1, train.words
    (line,) = errors(train)
    assert said in line
    if what != "raise":
        assert "obs" in line
        assert "Traceback" not in train.words
    assert train.result["status"] == "failed"
    assert balanced(train.result)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "sleeps"), [("agent-0", True), ("learner", False)])
def test_one_name_twice(run_folder: Path, name: str, sleeps: bool) -> None:
    """The older process of a name ends itself, and the run goes on with the younger one.

    One that sleeps meanwhile wakes when it has been replaced.
    """
    with ByHand(run_folder, ENDLESS, *FEW) as run:
        run.start()
        run.steps(1000)
        older = run.processes[name]
        if sleeps:
            older.signal(signal.SIGSTOP)
        run.start(name)
        if sleeps:
            before = read_beats(run.folder.alive)[name].incarnation
            run.until(lambda: read_beats(run.folder.alive)[name].incarnation > before)
            older.signal(signal.SIGCONT)
        assert older.wait() == 1
        assert "has been replaced" in older.words
        assert "Traceback" not in older.words
        run.steps(run.line["env_steps"] + 1000)
        run.processes["learner"].signal(signal.SIGINT)
        ends = run.wait()
    assert set(ends.values()) == {0}
    assert run.result["status"] == "interrupted"
    assert balanced(run.result)
    assert run.result["experience"]["holes"] == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_garbage_on_every_port(run_folder: Path) -> None:
    with ByHand(run_folder, ENDLESS, "session_config.launcher.transport=tcp") as run:
        run.start()
        run.steps(1000)
        addresses = {
            endpoint: address
            for endpoint, address in run.addresses().items()
            if endpoint != "supervisor.control"
        }
        for address in addresses.values():
            send_garbage(address)
        with zmq.Context() as context:
            for endpoint, address in addresses.items():
                strangers(context, endpoint, address)
            insiders(context, run)
        run.steps(run.line["env_steps"] + 1000)
        run.processes["learner"].signal(signal.SIGINT)
        ends = run.wait()
        words = {name: process.words for name, process in run.processes.items()}
    assert set(ends.values()) == {0}, words
    said = [line for each in words.values() for line in each.splitlines()]
    # On a busy machine the learner starts late; nothing else may be said.
    late = "(learner.parameters): nothing answers there"
    assert not [line for line in said if not line.endswith(late)]
    assert clean(run.result)
    assert run.result["status"] == "interrupted"
    refused = [event for event in run.events if event["event"] == "refused"]
    assert {event["component"] for event in refused} == {
        "learner",
        "loggerplex",
        "ps",
        "replay-0",
        "tensorplex",
    }
    # Told once for each sender and reason, however many came.
    assert len(refused) < 50


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_learner_of_5_s_per_update_holds_the_agents_back(
    run_folder: Path, record_property: Record
) -> None:
    """What the agents have sent is never more than what fits, and all of it is learned from."""
    own = run_folder.with_name("slow.py")
    own.write_text(SLOW)
    sizes = f"learner_config.replay={{capacity: {CAPACITY}, batch_size: {BATCH}}}"
    sender = f"session_config.sender={{flush_iteration: {UNROLL}, max_unacked_chunks: 1}}"
    words = (sizes, sender, "session_config.stop={eval_return: 501, seconds: 28}")
    with Train(run_folder, IMPALA, "--algorithm", f"{own}:Slow", *words) as train:
        assert train.wait(120) == 3, train.words
    result = train.result
    assert balanced(result)
    assert not any(part["restarts"] for part in result["components"].values())
    rows = result["experience"]
    assert 3 <= result["iterations"] < 10
    # In the queue, on their way to the learner, and what one chunk has more than there is room for.
    waiting = CAPACITY + (4 * BATCH + 2 * ENVS) * UNROLL
    assert rows["inserted"] <= result["iterations"] * BATCH * UNROLL + waiting
    record_property(
        "seen", f"{result['iterations']} updates, {rows['inserted']} rows in, {rows['dropped']} out"
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_500_clients_of_a_restarted_server(run_folder: Path, record_property: Record) -> None:
    words = (f"session_config.agent.num={CLIENTS}", "session_config.launcher.transport=tcp")
    with ByHand(run_folder, ENDLESS, *words) as run, zmq.Context() as context, ExitStack() as stack:
        context.set(zmq.MAX_SOCKETS, 10 * CLIENTS)
        wires = make_wires(context, run)
        for wire in wires:
            stack.callback(wire.close, 0.0)
        clients = make_hellos(context, run, wires)
        run.start("ps")
        welcome_all(clients)
        run.processes["ps"].end()
        run.until(lambda: not any(each.socket.writable() for each in clients))
        run.start("ps")
        began = time.monotonic()
        times = [each - began for each in welcome_all(clients)]
    record_property("recovery_seconds", {"clients": round(times[-1], 3)})
    record_property("seen", f"half of {CLIENTS} clients after {times[CLIENTS // 2]:.1f} s")


def make_wires(context: "zmq.Context[zmq.Socket[bytes]]", run: ByHand) -> list[Wire]:
    """The sockets of all agents of a run."""
    book = AddressBook.load(run.folder.addresses)
    fingerprint = bytes.fromhex(Config.load_file(run.folder.config).fingerprint()[:16])
    names = [f"agent-{k}" for k in range(CLIENTS)]
    return [Wire(context, book, Identity(name, 1, fingerprint)) for name in names]


def make_hellos(
    context: "zmq.Context[zmq.Socket[bytes]]", run: ByHand, wires: list[Wire]
) -> list[Handshake]:
    """What the agents say to the parameter server."""
    config, topology = Config.load_file(run.folder.config), Topology.load(run.folder.topology)
    book = AddressBook.load(run.folder.addresses)
    launch = Launch(topology.component("agent-0"), config, topology, book, None)
    own = Context(launch, context, clock=WallClock(), incarnation=1)
    whole = {"fingerprint": own.fingerprint, "spec_hash": own.spec_hash}
    own.close(0.0)
    return [
        Handshake(
            wire.dealer("ps.requests", ANSWERS),
            WallClock(),
            name=wire.identity.name,
            incarnation=1,
            **whole,
        )
        for wire in wires
    ]


def welcome_all(clients: list[Handshake]) -> list[float]:
    """Waits until each has got its answer; returns the times."""
    left, times = set(clients), []

    def step() -> None:
        for each in [*left]:
            if each.tick():
                left.remove(each)
                times.append(time.monotonic())

    until(lambda: not left, step=step, what=lambda: f"{len(left)} have no answer")
    return times


def send_garbage(address: str) -> None:
    """Bytes that are no ZeroMQ at all, and the beginning of it."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL"
    for text in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"", greeting, greeting * 100):
        with socket.create_connection((host, int(port)), timeout=5.0) as plain:
            plain.sendall(text)


def strangers(context: "zmq.Context[zmq.Socket[bytes]]", endpoint: str, address: str) -> None:
    """Good ZeroMQ with frames that mean nothing."""
    end = endpoint.rpartition(".")[2]
    pattern = {
        "records": zmq.PUSH,
        "experience": zmq.PUSH,
        "priorities": zmq.PUSH,
        "acks": zmq.SUB,
        "parameters": zmq.SUB,
    }.get(end, zmq.DEALER)
    with context.socket(pattern) as peer:
        peer.setsockopt(zmq.LINGER, 5000)
        peer.connect(address)
        if pattern == zmq.SUB:
            for topic in (b"", os.urandom(200), bytes(5000)):
                peer.setsockopt(zmq.SUBSCRIBE, topic)
            return
        bomb = b"\xdd\xff\xff\xff\xff"  # says that four thousand million entries follow
        for frames in ([b""], [bomb], [os.urandom(1000)], [b"\x98" * 3000], [b"x"] * 500):
            peer.send_multipart(frames)


def insiders(context: "zmq.Context[zmq.Socket[bytes]]", run: ByHand) -> None:
    """Good messages of this very run, of every kind, with wrong content."""
    config = Config.load_file(run.folder.config)
    fingerprint = bytes.fromhex(config.fingerprint()[:16])
    wire = Wire(context, AddressBook.load(run.folder.addresses), Identity("x-0", 1, fingerprint))
    pushes = {
        "replay-0.experience": ("chunk", "goodbye", "nothing"),
        "replay-0.priorities": ("priorities", "nothing"),
        "tensorplex.records": ("tensorplex", "loggerplex"),
        "loggerplex.records": ("loggerplex", "tensorplex"),
    }
    contents: tuple[dict[str, Any], ...] = (
        {},
        {"seq": "one", "rows": None, "streams": 3, "records": 7},
        {"seq": -1, "rows": -5, "streams": [0], "records": [1, {}, {"tag": 5}], "replay": 1},
        {"senders": [], "records": {}, "env_steps": 1e300, "finished": [[]], "policy": []},
    )
    requests = {
        "replay-0.batches": ("sample", "counts", "nothing"),
        "ps.requests": ("hello", "fetch", "info", "leave", "accounts", "nothing"),
        "learner.control": ("evaluated", "pause", "resume", "status", "nothing"),
        "tensorplex.requests": ("status", "nothing"),
    }
    for endpoint, kinds in pushes.items():
        push = wire.push(endpoint)
        for kind, fields in itertools.product(kinds, contents):
            insist(run, push.send, Message(kind, dict(fields)))
    for endpoint, kinds in requests.items():
        dealer = wire.dealer(endpoint)
        for kind, fields in itertools.product(kinds, contents):
            insist(run, dealer.send, kind, dict(fields))
    wire.close(5.0)


def insist(run: ByHand, send: Callable[..., object], *what: Any) -> None:
    """Sends as soon as the socket takes it."""
    run.until(lambda: send(*what))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_evaluator_that_hangs_delays_no_component(run_folder: Path) -> None:
    with Train(run_folder, CARTPOLE, SHORT) as train:
        os.kill(train.running_beat("eval-0").pid, signal.SIGSTOP)
        assert train.wait() == 0, train.words
    result = train.result
    assert result["env_steps"] >= 8000
    assert clean(result)
    # Missing is not zero.
    assert result["best_eval"] is None or result["best_eval"]["mean_return"] > 0
    assert result["components"]["learner"]["restarts"] == 0


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_what_is_left_of_a_killed_run_takes_nothing_from_the_resumed_one(run_folder: Path) -> None:
    """Its fork servers wait three seconds for a process that hangs, then clear up behind it."""
    with Train(run_folder, CARTPOLE, ENDLESS, *FEW) as train:
        left = psutil.Process(train.running_beat("tensorplex").pid)
        train.learn(100)
        servers = [each for each in train.family() if "fork_server" in str(each.cmdline())]
        assert servers
        left.suspend()
        # The run goes on without its launcher, which kills nothing behind itself.
        os.kill(train.pid, signal.SIGKILL)
        train.wait()
    with Train(run_folder, "--resume") as train:
        gone([left, *servers])
        train.kill("agent-0")
        train.learn(100)
        train.signal(signal.SIGINT)
        assert train.wait() == 130, train.words
    assert not train.folder.sockets.exists()
    assert balanced(train.result)
