"""Machines that send wrong things, beside an honest one: the tuning ends with its true results."""

from __future__ import annotations

import json
import math
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from itertools import count, cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from session.config.merge import with_settings
from session.errors import START_AGAIN
from session.folder import RunFolder
from session.launchers.backend import Exit
from session.newest_checkpoint import Checkpoints
from session.wire import AddressBook, Message
from session.wire.requests import Call
from surreal_like.addons.join.tokens import Token, make_token
from surreal_like.addons.tuning import tuner as module
from surreal_like.addons.tuning import worker_connections
from surreal_like.addons.tuning.result import TuningResult
from surreal_like.addons.tuning.state import Trial, TrialState
from surreal_like.addons.tuning.trial import read_tuning
from surreal_like.addons.tuning.trial_files import TrialFiles, dump_files, is_result, is_run_file
from surreal_like.addons.tuning.tune_file import read_tune_file
from surreal_like.addons.tuning.tuner import Tuner
from surreal_like.addons.tuning.tuning_state_machine import Tuning
from surreal_like.addons.tuning.worker_connections import REQUESTS, WORKERS, Host
from surreal_like.run.observer import RunObserver
from tests.addons.join.runs.guests import Guest, Hostility
from tests.addons.tuning.test_tuner import Processes
from tests.addons.tuning.test_tuner import Rig as TunerRig
from tests.addons.tuning.test_worker_connections import BEAT, POLL, Machine, join, send
from tests.polling import until
from tests.session.made_run import made_line
from tests.surreal_like.agent.rig import make_config

FILE = """
algorithm: dqn
env_config: {env_name: "toy:chain"}
space: {learner_config.algo.gamma: {uniform: [0.5, 0.9]}}
tune: {trials: 3, slots: -1, min_episodes: 1, stop: {env_steps: 100}, report_every: 50}
"""


class NoProcesses(Processes):
    """Starts nothing here, so that nothing ends here."""

    def poll(self) -> list[Exit]:
        return []

    def wait_on(self) -> list[Any]:
        return []


class OverError(Exception):
    """The tuning is over, so that no request is answered any more."""


class Rig:
    """A tuner with real sockets, in a thread of its own."""

    fingerprint = b""

    def __init__(self, path: Path, stack: ExitStack, *words: str) -> None:
        self.path, self.folder = path, RunFolder(path / "tuning")
        path.mkdir(exist_ok=True)
        (path / "mine.yaml").write_text(FILE)
        file, config = read_tune_file(path / "mine.yaml", words), make_config()
        self.folder.create()
        trials = [Trial(f"trial-{n:03}", each) for n, each in enumerate(file.settings())]
        self.tuning = Tuning(trials, file.scheduler(), slots=0, max_failures=2)
        host = Host("127.0.0.1", lambda number, settings: with_settings(config, settings))
        servers = cast(Any, NoProcesses())
        self.tuner = Tuner(file, self.folder, self.tuning, servers, RunObserver(), host=host)
        self.book = self.tuner._wire.addresses
        self.addresses = AddressBook({WORKERS: self.book[WORKERS]})
        self.found: dict[str, Any] = {}
        self.error, self.watched = "", False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        stack.callback(self._end)
        self.stack = stack

    def _run(self) -> None:
        interrupts = SimpleNamespace(count=0)
        try:
            self.found = self.tuner.run(cast(Any, interrupts))
        except Exception:  # noqa: BLE001 - the test shows it
            self.error = traceback.format_exc()
        finally:
            self.tuner.close()

    def _end(self) -> None:
        self.tuner._control.stops = True
        self.thread.join(30)

    def step(self) -> None:
        assert not self.error, self.error
        if self.watched and self.found:
            raise OverError

    round = step

    def until(self, condition: Callable[[], Any]) -> Any:
        return until(condition, step=lambda: self._pause((), 0.001))

    def _pause(self, sockets: Sequence[Any], seconds: float) -> None:
        self.step()
        time.sleep(seconds)

    def machine(self, name: str) -> Machine:
        return join(self, name, (name,))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials have no processes, and silent machines are soon lost."""
    monkeypatch.setattr(module, "Processes", lambda folder, servers: servers)
    monkeypatch.setattr(worker_connections, "_SILENT_SECONDS", 2.0)
    monkeypatch.setattr(worker_connections, "_HELD_SECONDS", 0.0)


@pytest.fixture
def rig(tmp_path: Path, quick: None) -> Iterator[Rig]:
    with ExitStack() as stack:
        yield Rig(tmp_path, stack, "tune.scheduler=median", "tune.median.grace_period=0")


WRONG: tuple[Any, ...] = (None, 5, -1, 1.5, True, "x", "x" * 70_000, [], [[]], {}, {"x": 1})
WRONG += (math.nan, math.inf, 1e300, b"x")
CHECKSUM = "0" * 32
ENTRY = {"bytes": 1, "blake2b": CHECKSUM, "blocks": [CHECKSUM]}
RIGHT: Mapping[str, Mapping[str, Any]] = {
    "poll": POLL | {"beats": {"trial-000": BEAT}},
    "fetch": {},
    "get": {"block": CHECKSUM},
    "files": {"files": {"result.json": ENTRY}, "late": True},
    "put": {"block": CHECKSUM},
    "report": {"incarnation": 1, "number": 1, "step": 0, "time": 1.0, "line": made_line(10)},
    "ended": {"exit_code": 1, "error": ""},
}


def variants(value: Any, wrong: Sequence[Any] = WRONG) -> Iterator[Any]:
    """Yields a value with one of its parts missing, or replaced by another."""
    yield from wrong
    for key in value if isinstance(value, dict) else ():
        yield {name: each for name, each in value.items() if name != key}
        for other in variants(value[key], wrong):
            yield {**value, key: other}


def admitted(
    kind: str, right: Mapping[str, Any], arrays: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Returns the messages with one wrong part that the schema admits; it refuses most."""
    found, schema = [], REQUESTS[kind]
    for name in right:
        lacks = {field: value for field, value in right.items() if field != name}
        assert schema.complaint(Message(kind, lacks, arrays)), (kind, name)
        given = ({**right, name: value} for value in variants(right[name]))
        found += [each for each in given if not schema.complaint(Message(kind, each, arrays))]
    return found


def test_no_field_of_a_message_ends_the_tuner(rig: Rig) -> None:
    machine = rig.machine("worker-1000")
    began = machine.get_trial()
    for kind, fields in RIGHT.items():
        right = {**({} if kind == "poll" else began), **fields}
        arrays = {"data": np.zeros(3, np.uint8)} if kind == "put" else {}
        for message in admitted(kind, right, arrays)[:50]:
            machine.dealer.send(kind, message, arrays)
        machine.poll()
    assert rig.thread.is_alive()


RESULT = {"status": "stopped", "goal_met": None, "reason": "x", "env_steps": 100, "iterations": 5}
STEPS = {"time": {"env_steps": 60.0}, "episodes_since_load": 30, "metrics": {"a": {"mean": 1.0}}}


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TunerRig]:
    monkeypatch.setattr(module, "Processes", lambda folder, servers: servers)
    with ExitStack() as stack:
        yield TunerRig(tmp_path, stack)


def test_no_field_of_a_file_of_a_trial_ends_the_tuner(alone: TunerRig) -> None:
    rig = alone
    rig.begin()
    folder = RunFolder(rig.folder.path / "trial-001")
    # A folder in the place of the tuner's own event file.
    (folder.tensorboard / "events.out.tfevents.1.tuner.1" / "x").mkdir(parents=True)
    line = made_line(60, training=4.0, greedy=2.0) | STEPS
    for path, right in ((folder.progress, line), (folder.result, RESULT)):
        for wrong in variants(right, (None, -1, True, "\x1b[2J", [[]], {"x": 1}, 1e300, 10**400)):
            folder.progress.write_text(json.dumps(line) + "\n")
            folder.result.write_text(json.dumps(RESULT))
            path.write_text(json.dumps(wrong, default=str) + "\n")
            trial = rig.tuning.trials[1]
            trial.state, trial.score, trial.time = TrialState.running, None, 0.0
            rig.tuning.children[1].start(0.0)
            rig.tuner._obey(rig.tuner._on_exit(Exit("trial-001", 0, "")))
            assert trial.state == "terminated"
            assert trial.score is None or abs(trial.score) <= 1e150
            read_tuning(rig.folder.path)
    assert math.isfinite(rig.tuner._record.write_result()["trials"]["trial-001"]["time"])


def misbehave(machine: Machine, codes: Iterator[int]) -> None:
    """Takes trials, sends wrong things about them, and says that they have ended."""
    for name, each in machine.poll(slots=2, max_resident=2).items():
        began = {"trial": name, "start": each["start"]}
        wrong_lines: tuple[Any, ...] = (5, None, [], made_line(10) | {"episodes": "3"})
        for line in wrong_lines:
            wrong = {**began, **RIGHT["report"], "line": line}
            assert machine.ask("report", wrong).kind == "refused"
        wrong = {**began, "files": {"checkpoints/learner/1/state.json": ENTRY}, "late": False}
        machine.ask("files", wrong)
        machine.ask("ended", {**began, "exit_code": next(codes), "error": "\x1b[2J"})


def work(machine: Machine, path: Path) -> int:
    """Does what it is given, and returns how many trials: the score of trial k is k + 1."""
    given = machine.poll(slots=3, max_resident=3)
    for name, each in given.items():
        began = {"trial": name, "start": each["start"]}
        run = RunFolder(path / name)
        run.path.mkdir(parents=True, exist_ok=True)
        line = made_line(100, training=each["number"] + 1.0) | STEPS
        run.progress.write_text(json.dumps(line) + "\n")
        run.result.write_text(json.dumps(RESULT))
        assert send(machine, began, run, is_result).fields["blocks"] == []
        assert machine.ask("ended", {**began, "exit_code": 0, "error": ""}).kind == "noted"
    return len(given)


def test_beside_a_hostile_machine_the_tuning_ends_with_its_true_results(rig: Rig) -> None:
    hostile, codes = rig.machine("worker-1000"), cycle((0, 70, 2, 3, 1, 75))
    until(
        lambda: "worker-1000" in rig.tuning.placement.unfit, step=lambda: misbehave(hostile, codes)
    )
    assert [str(each.state) for each in rig.tuning.trials] == ["pending"] * 3
    honest = rig.machine("worker-1001")
    done = 0
    while done < 3:
        misbehave(hostile, codes)
        done += work(honest, rig.path / "theirs")
    until(lambda: rig.found)
    assert (rig.found["status"], rig.found["best"]["trial"]) == ("stopped", "trial-002")
    trials = rig.found["trials"].values()
    assert [(each["state"], each["score"]) for each in trials] == [
        ("terminated", 1.0),
        ("terminated", 2.0),
        ("terminated", 3.0),
    ]
    events = rig.folder.events.read_text()
    assert "gets no trials any more" in events
    assert "\\u001b" not in events


class HostileWorker(Hostility):
    """Draws sequences of messages of a worker.

    Args:
        guest: the machine.
        path: folder for the files that it sends.
        whole: its runs have results, which are then those of their trials.
        seed: seeds all draws.
    """

    def __init__(self, guest: Guest, path: Path, *, whole: bool, seed: int) -> None:
        secret = Token.decode(make_token(guest.stage.folder.keys)).secret
        examples = {}
        began = {"trial": "trial-000", "start": 1}
        for kind, fields in RIGHT.items():
            given = fields if kind == "poll" else {**began, **fields}
            arrays = {"data": np.zeros(3, np.uint8)} if kind == "put" else {}
            examples[WORKERS, kind] = Message(kind, dict(given), arrays)
        examples["tune.join", "join"] = Message("join", {"secret": secret, "agents": 1})
        super().__init__(guest, examples, seed, restarts=0.03, wrong=(0, 0, 0, 1, 2))
        # Endpoint -> kinds, those that lead further more often.
        self._kinds[WORKERS] += ["poll", "report", "files", "put", "put"] * 3
        self._doors += [WORKERS] * 20
        self._run = RunFolder(path)
        self._files = TrialFiles(self._run, path.with_name("blocks"))
        self._result = RESULT if whole else {**RESULT, "status": "running"}

    def _renew(self, message: Message, endpoint: str, name: str) -> Message:
        fields, answers = message.fields, self._guest.answers
        trials = answers["work"].fields["trials"] if "work" in answers else {}
        if "start" in fields and trials:
            trial = self._rng.choice(sorted(trials))
            fields.update(trial=trial, start=trials[trial]["start"])
        if "start" in fields and not trials:
            message = Message("poll", {**POLL})
            fields = message.fields
        if message.kind == "poll":
            fields["beats"] = dict.fromkeys(trials, BEAT)
            fields["slots"] = self._rng.randrange(1, 4)
        if message.kind == "files":
            self._write()
            fields["files"] = dump_files(self._files.find(is_run_file))
        if message.kind == "put" and (missing := self._list("missing", "blocks")):
            fields["block"] = missing.pop()
            data = np.frombuffer(self._files.read(fields["block"]) or b"", np.uint8)
            return Message("put", fields, {"data": data})
        if message.kind == "ended":
            fields["exit_code"] = self._rng.choice((0, 1, 3, START_AGAIN))
        if message.kind == "report":
            self._numbers[endpoint, name, 0] += 1
            fields["number"] = self._numbers[endpoint, name, 0]
            fields["line"] = self._line()
        return message

    def _list(self, kind: str, name: str) -> list[str]:
        answer = self._guest.answers.get(kind)
        return [] if answer is None else answer.fields[name]

    def _line(self) -> dict[str, Any]:
        score = self._rng.choice((-1e9, 0.0, 1e9, 1e150))
        return made_line(self._rng.choice((10, 10**9)), training=score) | STEPS

    def _write(self) -> None:
        """Writes the files of a run, mostly some that do not fit."""
        if self._run.path.exists() and self._rng.random() < 0.8:
            return
        self._run.path.mkdir(parents=True, exist_ok=True)
        state = {"record": {"times": {"env_steps": 50}}}
        Checkpoints(self._run.checkpoints / "learner").save(1, state, lambda path: None)
        line = self._line()
        found = self._rng.choice([line, *variants(line, (None, 1e300, "\x1b[2J"))])
        self._run.progress.write_text(json.dumps(found) + "\n")
        self._run.result.write_text(json.dumps(self._result))


class HonestWorker:
    """Works on one trial at a time, by small steps: the score of trial k is k + 1."""

    def __init__(self, machine: Machine, path: Path) -> None:
        self._machine, self._path = machine, path
        # Trial -> steps that are done.
        self._steps: Counter[str] = Counter()
        self._started: dict[str, int] = {}
        self._reports: dict[str, Call] = {}
        self._numbers = count(1)
        self.done: set[str] = set()

    def step(self) -> None:
        given = self._machine.poll(slots=1, max_resident=2, beats=dict.fromkeys(self._steps, BEAT))
        for name, each in given.items():
            if self._started.get(name) != each["start"]:
                self._started[name] = each["start"]
                self._reports.pop(name, None)
            self._work(name, each)

    def _work(self, name: str, given: Mapping[str, Any]) -> None:
        began = {"trial": name, "start": given["start"]}
        answer = None
        if name in self._reports:
            answer = self._machine.dealer.ask(self._reports[name], time.monotonic())
            if answer is None and not given["signal"]:
                return
            self._reports.pop(name)
        kind = "leave" if answer is None and given["signal"] else answer.kind if answer else ""
        if kind == "continue":
            self._steps[name] += 1
        run = self._write(name, given["number"])
        if kind == "leave":
            self._end(began, run, START_AGAIN)
        elif kind == "stop" or self._steps[name] == STEPS_OF_A_TRIAL:
            run.result.write_text(json.dumps(RESULT))
            self.done.add(name)
            self._end(began, run, 0)
        else:
            more = {"step": 1} if kind in ("save", "load") else {}
            self._report(began, run, more)

    def _write(self, name: str, number: int) -> RunFolder:
        run = RunFolder(self._path / name)
        run.path.mkdir(parents=True, exist_ok=True)
        line = made_line(20 * self._steps[name], training=number + 1.0) | STEPS
        run.progress.write_text(json.dumps(line) + "\n")
        return run

    def _report(self, began: Mapping[str, Any], run: RunFolder, more: Mapping[str, Any]) -> None:
        send(self._machine, began, run)
        step = self._steps[began["trial"]]
        if not more:
            self._number = next(self._numbers)
        fields = {
            **began, **RIGHT["report"], "number": self._number, "time": 20.0 * (step + 1),
            "line": run.last_progress(), **more,
        }  # fmt: skip
        call = Call(lambda: Message("report", dict(fields)))
        self._reports[began["trial"]] = call
        self._machine.dealer.ask(call, time.monotonic())

    def _end(self, began: Mapping[str, Any], run: RunFolder, exit_code: int) -> None:
        assert send(self._machine, began, run, is_result).fields["blocks"] == []
        end = {**began, "exit_code": exit_code, "error": ""}
        assert self._machine.ask("ended", end).kind == "noted"


def attack(rig: Rig, path: Path, sequences: int, *, whole: bool, seed: int) -> HonestWorker:
    """Lets a hostile machine send sequences beside an honest one, which then finishes alone."""
    honest = HonestWorker(rig.machine("worker-1001"), path / "ours")
    rig.watched = True
    with suppress(OverError):
        with closing(Guest(rig, "worker-1000")) as guest:
            hostile = HostileWorker(guest, path / "theirs", whole=whole, seed=seed)
            for number in range(sequences):
                hostile.sequence()
                if number % (sequences // 30) == 0:
                    honest.step()
        until(lambda: False, step=honest.step)
    return honest


STEPS_OF_A_TRIAL = 5
SCHEDULERS = {
    "fifo": (),
    "pbt": ("tune.pbt.perturbation_interval=20",),
    "median": ("tune.median.grace_period=0",),
    "asha": ("tune.asha.grace_period=10",),
}


@pytest.mark.parametrize(
    ("scheduler", "rounds"),
    [
        ("fifo", range(1)),
        ("pbt", range(1)),
        *(pytest.param(each, range(1, 6), marks=pytest.mark.slow) for each in SCHEDULERS),
    ],
)
@pytest.mark.timeout(900)
def test_sequences_of_a_hostile_machine_change_no_result_of_an_honest_one(
    scheduler: str, rounds: range, tmp_path: Path, quick: None
) -> None:
    words = (f"tune.scheduler={scheduler}", "tune.trials=4", *SCHEDULERS[scheduler])
    for seed in rounds:
        # Then what it sends about the trials that it was given are their results.
        whole = seed % 2 == 1
        with ExitStack() as stack:
            rig = Rig(tmp_path / str(seed), stack, *words)
            honest = attack(rig, rig.path, 150, whole=whole, seed=seed)
        assert TuningResult(rig.folder.path, rig.found).exit_code == 0, rig.found
        trials = rig.found["trials"]
        assert {each["state"] for each in trials.values()} == {"terminated"}
        expected = {name: 1.0 + int(name[-3:]) for name in trials}
        theirs = set() if not whole and scheduler in ("fifo", "pbt") else {*trials} - honest.done
        for name in {*trials} - theirs:
            assert trials[name]["score"] == expected[name], (seed, trials[name])
        files = [path for path in rig.folder.path.rglob("*") if path.is_file()]
        assert not [path for path in files if ".incoming" in path.parts]
        assert sum(path.stat().st_size for path in files) < 1 << 20
