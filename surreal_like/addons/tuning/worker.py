"""Works for a tuning of another machine: runs its trials in a tuning folder of this one.

Trials run here as they do at the tuner. Their reports come to this process, which first sends the
files that have changed, then the report, and passes the answer on.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import zmq

from session.addons.hooks import Admitted, Watch
from session.atomic_file import write_atomically
from session.config import Config
from session.config.named_code import in_snapshot
from session.errors import START_AGAIN, RunError, SurrealError, WireError
from session.folder import RunFolder
from session.launchers.backend import Exit
from session.launchers.fork_client import ForkServers
from session.launchers.processes import Processes
from session.process.component import Component
from session.process.entry import Lifeline, remove_socket_folders
from session.process.heartbeat import read_beat
from session.run_connection import Client
from session.show.text import plural
from session.wire import AddressBook, Message
from session.wire.requests import Call
from session.wire.security import Security
from surreal_like.addons.tuning.dialogues import LOAD
from surreal_like.addons.tuning.handle import Control, Reported
from surreal_like.addons.tuning.reporter import CONTROL, REPORTS
from surreal_like.addons.tuning.slots import Machine, Slots, find_slots
from surreal_like.addons.tuning.start import SECONDS
from surreal_like.addons.tuning.state import Answer, Trial, plain_trial, state_text
from surreal_like.addons.tuning.trial import FORMAT, MODULES, TUNE_FILE, new_request, trial_name
from surreal_like.addons.tuning.trial_files import (
    Moves,
    TrialFiles,
    dump_files,
    is_exploit,
    is_news,
    is_result,
    is_run_file,
    load_files,
)
from surreal_like.addons.tuning.tune_file import TuneFile, read_tune_file
from surreal_like.addons.tuning.worker_connections import ANSWERS, WORKERS
from surreal_like.data.policy_names import PolicyId, learning_policies
from surreal_like.experiment.user_code import keep_file
from surreal_like.run.folder import TUNING
from surreal_like.run.observer import Interrupts
from surreal_like.run.start import fork_servers, try_forked

_WAIT_SECONDS = 0.2
# A request that has no answer is sent again [s].
_AGAIN_SECONDS = 3.0
# Blocks of a trial that are under way at the same time.
_UNDER_WAY = 4
# Files may change while they are sent.
_TRIES = 5
_INTERRUPTED = 130

Job = Generator[None, None, None]


def work(
    admission: Admitted,
    slots: int,
    report: Callable[[str], object],
    interrupts: Interrupts,
    watch: Watch,
) -> int | None:
    """Runs trials of a tuning until that is over or this machine has to leave.

    Args:
        admission: admission to the tuning.
        slots: number of trials that work at the same time; 0: as many as fit.
        report: called with each line of progress.
        interrupts: interrupts of this process.
        watch: watch of the tuning.

    Returns the exit code; None if the tuning goes on later.

    Raises:
        SurrealError: the experiment cannot run here; or the tuning is lost.
    """
    folder = admission.folder
    with ExitStack() as stack:
        folder.lock()
        stack.callback(folder.unlock)
        file = _write_file(admission.config, folder)
        servers = fork_servers(str(file.experiment.get("algorithm", "")), *MODULES)
        stack.callback(servers.close)
        [config] = try_forked(servers, [new_request(file, {}, 0).read_start()], seconds=SECONDS)
        if not isinstance(config, Config):
            raise config
        room = find_slots(file.tune | {"slots": slots}, config, Machine.here())
        interrupts.only_count()
        worker = _Worker(admission, file, room, servers, interrupts)
        stack.callback(worker.close)
        name = admission.names[0]
        report(f"joined a tuning as {name}: {plural(room.num, 'slot')} for trials; Ctrl-C to leave")
        if room.note:
            report(room.note)
        return worker.run(report, watch)


def _write_file(given: Config, folder: RunFolder) -> TuneFile:
    """Writes the tune file of a tuning to the folder of this machine, and returns it."""
    config = Config({key: value for key, value in given.items() if key != "recorded"}).copy()
    config["algorithm"] = in_snapshot(str(config.algorithm), RunFolder(folder.path.absolute()))
    # Only the tuner proposes and explores settings, with files that are not here.
    config["tune"] = config.tune | {"search": "random", "pbt": config.tune.pbt | {"explore": None}}
    config.dump_file(folder.path / TUNE_FILE)
    return read_tune_file(folder.path / TUNE_FILE)


@dataclass(slots=True)
class _Trial:
    """A trial that is here.

    Args:
        name, start, number, settings: as the tuner has given them.
        files: the files of the trial.
        slot: number of its slot here.
        todo: makes the job that is to be done; it is made again where that fails.
        job: job in progress.
        retry_at: time of the next attempt [s].
        begun: the process was started.
        ended: end of its process.
        signal: newest signal.
        saved: checkpoints that the tuner has.
        dropped: it belongs to this machine no more.
    """

    name: str
    start: int
    number: int
    settings: Mapping[str, Any]
    files: TrialFiles
    slot: int
    todo: Callable[[], Job] | None = None
    job: Job | None = None
    retry_at: float = 0.0
    begun: bool = False
    ended: Exit | None = None
    signal: int = 0
    saved: tuple[str, ...] = ()
    dropped: bool = False

    def do(self, todo: Callable[[], Job] | None) -> None:
        """Replaces the job."""
        self.todo, self.job, self.retry_at = todo, None, 0.0


class _Worker:
    """The trials that are here, and the connection to the tuner."""

    def __init__(
        self,
        admission: Admitted,
        file: TuneFile,
        room: Slots,
        servers: ForkServers,
        interrupts: Interrupts,
    ) -> None:
        self._folder, self._file, self._room = admission.folder, file, room
        self._interrupts, self._handled = interrupts, 0
        self._wire = Client(
            admission.addresses,
            admission.names[0],
            security=Security.load(admission.folder.keys),
        )
        self._dealer = self._wire.dealer(WORKERS, ANSWERS)
        local = AddressBook.ipc([CONTROL], self._folder.sockets)
        servers.remove_sockets_at_end(self._folder)
        self._local = Client(local, "tuner")
        self._entries = [Trial(trial_name(each), {}) for each, _ in enumerate(file.settings())]
        names = [each.name for each in self._entries]
        self._control = Control(self._local.router(CONTROL, REPORTS), names)
        write_atomically(self._folder.addresses, local.dump())
        self._processes = Processes(self._folder, servers)
        self._trials: dict[str, _Trial] = {}
        self._poll = self._make_poll()

    def run(self, report: Callable[[str], object], watch: Watch) -> int | None:
        """Works until the tuning is over, or this machine has left; returns as :func:`work`."""
        lifeline = Lifeline()
        while True:
            now = time.monotonic()
            lifeline.pass_on(signal.SIGTERM)
            if self._interrupts.count > self._handled:
                self._handled += 1
                report("leaving; Ctrl-C again ends everything at once")
                self._poll = self._make_poll()
            if self._handled > 1:
                break
            for line in (*self._wire.check(), *watch.tick()):
                report(line)
            if watch.over:
                report("the tuning is over; its trials here have ended")
                return None if watch.resumable else 0
            if watch.lost:
                raise watch.loss()
            if (answer := self._dealer.ask(self._poll, now)) is not None:
                if answer.kind == "refused":
                    raise RunError(f"the tuning refuses this machine: {answer.fields['reason']}")
                self._obey(answer.fields["trials"])
                self._poll = self._make_poll()
            self._look()
            self._step(now)
            if self._handled and not self._trials and answer is not None:
                report("left the tuning")
                break
            self._wait()
        return 0 if self._interrupts.terminated else _INTERRUPTED

    def _make_poll(self) -> Call:
        return Call(self._poll_message, again_seconds=_AGAIN_SECONDS)

    def _poll_message(self) -> Message:
        beats = {}
        for name, trial in self._trials.items():
            beat = read_beat(self._folder.alive, name) if trial.begun else None
            if beat is not None:
                kept = ("incarnation", "pid", "time", "busy_seconds", "doing", "status")
                beats[name] = {"state": str(beat.state)} | {k: getattr(beat, k) for k in kept}
        leaving = self._handled > 0
        fields = {
            "slots": 0 if leaving else self._room.num,
            "max_resident": 0 if leaving else self._room.max_resident,
            "leaving": leaving,
            "beats": beats,
        }
        return Message("poll", fields)

    def _obey(self, wanted: Mapping[str, Mapping[str, Any]]) -> None:
        """Starts, signals and drops trials as the tuner wants."""
        for name, trial in list(self._trials.items()):
            if wanted.get(name, {}).get("start") == trial.start:
                self._signal(trial, wanted[name]["signal"])
                continue
            trial.dropped = True
            trial.do(None)
            if not trial.begun or trial.ended is not None:
                del self._trials[name]
            else:
                self._processes.signal(name, signal.SIGKILL)
        for name, each in wanted.items():
            if name not in self._trials:
                self._trials[name] = self._make_trial(name, each)

    def _make_trial(self, name: str, given: Mapping[str, Any]) -> _Trial:
        taken = {each.slot for each in self._trials.values()}
        slot = next(each for each in range(len(taken) + 1) if each not in taken)
        files = TrialFiles(
            RunFolder(self._folder.path / name), self._folder.path / ".incoming" / name
        )
        trial = _Trial(name, given["start"], given["number"], given["settings"], files, slot)
        trial.do(partial(self._begin, trial))
        return trial

    def _signal(self, trial: _Trial, number: int) -> None:
        if number <= trial.signal or trial.ended is not None:
            return
        trial.signal = number
        if trial.begun:
            self._processes.signal(trial.name, number)
        else:
            trial.ended = Exit(trial.name, START_AGAIN, "")
            trial.do(partial(self._finish, trial))

    def _look(self) -> None:
        """Reads ends, reports and new checkpoints of the trials."""
        for end in self._processes.poll():
            trial = self._trials[end.name]
            trial.ended = end
            trial.do(partial(self._finish, trial))
            if trial.dropped:
                del self._trials[end.name]
        while (reported := self._control.receive()) is not None:
            found = self._trials.get(trial_name(reported.trial))
            if found is not None and not found.dropped:
                found.do(partial(self._relay, found, reported))
        for trial in self._trials.values():
            if trial.begun and trial.todo is None and self._find_saved(trial) != trial.saved:
                trial.do(partial(self._upload, trial, late=False))

    def _find_saved(self, trial: _Trial) -> tuple[str, ...]:
        checkpoints = RunFolder(self._folder.path / trial.name).checkpoints
        learning = learning_policies(self._file.experiment)
        places = [checkpoints / PolicyId(name).checkpoints for name in learning]
        return tuple(sorted(str(each) for place in places for each in place.glob("[0-9]*")))

    def _step(self, now: float) -> None:
        """Goes on with the jobs as far as answers have arrived."""
        for trial in list(self._trials.values()):
            if trial.todo is None or now < trial.retry_at:
                continue
            trial.job = trial.job or trial.todo()
            try:
                next(trial.job)
            except StopIteration:
                trial.do(None)
            except (SurrealError, OSError):
                # Such as a full disk of the tuner. If the trial was given to another machine, the
                # next answer to a poll says so.
                trial.job, trial.retry_at = None, now + _AGAIN_SECONDS

    def _wait(self) -> None:
        poller = zmq.Poller()
        sockets = (self._dealer.raw, self._control.socket.raw)
        for each in (*sockets, *self._processes.wait_on()):
            poller.register(each, zmq.POLLIN)
        poller.poll(round(_WAIT_SECONDS * 1000))

    # -- jobs: each waits for answers with `yield` ------------------------------------------------

    def _begin(self, trial: _Trial) -> Job:
        yield from self._fetch(trial, is_run_file)
        run = RunFolder(self._folder.path / trial.name)
        if not run.config.is_file():
            # What a process that was killed at its start has left would be no new run.
            shutil.rmtree(run.path, ignore_errors=True)
        else:
            keep_file(str(self._file.experiment.get("algorithm", "")), run)
        entry = self._entries[trial.number]
        entry.settings, entry.slot = trial.settings, trial.slot
        state = {"format": FORMAT, "trials": list(map(plain_trial, self._entries))}
        write_atomically(self._folder.path / TUNING, state_text(state))
        (self._folder.alive / trial.name).unlink(missing_ok=True)
        self._control.begin(trial.number)
        trial.begun = True
        self._processes.start(Component(trial.name, "trial", "main.trial", needs_torch=True))

    def _relay(self, trial: _Trial, reported: Reported) -> Job:
        yield from self._upload(trial, late=False)
        incarnation, number, step = reported.report
        fields = {
            "incarnation": incarnation,
            "number": number,
            "step": step,
            "time": reported.time,
            "line": dict(reported.line),
        }
        found = yield from self._ask("report", trial, fields)
        if found.kind == LOAD:
            yield from self._fetch(trial, is_exploit)
        reason = found.fields.get("reason", "")
        self._control.answer(Answer(reported.trial, reported.report, found.kind, reason))

    def _finish(self, trial: _Trial) -> Job:
        assert trial.ended is not None  # it is the job of a trial that has ended
        if trial.begun:
            yield from self._upload(trial, late=True)
        end = {"exit_code": trial.ended.exit_code, "error": trial.ended.error}
        yield from self._ask("ended", trial, end)
        del self._trials[trial.name]

    def _fetch(self, trial: _Trial, moves: Moves) -> Job:
        answer = yield from self._ask("fetch", trial, {})
        files = load_files(answer.fields["files"])
        yield from self._move("get", trial, trial.files.missing(files, moves))
        trial.files.change(files, moves)

    def _upload(self, trial: _Trial, *, late: bool) -> Job:
        saved = self._find_saved(trial)
        for _ in range(_TRIES):
            files = dump_files(trial.files.find(is_result if late else is_news))
            answer = yield from self._ask("files", trial, {"files": files, "late": late})
            if not answer.fields["blocks"]:
                trial.saved = saved
                return
            yield from self._move("put", trial, answer.fields["blocks"])
        raise WireError(f"the files of {trial.name} change too fast")

    def _move(self, kind: str, trial: _Trial, blocks: Iterable[str]) -> Job:
        """Gets or puts blocks, a few at the same time."""
        waiting, under_way = deque(blocks), dict[str, Call]()
        while waiting or under_way:
            while waiting and len(under_way) < _UNDER_WAY:
                block = waiting.popleft()
                data = trial.files.read(block) if kind == "put" else b""
                if data is not None:
                    arrays = {"data": np.frombuffer(data, np.uint8)} if kind == "put" else {}
                    under_way[block] = self._call(kind, trial, {"block": block}, arrays)
            for block, call in list(under_way.items()):
                if (answer := self._answer(call)) is not None:
                    del under_way[block]
                    if kind == "get":
                        trial.files.put(block, answer.arrays["data"].tobytes())
            if under_way:
                yield

    def _ask(
        self, kind: str, trial: _Trial, fields: Mapping[str, Any]
    ) -> Generator[None, None, Message]:
        call = self._call(kind, trial, fields)
        while (answer := self._answer(call)) is None:
            yield
        return answer

    def _call(
        self,
        kind: str,
        trial: _Trial,
        fields: Mapping[str, Any],
        arrays: Mapping[str, Any] | None = None,
    ) -> Call:
        own = {"trial": trial.name, "start": trial.start, **fields}
        return Call(lambda: Message(kind, dict(own), arrays or {}), again_seconds=_AGAIN_SECONDS)

    def _answer(self, call: Call) -> Message | None:
        """Returns the answer to a call, None if there is none yet.

        Raises:
            WireError: the tuner refuses it.
        """
        answer = self._dealer.ask(call, time.monotonic())
        if answer is not None and answer.kind == "refused":
            raise WireError(str(answer.fields["reason"]))
        return answer

    def close(self) -> None:
        """Kills the trials and closes the connections."""
        self._processes.close()
        self._wire.close(0.5)
        addresses = self._local.addresses
        self._local.close(0.0)
        remove_socket_folders(addresses)
