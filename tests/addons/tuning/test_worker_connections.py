"""A machine and the tuner talk over real sockets, with keys: trials, files, refusals, silence."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
import zmq

from session.config import Config
from session.config.config import apply_overrides, override
from session.config.merge import leaves, with_settings
from session.errors import ConfigError
from session.folder import RunFolder
from session.process.heartbeat import read_beat
from session.run_connection import Client
from session.wire import AddressBook, Message
from session.wire.requests import Call
from session.wire.roles import GUEST, Grant
from session.wire.security import Security, allow
from surreal_like.addons.tuning import worker_connections
from surreal_like.addons.tuning.exploit_files import write_settings
from surreal_like.addons.tuning.scheduler import Fifo
from surreal_like.addons.tuning.state import Trial
from surreal_like.addons.tuning.trial import own_words, run_id_of
from surreal_like.addons.tuning.trial_files import (
    Moves,
    TrialFiles,
    dump_files,
    is_news,
    is_result,
    is_run_file,
)
from surreal_like.addons.tuning.tune_file import read_tune_file
from surreal_like.addons.tuning.tuning_state_machine import Tuning
from surreal_like.addons.tuning.worker_connections import ANSWERS, WORKERS, Workers, host_addresses
from surreal_like.ps.schemas import ANSWERS as PS_ANSWERS
from tests.clock import HandClock
from tests.polling import until
from tests.session.made_run import made_line
from tests.surreal_like.agent.rig import make_config

NAME = "worker-1000"
LINE = made_line(10)
BEAT = {
    "incarnation": 5,
    "state": "running",
    "pid": 7,
    "time": 1.0,
    "busy_seconds": 0.0,
    "doing": "",
    "status": {"cpu_seconds": 2.5},
}
# An answer of the tuner takes less than one millisecond.
_LOOK_SECONDS = 0.001
POLL = {"slots": 1, "max_resident": 1, "leaving": False, "beats": {}}


class Processes:
    """Has no process, and notes what is asked for."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def start(self, component: Any) -> None:
        self.started.append(component.name)

    def poll(self) -> list[Any]:
        return []

    def close(self) -> None:
        pass


class Rig:
    """A tuner of two trials, without a slot of its own; and keys of a machine."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.path, self.folder = path, RunFolder(path / "tuning")
        self.folder.create()
        (path / "mine.yaml").write_text("algorithm: dqn\nenv_config: {env_name: 'toy:chain'}\n")
        book = host_addresses(self.folder, "127.0.0.1")
        self.folder.addresses.write_text(book.dump())
        self.addresses = AddressBook({WORKERS: book[WORKERS]})
        security = Security.load(self.folder.keys)
        self.wire = Client(book, "tuner", security=security)
        stack.callback(self.wire.close, 0.0)
        trials = [
            Trial(f"trial-{number:03}", {"session_config.seed": number}) for number in range(2)
        ]
        self.tuning = Tuning(trials, Fifo(), slots=0)
        self.events: list[tuple[str, ...]] = []
        self.config, self.refusal = make_config(), ""
        self.file = read_tune_file(path / "mine.yaml")
        self.clock, self.ahead_seconds = HandClock(time.monotonic()), 0.0
        self.workers = Workers(
            *(Processes(), self.wire, self.folder, self.file, self.resolve, self.tuning),  # type: ignore[arg-type]
            lambda *event: self.events.append(event),
            clock=self.clock,
        )
        self.stack = stack

    def resolve(self, number: int, settings: Mapping[str, Any]) -> Config:
        if self.refusal:
            raise ConfigError(self.refusal)
        config: Config = with_settings(self.config, settings)
        return config

    def worker(self, name: str = NAME, names: tuple[str, ...] = (NAME,)) -> Machine:
        return join(self, name, names)

    def step(self, later_seconds: float = 0.0) -> None:
        """One turn of the tuner, for which further time has passed."""
        self.ahead_seconds += later_seconds
        self.clock.seconds = time.monotonic() + self.ahead_seconds
        self.workers.receive(lambda request: None)
        out = self.workers.tick()
        for each in (*out, *self.tuning.choose(self.clock.seconds)):
            if type(each).__name__ == "Start":
                number = int(each.name[-3:])  # type: ignore[union-attr]
                self.workers.start(self.tuning.children[number].component)


class Tuner(Protocol):
    """A tuner that machines join."""

    path: Path
    folder: RunFolder
    addresses: AddressBook
    stack: ExitStack

    def step(self) -> None:
        """Called while a machine waits for an answer."""


def join(tuner: Tuner, name: str = NAME, names: tuple[str, ...] = (NAME,)) -> Machine:
    """Returns a machine with keys for these names; the stack of the tuner closes it."""
    public, secret = zmq.curve_keypair()
    allow(tuner.folder.keys, public.decode(), Grant(GUEST, names))
    server = (tuner.folder.keys / "server.pub").read_bytes().strip()
    security = Security(tuner.path, server, b"", public, secret)
    client = Client(tuner.addresses, name, security=security)
    tuner.stack.callback(client.close, 0.0)
    return Machine(tuner, client)


class Machine:
    """The client of a machine."""

    def __init__(self, rig: Tuner, client: Client) -> None:
        self._rig, self.client = rig, client
        self.dealer = client.dealer(WORKERS, {**PS_ANSWERS, **ANSWERS})

    def ask(self, kind: str, fields: Mapping[str, Any], **arrays: Any) -> Message:
        call = Call(lambda: Message(kind, dict(fields), arrays))

        def answer() -> Message | None:
            self._rig.step()
            return self.dealer.ask(call, time.monotonic())

        return until(
            answer, what=lambda: self.client.check(), step=lambda: time.sleep(_LOOK_SECONDS)
        )

    def poll(self, **fields: Any) -> dict[str, Any]:
        answer = self.ask("poll", POLL | fields)
        trials: dict[str, Any] = answer.fields["trials"]
        return trials

    def get_trial(self) -> dict[str, Any]:
        """Polls until there is a trial; returns the fields that begin its messages."""
        found = until(self.poll, step=lambda: None)
        [(name, trial)] = found.items()
        return {"trial": name, "start": trial["start"]}


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr(worker_connections, "_HELD_SECONDS", 0.0)
    monkeypatch.setattr(worker_connections, "_LEFT_SECONDS", 0.05)
    with ExitStack() as stack:
        made = Rig(tmp_path, stack)
        yield made
        made.workers.close()


def reason(answer: Message) -> str:
    assert answer.kind == "refused", answer
    return str(answer.fields["reason"])


def test_a_machine_gets_a_trial_and_its_end_is_an_exit(rig: Rig) -> None:
    machine = rig.worker()
    assert machine.poll() == {}
    started = machine.get_trial()
    assert started["trial"] == "trial-000"
    assert (NAME, "joined", "1 slot") in rig.events
    assert machine.poll(beats={"trial-000": BEAT})["trial-000"] == {
        "start": started["start"],
        "number": 0,
        "settings": {"session_config.seed": 0},
        "signal": 0,
    }
    beat = read_beat(rig.folder.alive, "trial-000")
    assert beat is not None
    # Its time is that of this machine.
    assert (beat.pid, beat.status, beat.age_seconds < 60) == (7, {"cpu_seconds": 2.5}, True)
    assert rig.workers.pid("trial-000") == 7
    rig.workers.signal("trial-000", 2)
    assert machine.poll()["trial-000"]["signal"] == 2
    end = {**started, "exit_code": -9, "error": "killed"}
    assert machine.ask("ended", end).kind == "noted"
    [found] = rig.workers.poll()
    assert (found.name, found.exit_code, found.error) == ("trial-000", -9, "killed")
    assert "is here no more" in reason(machine.ask("ended", end))


def send(
    machine: Machine, started: Mapping[str, Any], run: RunFolder, moves: Moves = is_news
) -> Message:
    """Sends what a run has, block by block; returns the last answer."""
    files = TrialFiles(run, run.path.with_name("blocks"))
    listed = {**started, "files": dump_files(files.find(moves)), "late": moves is is_result}
    for block in machine.ask("files", listed).fields["blocks"]:
        data = np.frombuffer(files.read(block) or b"", np.uint8)
        assert machine.ask("put", {**started, "block": block}, data=data).kind == "noted"
    return machine.ask("files", listed)


def their_run(rig: Rig, lines: str = "a line\n") -> RunFolder:
    run = RunFolder(rig.path / "theirs" / "trial-000")
    run.path.mkdir(parents=True, exist_ok=True)
    run.progress.write_text(lines)
    return run


def test_files_arrive_and_come_back(rig: Rig) -> None:
    machine = rig.worker()
    started = machine.get_trial()
    assert send(machine, started, their_run(rig)).fields["blocks"] == []
    ours = RunFolder(rig.folder.path / "trial-000")
    assert ours.progress.read_bytes() == b"a line\n"
    back = machine.ask("fetch", started).fields["files"]
    assert set(back) == {"progress.jsonl", "config.yaml"}
    [block] = back["progress.jsonl"]["blocks"]
    found = machine.ask("get", {**started, "block": block})
    assert found.arrays["data"].tobytes() == b"a line\n"
    ours.progress.write_text("another\n")
    assert "have changed" in reason(machine.ask("get", {**started, "block": block}))


SETTINGS = {
    "algorithm": "os:system",
    "learner_config.algo.gamma": 0.5,
    "learner_config.execution_plan": "evil.py:plan",
    "env_config.env_name": "gym:os:Env",
    "session_config.import_path": ["/tmp"],
    "session_config.folder": "/tmp/elsewhere",
    "session_config.mirror": "s3://theirs/place",
    "session_config.security.insecure": True,
    "session_config.gateway.host": "0.0.0.0",
    "session_config.stop.env_steps": 10**9,
    "session_config.tmux.preamble_cmd": "touch /tmp/theirs",
    "run.load_from": "../../elsewhere",
}


def test_the_config_of_a_trial_is_that_of_its_tuning(rig: Rig) -> None:
    machine = rig.worker()
    started = machine.get_trial()
    run = their_run(rig)
    config = apply_overrides(rig.config.copy(), [override(*each) for each in SETTINGS.items()])
    config.dump_file(run.config)
    send(machine, started, run, is_run_file)
    send(machine, started, run, is_result)
    ours = RunFolder(rig.folder.path / "trial-000")
    found = ours.read_config()
    for key, value in SETTINGS.items():
        assert leaves(found).get(key) != value, key
    assert found.pop("run") == {
        "started": 0.0,
        "first_started": 0.0,
        "seconds_before": 0.0,
        "part": 1,
        "launcher": "serial",
        "trial": "trial-000",
        # As a worker makes it, which has the same public key.
        "id": run_id_of(rig.folder, "trial-000"),
    }
    expected = with_settings(rig.config, {"session_config.folder": str(ours.path)})
    expected = apply_overrides(expected, own_words(rig.file))
    assert found.to_dict() == with_settings(expected, {"session_config.seed": 0}).to_dict()


def test_each_part_of_a_trial_has_the_next_number_and_settings_of_an_exploit_stay(rig: Rig) -> None:
    machine = rig.worker()
    started = machine.get_trial()
    send(machine, started, their_run(rig))
    ours = RunFolder(rig.folder.path / "trial-000")
    write_settings(ours, {"session_config.seed": 77})
    send(machine, started, their_run(rig, "more\n"))
    assert ours.read_config()["run"]["part"] == 1
    machine.ask("ended", {**started, "exit_code": 75, "error": ""})
    rig.tuning.on_left(0, 0.0)
    again = machine.get_trial()
    # Nothing of the new part has come yet.
    assert ours.read_config()["run"]["part"] == 1
    send(machine, again, their_run(rig, "most\n"))
    found = ours.read_config()
    assert (found.run.part, found.run.generation, found.session_config.seed) == (2, 1, 77)


def test_a_trial_whose_settings_cannot_run_here_has_ended(rig: Rig) -> None:
    machine = rig.worker()
    started, rig.refusal = machine.get_trial(), "no such environment"
    run = their_run(rig)
    files = TrialFiles(run, rig.path / "blocks")
    listed = {**started, "files": dump_files(files.find(is_news)), "late": False}
    [block] = machine.ask("files", listed).fields["blocks"]
    data = np.frombuffer(files.read(block) or b"", np.uint8)
    machine.ask("put", {**started, "block": block}, data=data)
    assert "cannot run: no such environment" in reason(machine.ask("files", listed))
    [end] = rig.workers.poll()
    assert (end.name, end.exit_code, end.error) == ("trial-000", 70, "no such environment")
    assert not (rig.folder.path / ".incoming" / "trial-000").exists()


def test_an_error_that_a_message_causes_is_refused_and_noted_within_bounds(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object) -> None:
        raise RecursionError("too deep\x1b[2J")

    machine = rig.worker()
    started = machine.get_trial()
    monkeypatch.setattr(TrialFiles, "find", fail)
    for _ in range(9):
        assert "too deep" in reason(machine.ask("fetch", started))
    noted = [event for event in rig.events if event[:2] == (NAME, "refused")]
    assert len(noted) == 5
    assert all(event[2].startswith("fetch: RecursionError") for event in noted)
    assert all(event[2].isprintable() for event in noted)
    monkeypatch.undo()
    assert machine.ask("fetch", started).kind == "files"


def test_blocks_of_a_trial_that_goes_elsewhere_are_removed(rig: Rig) -> None:
    machine = rig.worker()
    started = machine.get_trial()
    files = TrialFiles(their_run(rig), rig.path / "blocks")
    listed = {**started, "files": dump_files(files.find(is_news)), "late": False}
    [block] = machine.ask("files", listed).fields["blocks"]
    data = np.frombuffer(files.read(block) or b"", np.uint8)
    machine.ask("put", {**started, "block": block}, data=data)
    incoming = rig.folder.path / ".incoming" / "trial-000"
    assert [each.name for each in incoming.iterdir()] == [block]
    rig.step(11.0)
    assert not incoming.exists()


def test_a_machine_may_do_nothing_for_trials_of_others(rig: Rig) -> None:
    machine, other = rig.worker(), rig.worker("worker-1001", ("worker-1001",))
    started = machine.get_trial()
    theirs = other.get_trial()
    assert theirs["trial"] == "trial-001"
    empty = {"files": {}, "late": True}
    block = {"block": "0" * 32}
    report = {"incarnation": 1, "number": 1, "step": 0, "time": 1.0, "line": LINE}
    data = np.zeros(3, np.uint8)
    for kind, fields, arrays in (
        ("fetch", {}, {}),
        ("get", block, {}),
        ("files", empty, {}),
        ("put", block, {"data": data}),
        ("report", report, {}),
        ("ended", {"exit_code": 0, "error": ""}, {}),
    ):
        for wrong in (theirs, {**started, "start": started["start"] - 1}):
            answer = machine.ask(kind, {**wrong, **fields}, **arrays)
            assert reason(answer) == f"{wrong['trial']} is here no more"
        absent = machine.ask(kind, {**started, "trial": "trial-777", **fields}, **arrays)
        assert "is here no more" in reason(absent)
    assert "was not asked for" in reason(machine.ask("put", {**started, **block}, data=data))


def test_another_name_and_another_endpoint_are_refused(rig: Rig) -> None:
    machine = rig.worker("worker-1001", (NAME,))
    answer = machine.ask("poll", POLL)
    assert "is for worker-1000 only" in reason(answer)
    grant = Grant(GUEST, (NAME,))
    assert grant.refusal("tune.control", "stop", NAME)
    assert grant.refusal(WORKERS, "stop", NAME)
    assert not grant.enters("tune.control")


WRONG = [
    ("poll", "slots", -1),
    ("poll", "slots", 1001),
    ("poll", "slots", 1.5),
    ("poll", "max_resident", True),
    ("poll", "leaving", 1),
    ("poll", "beats", {"trial-000": {**BEAT, "state": "gone"}}),
    ("poll", "beats", {"trial-000": {**BEAT, "time": float("nan")}}),
    ("poll", "beats", {"trial-000": {**BEAT, "pid": 1 << 31}}),
    ("poll", "beats", {"../x": BEAT}),
    ("poll", "beats", {"trial-000": {**BEAT, "more": 1}}),
    ("fetch", "trial", "../keys"),
    ("fetch", "start", -1),
    ("get", "block", "../../keys/server.key"),
    ("files", "late", None),
    ("files", "files", {"../x": {"bytes": 0, "blake2b": "0" * 32, "blocks": []}}),
    ("ended", "exit_code", 1 << 20),
    ("ended", "error", b"bytes"),
    ("report", "step", 99),
    ("report", "time", float("inf")),
    ("report", "time", 1e150),
    ("report", "line", 5),
    ("report", "line", None),
    ("report", "line", []),
    ("report", "line", {**LINE, "episodes": "3"}),
    ("report", "line", {**LINE, "time": {"env_steps": float("nan")}}),
    ("report", "line", {**LINE, "learn": {7: 1.0}}),
    ("report", "line", {**LINE, "learn": "x" * 100_000}),
]
RIGHT: Mapping[str, Mapping[str, Any]] = {
    "poll": POLL,
    "fetch": {},
    "get": {"block": "0" * 32},
    "files": {"files": {}, "late": True},
    "ended": {"exit_code": 0, "error": ""},
    "report": {"incarnation": 1, "number": 1, "step": 0, "time": 1.0, "line": LINE},
}


def test_each_wrong_field_is_named(rig: Rig) -> None:
    machine = rig.worker()
    started = machine.get_trial()
    for kind, field, value in WRONG:
        begin = {} if kind == "poll" else started
        right = {**begin, **RIGHT[kind]}
        assert f"'{field}' is" in reason(machine.ask(kind, {**right, field: value})), (kind, field)
        missing = {name: each for name, each in right.items() if name != field}
        assert f"'{field}' is missing" in reason(machine.ask(kind, missing))
        assert "is unknown" in reason(machine.ask(kind, {**right, "more": 1}))
    array = np.zeros(3, np.float32)
    put = {**started, "block": "0" * 32}
    assert "'data' is" in reason(machine.ask("put", put, data=array))
    assert "'data' is missing" in reason(machine.ask("put", put))


def test_a_silent_machine_is_lost_and_what_it_sends_later_is_refused(rig: Rig) -> None:
    machine = rig.worker()
    started = machine.get_trial()
    rig.step(9.0)
    assert rig.tuning.trials[0].state == "running"
    rig.step(2.0)
    assert rig.events[-2] == (NAME, "lost", "silent for 10 s")
    assert (rig.tuning.trials[0].state, rig.tuning.placement.slots) == ("pending", 0)
    assert "is here no more" in reason(machine.ask("fetch", started))
    # It comes back, and gets the trial under another number: it ends the old one.
    again = machine.get_trial()
    assert again["trial"] == started["trial"]
    assert again["start"] > started["start"]


def test_an_earlier_process_of_a_machine_is_refused_and_its_trials_are_lost(rig: Rig) -> None:
    first = rig.worker()
    started = first.get_trial()
    until(lambda: time.time_ns() // 1_000_000 > first.client.identity.incarnation)
    second = rig.worker()
    again = second.get_trial()
    assert again["start"] > started["start"]
    assert "a later process works here" in reason(first.ask("poll", POLL))
    assert rig.tuning.trials[0].failures == 0


def test_a_machine_that_leaves_is_asked_for_nothing_more(rig: Rig) -> None:
    machine = rig.worker()
    started = machine.get_trial()
    leaving = {"slots": 0, "max_resident": 0, "leaving": True}
    machine.poll(**leaving)
    assert rig.tuning.placement.slots == 0
    machine.ask("ended", {**started, "exit_code": 75, "error": ""})
    [end] = rig.workers.poll()
    rig.tuning.on_left(int(end.name[-3:]), 0.0)
    assert machine.poll(**leaving) == {}
    until(lambda: rig.events[-1] == (NAME, "left", ""), step=rig.step)
    assert [each.state for each in rig.tuning.trials] == ["pending", "pending"]


def test_trials_without_a_slot_are_noted_once(rig: Rig) -> None:
    for _ in range(3):
        rig.step()
    assert rig.events == [("", "waits", "2 trials wait, no slot: join a machine")]
    assert json.loads(json.dumps(rig.events))


def test_the_end_is_known_to_those_that_ask(rig: Rig) -> None:
    machine = rig.worker("join", ())
    answer = machine.ask("info", {"policy": "default"})
    assert answer.fields["info"]["final"] is False
    rig.tuning.end("interrupted")
    rig.workers._over = True
    info = machine.ask("info", {"policy": "default"}).fields["info"]
    assert (info["final"], info["resumable"]) == (True, True)
