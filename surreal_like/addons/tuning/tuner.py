"""Runs the trials of a tuning as processes, answers their reports, and keeps its files."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import zmq

from session.atomic_file import write_atomically
from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.config.merge import leaves
from session.errors import START_AGAIN, SurrealError, UsageError
from session.folder import RunFolder
from session.launchers.backend import Exit
from session.launchers.fork_client import ForkServers
from session.launchers.instruction import Event, Signal, Start
from session.launchers.memory_use import MemoryGuard
from session.launchers.processes import Processes
from session.process.entry import remove_socket_folders
from session.process.heartbeat import read_beat
from session.process.periodic import Every
from session.run_connection import Client
from session.wire import AddressBook
from session.wire.requests import Request
from session.wire.schema import one_line
from session.wire.security import Security
from surreal_like.addons.tuning.exploit_files import copy_checkpoint, in_place, write_settings
from surreal_like.addons.tuning.handle import Control, Reported
from surreal_like.addons.tuning.optuna_search import OptunaSearch
from surreal_like.addons.tuning.placement import HERE
from surreal_like.addons.tuning.record import TuningRecord
from surreal_like.addons.tuning.reporter import CONTROL, CPU_SECONDS, MEMORY_BYTES, REPORTS
from surreal_like.addons.tuning.result import (
    INTERRUPTED,
    score_of,
    without_score,
    write_experiment,
)
from surreal_like.addons.tuning.slots import Slots
from surreal_like.addons.tuning.state import (
    OVER,
    Answer,
    Changed,
    Exploit,
    Instruction,
    Skipped,
)
from surreal_like.addons.tuning.trial import TUNE_FILE
from surreal_like.addons.tuning.tune_defaults import TPE
from surreal_like.addons.tuning.tune_file import EXPERIMENT_FILE, TuneFile
from surreal_like.addons.tuning.tuning_state_machine import Tuning
from surreal_like.addons.tuning.worker_connections import Host, Workers, host_addresses
from surreal_like.run.folder import TUNING, with_refusal
from surreal_like.run.observer import Interrupts, RunObserver

_LOOK_SECONDS = 0.5
_MEMORY_SHARE = "session_config.launcher.memory_share"
_BEATS_SECONDS = 1.0
_STOPPED = (0, 3)


class Tuner:
    """The edge of a tuning: processes, sockets, files.

    Args:
        file: file of the tuning.
        folder: folder of the tuning, locked.
        tuning: the state machine that decides.
        servers: fork servers of the trials; closed with the processes.
        watch: observer of the tuning.
        slots: bound of residents by the memory that they use; None: their number is fixed.
        seconds_before: duration of earlier parts of the tuning [s].
        host: how other machines join; None: none can.

    Raises:
        OSError, UsageError: the files of the tuning cannot be written.
    """

    def __init__(
        self,
        file: TuneFile,
        folder: RunFolder,
        tuning: Tuning,
        servers: ForkServers,
        watch: RunObserver,
        slots: Slots | None = None,
        *,
        seconds_before: float = 0.0,
        host: Host | None = None,
    ) -> None:
        self._file, self._folder, self._tuning = file, folder, tuning
        self._slots, self._used_bytes = slots, 0.0
        # Trial -> memory of its processes, by its newest heartbeat [bytes].
        self._memory_bytes: dict[str, float] = {}
        self._guard = MemoryGuard(folder.path, _memory_share(file.experiment))
        self._record = TuningRecord(folder, tuning, watch, seconds_before)
        for below in (folder.logs, folder.alive):
            below.mkdir(exist_ok=True)
        addresses = AddressBook.ipc([CONTROL], folder.sockets)
        security = None
        if host is not None:
            addresses = AddressBook({**addresses, **host_addresses(folder, host.name)})
            security = Security.load(folder.keys)
        servers.remove_sockets_at_end(folder)
        self._wire = Client(addresses, "tuner", security=security)
        self._names = [each.name for each in tuning.trials]
        self._control = Control(self._wire.router(CONTROL, REPORTS), self._names)
        write_atomically(folder.addresses, addresses.dump())
        file.to_config().dump_file(folder.path / TUNE_FILE)
        file.experiment.dump_file(folder.path / EXPERIMENT_FILE)
        self._record.save()
        if self._record.unsaved:
            raise UsageError(f"cannot write {folder.path / TUNING}: {self._record.unsaved}")
        self._processes: Processes | Workers = Processes(folder, servers)
        self._workers: Workers | None = None
        if host is not None:
            event = self._record.add_event
            self._workers = self._processes = Workers(
                self._processes, self._wire, folder, file, host.resolve, tuning, event
            )
        self._search = self._make_search()
        # At a report: once, for all trials are alike.
        self._said_no_score = False
        self._beats_due = Every(seconds=_BEATS_SECONDS, clock=time.monotonic)
        self._look_due = Every(seconds=_LOOK_SECONDS, clock=time.monotonic)

    def _make_search(self) -> OptunaSearch | None:
        tune, tuning = self._file.tune, self._tuning
        if tune.search != TPE:
            return None
        return OptunaSearch(
            self._folder.path,
            self._file.space,
            tuning.trials,
            seed=int(tune.seed),
            mode=str(tune.mode),
            startup_trials=int(tune.tpe.startup_trials),
            several=tuning.placement.slots > 1,
            note=self._record.add_failure,
        )

    def run(self, interrupts: Interrupts) -> dict[str, Any]:
        """Runs until the tuning is over; returns the content of ``result.json``."""
        tuning, record, seen = self._tuning, self._record, interrupts.count
        write_experiment(self._folder, list(self._file.entries))
        numbers = {"trials": len(tuning.trials), "slots": tuning.placement.slots}
        shown = self._file.to_config() | {"tune": self._file.tune | numbers}
        record.show(lambda watch: watch.begin(self._folder, shown))
        record.show_trials()
        if self._workers is not None:
            record.show_message(f"slots on another machine, once: {self._workers.line}")
        while not tuning.over:
            self._obey(tuning.choose(time.monotonic()))
            if self._workers is not None:
                self._obey(self._workers.tick())
            self._wait()
            # First: its trials may have got the same signal.
            if interrupts.count > seen:
                seen = interrupts.count
                self._interrupt(seen)
            self._read_reports()
            for end in self._processes.poll():
                self._obey(self._on_exit(end))
            if self._beats_due():
                self._read_beats()
                if record.unsaved:
                    record.save()
            self._check_budget()
            if self._control.stops and not tuning.ending:
                self._interrupt(1)
            if tuning.ending:
                self._obey(tuning.end(tuning.ending))
            if self._look_due():
                record.show_trials()
        record.show_trials()
        record.save()
        return record.write_result()

    def _check_budget(self) -> None:
        """Ends the tuning if it has used its own budget."""
        budget = self._file.tune.seconds
        if budget is not None and self._record.seconds >= budget:
            self._obey(self._tuning.end(f"budget of {budget:g} seconds used", planned=True))

    def _wait(self) -> None:
        """Sleeps until a report arrives, a process ends, or a trial may be started again."""
        left = self._tuning.retry_at() - time.monotonic()
        poller = zmq.Poller()
        for each in (self._control.socket.raw, *self._processes.wait_on()):
            poller.register(each, zmq.POLLIN)
        # A trial whose time has come and that still waits has no slot.
        timeout = left if 0 < left < _LOOK_SECONDS else _LOOK_SECONDS
        poller.poll(round(timeout * 1000))

    def _read_reports(self) -> None:
        """Answers the reports that have arrived; one save of the state serves all of them."""
        tuning, out, noted = self._tuning, list[Instruction](), False
        while (reported := self._receive()) is not None:
            score, now = reported.score, time.monotonic()
            out += tuning.on_report(reported.trial, reported.report, reported.time, score, now)
            if reported.report[2] == 0:
                trial = tuning.trials[reported.trial]
                if score is None and trial.score is None and not self._said_no_score:
                    self._said_no_score = True
                    self._say_no_score(reported.trial, reported.line)
                if self._search is not None:
                    self._search.report(reported.trial, trial.time, score)
                noted = True
            if any(isinstance(each, Exploit) for each in out):
                # The files of an exploit come before the next event.
                self._obey(out, noted=noted)
                out, noted = [], False
        self._obey(out, noted=noted)

    def _receive(self) -> Reported | None:
        """Returns the next report of a trial, here or at a worker."""
        reported = self._control.receive()
        if reported is not None:
            return self._add_score(reported)
        return None if self._workers is None else self._workers.receive(self._accept)

    def _accept(self, request: Request) -> Reported | None:
        assert self._workers is not None  # one of them has sent it
        reported = self._control.accept(request, self._workers.socket)
        return None if reported is None else self._add_score(reported)

    def _add_score(self, reported: Reported) -> Reported:
        return replace(reported, score=score_of(reported.line, self._file.tune))

    def _on_exit(self, end: Exit) -> list[Instruction]:
        """Passes the end of a trial's process to the tuning."""
        tuning, now = self._tuning, time.monotonic()
        number = self._names.index(end.name)
        beat = read_beat(self._folder.alive, end.name)
        tuning.trials[number].cpu_seconds += beat.status.get(CPU_SECONDS, 0.0) if beat else 0.0
        run = RunFolder(self._folder.path / end.name)
        if end.exit_code in _STOPPED and tuning.placement.place(end.name) != HERE and not run.over:
            # Whatever a worker says: without a result the trial has none.
            return tuning.on_death(number, "it has ended without a result", now)
        if end.exit_code in _STOPPED:
            line, result = self._note_last(number, run), run.read_result() or {}
            if tuning.trials[number].score is None:
                self._say_no_score(number, line)
            out = tuning.on_end(number, one_line(result.get("reason") or ""), now)
            if self._file.tune.stop_at_goal and result.get("goal_met") is True:
                out += tuning.end(f"{end.name} has met its goal", planned=True)
            return out
        if end.exit_code == START_AGAIN:
            if tuning.ending:
                # One that reports never, or seldom, has gone on since.
                self._note_last(number, run)
            return tuning.on_left(number, now)
        error = with_refusal(self._folder, end.error)
        return tuning.on_death(number, error, now, exit_code=end.exit_code)

    def _note_last(self, number: int, run: RunFolder) -> Mapping[str, Any]:
        """Notes time and score of the last line of progress of a trial; returns that line."""
        line: Mapping[str, Any] = run.last_progress()
        times = line.get("time") or {}
        reached = times.get(self._file.tune.time, self._tuning.trials[number].time)
        self._tuning.note(number, float(reached), score_of(line, self._file.tune))
        return line

    def _say_no_score(self, number: int, line: Mapping[str, Any]) -> None:
        name = self._tuning.trials[number].name
        self._record.show_message(f"{name} {without_score(line, self._file.tune)}")

    def _obey(self, instructions: Iterable[Instruction], *, noted: bool = False) -> None:
        """Carries out instructions; the state is on disk before if it has changed.

        Args:
            instructions: instructions in their order.
            noted: times or scores have changed.
        """
        instructions = list(instructions)
        changes = [each for each in instructions if isinstance(each, Changed)]
        if changes or noted:
            self._record.save()
        for change in changes:
            self._record.add_change(change)
            if change.after in OVER and self._search is not None:
                self._search.finish(change.trial, self._tuning.trials[change.trial])
        for each in instructions:
            if isinstance(each, Start):
                self._start(each.name)
            elif isinstance(each, Signal):
                self._processes.signal(each.name, each.number)
            elif isinstance(each, Answer):
                self._control.answer(each)
            elif isinstance(each, Exploit):
                self._exploit(each)
            elif isinstance(each, Event):
                self._record.save()
                self._record.add_event(each.component, each.kind, each.detail)
            elif isinstance(each, Skipped):
                name = self._tuning.trials[each.trial].name
                self._record.add_exploit({"recipient": name, "skipped": each.reason})

    def _exploit(self, exploit: Exploit) -> None:
        """Writes the files of an exploit, in an order that may be interrupted anywhere.

        First the checkpoint, then the config, the state of the tuning and the log, then the answer.
        """
        tuning, began = self._tuning, time.monotonic()
        recipient, donor = (tuning.trials[each] for each in (exploit.trial, exploit.donor))
        own, other = (RunFolder(self._folder.path / each.name) for each in (recipient, donor))
        try:
            fits = in_place(own.read_config(), exploit.settings)
            at = copy_checkpoint(other, own, self._file.tune.time)
            write_settings(own, exploit.settings)
        except (OSError, SurrealError) as error:
            text = " ".join(str(error).split())
            self._obey(tuning.on_exploit(exploit, None, skipped=text))
            return
        line = {
            "recipient": recipient.name,
            "donor": donor.name,
            "recipient_time": recipient.time,
            "donor_time": at,
            "recipient_score": recipient.score,
            "donor_score": donor.score,
            "donor_settings": dict(donor.settings),
            "new_settings": dict(exploit.settings),
        }
        tuning.take_over(exploit, at)
        self._record.save()
        seconds = round(time.monotonic() - began, 4)
        more = {"generation": recipient.generation, "in_place": fits, "seconds": seconds}
        self._record.add_exploit(line | more)
        self._obey(tuning.on_exploit(exploit, at, in_place=fits))

    def _start(self, name: str) -> None:
        number = self._names.index(name)
        trial, component = self._tuning.trials[number], self._tuning.children[number].component
        if self._search is not None and not trial.settings:
            trial.settings = self._search.ask(number)
            self._record.save()
            if self._record.unsaved:
                # Its process reads its settings there.
                self._obey(self._tuning.on_death(number, self._record.unsaved, time.monotonic()))
                return
        # Otherwise the heartbeat of its earlier process would count for the new one.
        (self._folder.alive / name).unlink(missing_ok=True)
        self._control.begin(number)
        self._processes.start(component)

    def _read_beats(self) -> None:
        """Kills trials whose process hangs; bounds residents by what the largest trial uses."""
        tuning, now = self._tuning, time.monotonic()
        for child in tuning.children:
            if not self._processes.pid(child.name):
                continue
            if (beat := read_beat(self._folder.alive, child.name)) is not None:
                if tuning.placement.place(child.name) == HERE:
                    self._memory_bytes[child.name] = beat.status.get(MEMORY_BYTES, 0.0)
                    self._used_bytes = max(self._used_bytes, self._memory_bytes[child.name])
                tuning.on_heartbeat(beat, now)
        self._look_at_memory(now)
        self._obey(tuning.tick(now))
        if self._slots is not None:
            tuning.placement.places[HERE].max_resident = self._slots.residents(self._used_bytes)

    def _look_at_memory(self, now: float) -> None:
        """Makes room if too much memory is used; warns once before."""
        before, found = self._guard.over, self._guard.look()
        if found is not None and not before:
            self._record.add_event("", "memory", found.text)
        if found is not None and found.over:
            self._obey(self._tuning.relieve(self._memory_bytes, f"memory: {found.text}", now))
        elif not self._guard.over:
            self._tuning.placement.admits = True

    def _interrupt(self, times: int) -> None:
        if times == 1:
            self._record.show_message("saving every trial; Ctrl-C again ends everything at once")
            self._obey(self._tuning.end(INTERRUPTED))
            return
        self._record.show_message("ending everything at once")
        # Two signals may be counted together: then no trial was asked before, and none may begin.
        self._obey(self._tuning.end(INTERRUPTED))
        for trial in self._tuning.trials:
            self._processes.signal(trial.name, signal.SIGKILL)

    def close(self) -> None:
        """Kills the remaining trials and closes all sockets and files."""
        self._processes.close()
        self._record.close()
        addresses = self._wire.addresses
        self._wire.close(0.0 if self._workers is None else 1.0)
        remove_socket_folders(addresses)


def _memory_share(experiment: Config) -> float:
    """Returns the share of the memory above which trials end."""
    return float({**leaves(BASE_CONFIG), **leaves(experiment)}[_MEMORY_SHARE])
