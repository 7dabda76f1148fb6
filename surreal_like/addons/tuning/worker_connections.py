"""Workers: other machines that run trials of a tuning, as the tuner sees them."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from session.addons.hooks import TUNING_SERVICE
from session.config import Config
from session.errors import (
    HOPELESS,
    CheckpointError,
    SurrealError,
    WireError,
    describe,
)
from session.folder import RunFolder
from session.json_file import ANY
from session.launchers.backend import Exit
from session.launchers.launcher import free_ports, known_ports, resolve_host
from session.launchers.processes import Processes
from session.line_limit import LineLimit
from session.process.clock import Clock, WallClock
from session.process.component import Component
from session.process.heartbeat import ALIVE, Beat, State, write_beat
from session.show.text import plural
from session.wire import AddressBook, Wire
from session.wire.requests import Request
from session.wire.schema import (
    LARGE_HEADER_BYTES,
    ArrayOf,
    Count,
    Fields,
    Flag,
    Incarnation,
    Kinds,
    MapOf,
    Name,
    Number,
    OneOf,
    Plain,
    Schema,
    Text,
    Time,
    one_line,
)
from session.wire.security import write_keys
from session.wire.socket_state import poll
from surreal_like.addons.tuning.handle import Reported
from surreal_like.addons.tuning.placement import HERE
from surreal_like.addons.tuning.reporter import ANSWERS as DECISIONS
from surreal_like.addons.tuning.reporter import REPORT
from surreal_like.addons.tuning.state import Instruction, TrialState, want_slots
from surreal_like.addons.tuning.trial import write_part
from surreal_like.addons.tuning.trial_files import (
    BLOCKS,
    CHECKSUM,
    FILES,
    TrialFiles,
    dump_files,
    is_news,
    is_result,
    is_run_file,
    load_files,
)
from surreal_like.addons.tuning.tune_file import TuneFile
from surreal_like.addons.tuning.tuning_state_machine import Tuning
from surreal_like.experiment.user_code import file_hash, keep_file, own_file
from surreal_like.ps.schemas import REQUESTS as PS_REQUESTS

WORKERS = "tune.workers"
# A worker that is silent for so long is lost [s].
_SILENT_SECONDS = 10.0
# Longest wait of a worker for the answer to a poll [s].
_HELD_SECONDS = 1.0
_LAST_WORD_SECONDS, _LEFT_SECONDS = 5.0, 0.5
_SLOTS_LIMIT, _TRIALS_LIMIT = 1000, 10_000
# The end waits for no more connections than these.
_WATCHES_LIMIT = 1000
# Folder for blocks of files that are not complete.
_INCOMING = ".incoming"

_STARTED = {"trial": Name(), "start": Count()}
_BEAT = Fields(
    {
        "incarnation": Incarnation(),
        "state": OneOf(*map(str, ALIVE), str(State.done), str(State.failed)),
        "pid": Count(most=(1 << 31) - 1),
        "time": Time(),
        "busy_seconds": Number(0.0, 1e6),
        "doing": Text(),
        "status": MapOf(Text(100), Number(0.0), 100),
    }
)
_DATA = {"data": ArrayOf("uint8", shape=(None,))}
_BLOCK = {**_STARTED, "block": CHECKSUM}
REQUESTS: Kinds = {
    "info": PS_REQUESTS["info"],
    "poll": Schema(
        {
            "slots": Count(0, _SLOTS_LIMIT),
            "max_resident": Count(0, _TRIALS_LIMIT),
            "leaving": Flag(),
            "beats": MapOf(Name(), _BEAT, _TRIALS_LIMIT),
        },
        header_bytes=LARGE_HEADER_BYTES,
    ),
    "fetch": Schema(_STARTED),
    "get": Schema(_BLOCK),
    "files": Schema({**_STARTED, "files": FILES, "late": Flag()}, header_bytes=LARGE_HEADER_BYTES),
    "put": Schema(_BLOCK, _DATA),
    "report": Schema({**_STARTED, **REPORT}, header_bytes=1 << 20),
    "ended": Schema({**_STARTED, "exit_code": Count(-255, 255), "error": Text()}),
}
# Settings are dotted keys of the config: of any kind, from the tuner.
_TRIAL = Fields(
    {"start": Count(), "number": Count(), "settings": Plain(ANY), "signal": Count(most=64)}
)
ANSWERS: Kinds = {
    **DECISIONS,
    "work": Schema(
        {"trials": MapOf(Name(), _TRIAL, _TRIALS_LIMIT)},
        header_bytes=LARGE_HEADER_BYTES,
    ),
    "files": Schema({"files": FILES}, header_bytes=LARGE_HEADER_BYTES),
    "missing": Schema({"blocks": BLOCKS}, header_bytes=LARGE_HEADER_BYTES),
    "block": Schema(arrays=_DATA),
    "noted": Schema(),
}


@dataclass(slots=True)
class _Work:
    """A trial at a worker.

    Args:
        worker: name of the worker.
        start: number of this start; what another one sends is refused.
        files: the files of the trial on this machine.
        begun: the config of this part of the trial is written.
        signal: newest signal for the process; 0: none.
        pid: process id there; 0: unknown.
        beat: time of its newest heartbeat, by the clock of the worker.
    """

    worker: str
    start: int
    files: TrialFiles
    begun: bool = False
    signal: int = 0
    pid: int = 0
    beat: float = 0.0


@dataclass(slots=True)
class _Worker:
    """A machine.

    Args:
        incarnation: incarnation of its process.
        seen_at: time of its newest message [s].
        request: poll that has no answer yet.
        answer: newest answer.
        answered_at: time of that [s].
        leaving: it has asked to leave.
    """

    incarnation: int
    seen_at: float
    request: Request | None = None
    answer: Mapping[str, Any] = field(default_factory=dict)
    answered_at: float = 0.0
    leaving: bool = False


Resolve = Callable[[int, Mapping[str, Any]], Config]


class Host(NamedTuple):
    """The address at which other machines join.

    Args:
        name: address of this machine.
        resolve: function that returns the resolved config of a trial that is new, by its number and
            settings; it may raise SurrealError.
    """

    name: str
    resolve: Resolve


def host_addresses(folder: RunFolder, host: str) -> AddressBook:
    """Returns the endpoints for other machines, the same as before as far as ports are free.

    Makes the keys of the tuning, unless it has some.

    Raises:
        UsageError: the host is not this machine.
    """
    write_keys(folder.keys)
    address = resolve_host(host)
    known = known_ports(folder, address)
    return AddressBook.tcp(free_ports((WORKERS, "tune.join"), address, known), address)


class Workers:
    """Starts and signals the trials of a tuning, here and at workers; a backend.

    A worker polls for its trials: the answer has all that it should have, so that an answer that is
    lost changes nothing. Each start of a trial has a number; files, reports and the end of another
    start are refused.

    Args:
        processes: processes of this machine.
        wire: sockets of the tuner, with its keys.
        folder: folder of the tuning.
        file: file of the tuning.
        resolve: as of :class:`Host`.
        tuning: the state machine, which gets the places of trials.
        event: called with name, kind and detail of each event.
        clock: clock by which machines are silent; that of the machine by default.

    Attributes:
        line: command with which a machine joins.
    """

    run_over = False

    def __init__(
        self,
        processes: Processes,
        wire: Wire,
        folder: RunFolder,
        file: TuneFile,
        resolve: Resolve,
        tuning: Tuning,
        event: Callable[[str, str, str], object],
        *,
        clock: Clock | None = None,
    ) -> None:
        self.wire, self.clock = wire, clock or WallClock()
        self.folder: RunFolder | None = folder
        self.config = file.to_config()
        if (own := own_file(self.config)) is not None:
            self.config["recorded"] = {"algorithm_sha256": file_hash(own)}
        self._path, self._file, self._tuning, self._event = folder.path, file, tuning, event
        self._resolve = resolve
        # Of an earlier part of the tuning.
        shutil.rmtree(self._path / _INCOMING, ignore_errors=True)
        self._processes = processes
        self._names = [each.name for each in tuning.trials]
        self._workers: dict[str, _Worker] = {}
        self._work: dict[str, _Work] = {}
        self._ended: list[Exit] = []
        self._start = 0
        self._waits = False
        self._lines = LineLimit(self.clock.now, lines=5)
        self._out: list[Instruction] = []
        # Connections that ask whether the tuning goes on.
        self._watches: set[bytes] = set()
        self._over = False
        self.socket = wire.router(WORKERS, REQUESTS)
        make = TUNING_SERVICE.require("--host needs the add-on with which machines join")
        self._door, self.line = make(self)

    def event(self, kind: str, detail: str = "", **fields: object) -> None:
        """Records an event of the service that admits machines."""
        self._event("", kind, detail)

    def pid(self, name: str) -> int:
        """Returns the process id of a trial, 0 if it has no process."""
        work = self._work.get(name)
        return work.pid if work is not None else self._processes.pid(name)

    def start(self, component: Component) -> None:
        """Starts a trial at the place that the tuning has chosen."""
        name, place = component.name, self._tuning.placement.place(component.name)
        if not place:
            self._processes.start(component)
            return
        run, self._start = RunFolder(self._path / name), self._start + 1
        keep_file(str(self.config.algorithm), run)
        files = TrialFiles(run, self._path / _INCOMING / name)
        self._work[name] = _Work(place, time.time_ns() // 1_000_000 + self._start, files)

    def signal(self, name: str, number: int) -> None:
        """Sends a signal; SIGKILL goes to the whole group of the process."""
        if name in self._work:
            self._work[name].signal = max(number, self._work[name].signal)
        else:
            self._processes.signal(name, number)

    def wait_on(self) -> Sequence[Any]:
        """Returns what is readable when :meth:`poll` or :meth:`receive` has something to return."""
        sockets = [self.socket, *self._door.wait_on()]
        return [*self._processes.wait_on(), *(each.raw for each in sockets)]

    def poll(self) -> list[Exit]:
        """Returns the trials whose processes have ended since the last call."""
        ended, self._ended = self._ended, []
        return [*self._processes.poll(), *ended]

    def close(self) -> None:
        """Waits until the machines know of the end, and kills the remaining processes here."""
        self._over, deadline = True, time.monotonic() + _LAST_WORD_SECONDS
        while time.monotonic() < deadline:
            self.receive(lambda report: None)
            if not self._watches:
                # A connection that is closed with unread requests loses the answers in it.
                deadline = min(deadline, time.monotonic() + _LEFT_SECONDS)
            poll([self.socket], _LEFT_SECONDS / 10)
        self._processes.close()

    def receive(self, accept: Callable[[Request], Reported | None]) -> Reported | None:
        """Answers the requests of the workers; returns the next report, None if there is none.

        Args:
            accept: function that returns the report of a request, None if it is not new.
        """
        while (request := self.socket.receive()) is not None:
            kind, sender = request.message.kind, request.message.sender
            self._door.on_request(request.key)
            try:
                if kind == "info":
                    self._on_info(request)
                    continue
                worker = self._workers.get(sender.name)
                if worker is not None and sender.incarnation < worker.incarnation:
                    raise WireError(f"a later process works here as {sender.name}")
                if kind == "poll":
                    self._on_poll(request)
                    continue
                work = self._work.get(request.message.fields["trial"])
                start = sender.name, request.message.fields["start"]
                if worker is None or work is None or (work.worker, work.start) != start:
                    raise WireError(f"{request.message.fields['trial']} is here no more")
                worker.seen_at = self.clock.now()
                if kind == "report":
                    if (reported := accept(request)) is not None:
                        return reported
                else:
                    self._answer(request, work)
            except (WireError, CheckpointError) as error:
                self.socket.refuse(request, one_line(error))
            except Exception as error:  # noqa: BLE001 - whatever a message causes is its fault
                self._note(sender.name, "refused", f"{kind}: {one_line(describe(error))}")
                self.socket.refuse(request, one_line(describe(error)))
        return None

    def _answer(self, request: Request, work: _Work) -> None:
        fields, files = request.message.fields, work.files
        if request.message.kind == "fetch":
            self.socket.reply(request, "files", {"files": dump_files(files.find(is_run_file))})
        elif request.message.kind == "get":
            if (data := files.read(fields["block"])) is None:
                raise WireError("the files have changed")
            self.socket.reply(request, "block", arrays={"data": np.frombuffer(data, np.uint8)})
        elif request.message.kind == "files":
            found, moves = load_files(fields["files"]), is_result if fields["late"] else is_news
            if not (missing := files.missing(found, moves)):
                if not work.begun and any(map(is_news, found)):
                    self._begin(fields["trial"], work)
                files.change(found, moves)
            self.socket.reply(request, "missing", {"blocks": missing})
        else:
            if request.message.kind == "put":
                files.put(fields["block"], request.message.arrays["data"].tobytes())
            else:
                self._end(fields["trial"], fields["exit_code"], one_line(fields["error"]))
            self.socket.reply(request, "noted")

    def _begin(self, name: str, work: _Work) -> None:
        """Writes the config of a trial of which a part has begun at a worker.

        Raises:
            WireError: its settings cannot run here; it has ended.
            ConfigError: the config cannot be written.
        """
        run, number = RunFolder(self._path / name), self._names.index(name)
        try:
            trial, begun = self._tuning.trials[number], run.config.is_file()
            new = None if begun else self._resolve(number, trial.settings)
        except SurrealError as error:
            self._end(name, HOPELESS, one_line(error))
            raise WireError(f"{name} cannot run: {error}") from None
        write_part(run, self._file, new)
        work.begun = True

    def _end(self, name: str, exit_code: int, error: str) -> None:
        self._work.pop(name).files.forget()
        self._ended.append(Exit(name, exit_code, error))

    def _on_info(self, request: Request) -> None:
        if self._over:
            self._watches.discard(request.peer)
        elif len(self._watches) < _WATCHES_LIMIT:
            self._watches.add(request.peer)
        counts = dict.fromkeys(("iteration", "env_steps"), 0)
        resumable = self._over and bool(self._tuning.ending) and not self._tuning.planned
        info = {"time": time.time(), "message": "", "hash": "", "final": self._over, **counts}
        tuning = self._tuning
        states = Counter(str(trial.state) for trial in tuning.trials)
        wanted = max(0, want_slots(states)[0] - tuning.placement.places[HERE].slots)
        fields = {"version": 0, "incarnation": 0, "iteration": 0, "wanted_slots": wanted}
        self.socket.reply(request, "info", {**fields, "info": info | {"resumable": resumable}})

    def _on_poll(self, request: Request) -> None:
        fields, now = request.message.fields, self.clock.now()
        name, incarnation = request.message.sender.name, request.message.sender.incarnation
        worker = self._workers.get(name)
        if worker is None or worker.incarnation < incarnation:
            if worker is not None:
                # Its trials have ended with its earlier process.
                self._forget(name, now)
            worker = self._workers[name] = _Worker(incarnation, now)
            slots = fields["slots"]
            self._note(name, "joined", plural(slots, "slot"))
        worker.seen_at, worker.request, worker.leaving = now, request, fields["leaving"]
        self._tuning.placement.set_place(name, fields["slots"], fields["max_resident"], now)
        for trial, beat in fields["beats"].items():
            work = self._work.get(trial)
            if work is not None and work.worker == name and beat["time"] != work.beat:
                work.beat, work.pid = beat["time"], beat["pid"]
                write_beat(self._path / "alive", Beat(trial, **{**beat, "time": time.time()}))

    def tick(self) -> list[Instruction]:
        """Answers polls; returns what follows where workers were lost, or leave."""
        now = self.clock.now()
        self._door.tick()
        for name, worker in list(self._workers.items()):
            if now - worker.seen_at > _SILENT_SECONDS:
                self._forget(name, now)
                self._note(name, "lost", f"silent for {_SILENT_SECONDS:g} s")
                continue
            trials = {
                trial: {
                    "start": work.start,
                    "number": (number := self._names.index(trial)),
                    "settings": dict(self._tuning.trials[number].settings),
                    "signal": work.signal,
                }
                for trial, work in self._work.items()
                if work.worker == name
            }
            if worker.leaving:
                self._out += self._tuning.empty_place(name)
            answer = {"trials": trials}
            due = answer != worker.answer or now - worker.answered_at >= _HELD_SECONDS
            if worker.request is not None and due:
                self.socket.reply(worker.request, "work", answer)
                worker.request, worker.answer, worker.answered_at = None, answer, now
            if worker.leaving and not trials and worker.request is None:
                self._forget(name, now)
                self._note(name, "left", "")
        self._note_wait()
        out, self._out = self._out, []
        return out

    def _forget(self, name: str, now: float) -> None:
        """Removes a worker with its trials, which go on elsewhere."""
        del self._workers[name]
        for trial in [trial for trial, each in self._work.items() if each.worker == name]:
            self._work.pop(trial).files.forget()
        self._out += self._tuning.lose_place(name, now)

    def _note(self, name: str, kind: str, detail: str) -> None:
        # A machine can come and go as often as it likes.
        if (more := self._lines.admit(name, kind)) is not None:
            self._event(name, kind, f"{detail}{more}")

    def _note_wait(self) -> None:
        """Notes once that trials wait for a machine."""
        pending = (each.state is TrialState.pending for each in self._tuning.trials)
        waiting = 0 if self._tuning.placement.slots else sum(pending)
        if waiting and not self._waits:
            trials = "1 trial waits" if waiting == 1 else f"{waiting} trials wait"
            self._event("", "waits", f"{trials}, no slot: join a machine")
        self._waits = waiting > 0
