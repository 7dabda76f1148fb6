"""Runs the trials of a tuning as processes, answers their reports, and keeps its files."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import zmq

from session.client import Client
from session.errors import ConfigError, SurrealError, UsageError
from session.folder import RunFolder, write_atomically
from session.launchers.backend import Exit
from session.launchers.fork_server import ForkServers
from session.launchers.processes import Processes
from session.loggerplex.append_file import AppendFile
from session.process.component import Component
from session.process.entry import remove_socket_folders
from session.process.heartbeat import read_beat
from session.process.periodic import Every
from session.process.service import START_AGAIN
from session.tail import last_object
from session.wire import AddressBook
from surreal_like.run.folder import TUNING, held
from surreal_like.run.interrupts import Interrupts
from surreal_like.run.start import fork_servers, resolve_forked
from surreal_like.tune.control import Control
from surreal_like.tune.exploit import copy_checkpoint, in_place, write_settings
from surreal_like.tune.schemas import CONTROL, REPORTS
from surreal_like.tune.state import (
    Answer,
    Changed,
    Exploit,
    Instruction,
    Interrupt,
    Skipped,
    Start,
    Trial,
    TrialState,
    restored_trials,
)
from surreal_like.tune.trial import FORMAT, MODULES, TUNE_FILE, new_request, read_state, trial_name
from surreal_like.tune.tune_file import TuneFile, check_experiment, score_of
from surreal_like.tune.tuning import Tuning

_LOOK_SECONDS = 0.5
_BEATS_SECONDS = 1.0
_INTERRUPTED = "interrupted"
_USAGE, _STOPPED = 2, (0, 3)


class TuneWatch:
    """Receives reports about a tuning; override methods to show them."""

    def begin(self, path: Path, tuning: Tuning) -> None:
        """Called before the first trial is started."""

    def on_message(self, text: str) -> None:
        """Receives a message of one line."""

    def on_change(self, trial: Trial, change: Changed) -> None:
        """Receives a change of the state of a trial."""

    def on_report(self, trial: Trial) -> None:
        """Receives a report of a trial, whose time and score are new."""


def tune(
    file: TuneFile,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    retry_errors: bool = False,
    watch: TuneWatch | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Runs a tuning until all trials have ended; returns its folder and its result.

    Args:
        file: of the tuning.
        folder: of the tuning; None: ``runs/<name>-<date>-<time>``.
        resume: go on with the tuning in the folder.
        retry_errors: with ``resume``, also with the trials that were given up.
        watch: receives reports.

    Raises:
        ConfigError: a setting is wrong; nothing was started.
        UsageError: the folder is in use, or not empty.
    """
    path = Path(folder) if folder is not None else None
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        servers = fork_servers(str(file.experiment.get("algorithm", "")), *MODULES)
        stack.callback(servers.close)
        _check(file, servers)
        own = stack.enter_context(held(path, name=file.name, resume=resume))
        trials, scheduler = [], file.scheduler()
        if resume:
            state = read_state(own.path)
            trials = restored_trials(state, retry_errors=retry_errors)
            scheduler.restore(state["scheduler"])
        for number, settings in enumerate(file.settings()[len(trials) :], len(trials)):
            trials.append(Trial(trial_name(number), settings))
        tuning = Tuning(
            trials,
            scheduler,
            slots=file.tune.slots or len(os.sched_getaffinity(0)),
            mode=file.tune.mode,
            max_failures=file.tune.max_failures,
            fail_fast=file.tune.fail_fast,
        )
        interrupts.only_count()
        tuner = Tuner(file, own, tuning, servers, watch or TuneWatch())
        stack.callback(tuner.close)
        return own.path, tuner.run(interrupts)


def _check(file: TuneFile, servers: ForkServers) -> None:
    """Resolves the experiment once, with the settings of the first trial, and checks the tuning."""
    request = new_request(file, {}, 0)
    config = resolve_forked(servers, request.read_start())
    check_experiment(file, config)


class Tuner:
    """The edge of a tuning: processes, sockets, files.

    Args:
        file: of the tuning.
        folder: of the tuning, locked.
        tuning: decides.
        servers: fork the trials; closed with the processes.
        watch: receives reports.

    Raises:
        OSError: the files of the tuning cannot be written.
    """

    def __init__(
        self,
        file: TuneFile,
        folder: RunFolder,
        tuning: Tuning,
        servers: ForkServers,
        watch: TuneWatch,
    ) -> None:
        self._file, self._folder, self._tuning, self._watch = file, folder, tuning, watch
        self._began = time.monotonic()
        self._events = AppendFile(folder.events)
        self._exploits = AppendFile(folder.path / "pbt.jsonl")
        for below in (folder.logs, folder.alive):
            below.mkdir(exist_ok=True)
        addresses = AddressBook.ipc([CONTROL], folder.sockets)
        servers.remove_at_end(str(folder.sockets))
        self._wire = Client(addresses, "tuner")
        names = [each.name for each in tuning.trials]
        self._control = Control(self._wire.router(CONTROL, REPORTS), names)
        write_atomically(folder.addresses, addresses.dump())
        file.to_config().dump_file(folder.path / TUNE_FILE)
        self._save()
        self._processes = Processes(folder, servers)
        # Trial -> why it was killed.
        self._killed: dict[int, str] = {}
        self._beats_due = Every(seconds=_BEATS_SECONDS, clock=time.monotonic)

    def run(self, interrupts: Interrupts) -> dict[str, Any]:
        """Runs until the tuning is over; returns the content of ``result.json``."""
        tuning, seen = self._tuning, interrupts.count
        self._watch.begin(self._folder.path, tuning)
        while not tuning.over:
            self._obey(tuning.choose(time.monotonic()))
            self._wait()
            self._read_reports()
            for end in self._processes.poll():
                self._obey(self._on_exit(end))
            if self._beats_due():
                self._kill_silent()
            if interrupts.count > seen:
                seen = interrupts.count
                self._interrupt(seen)
            elif tuning.ending:
                self._obey(tuning.end(tuning.ending))
        self._save()
        return self._write_result()

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
        tuning = self._tuning
        while (reported := self._control.receive()) is not None:
            score = score_of(reported.line, self._file.tune)
            now = time.monotonic()
            out = tuning.on_report(reported.trial, reported.report, reported.time, score, now)
            if reported.report[2] == 0:
                self._watch.on_report(tuning.trials[reported.trial])
                self._save()
            self._obey(out)

    def _on_exit(self, end: Exit) -> list[Instruction]:
        """Passes the end of a trial's process to the tuning."""
        tuning, now = self._tuning, time.monotonic()
        names = [each.name for each in tuning.trials]
        number = names.index(end.name)
        killed = self._killed.pop(number, "")
        if end.exit_code in _STOPPED:
            run = RunFolder(self._folder.path / end.name)
            line = last_object(run.progress) or {}
            times = line.get("time") or {}
            reached = times.get(self._file.tune.time, tuning.trials[number].time)
            tuning.note(number, float(reached), score_of(line, self._file.tune))
            return tuning.on_end(number, str((run.read_result() or {}).get("reason", "")))
        if end.exit_code in (START_AGAIN, 130):
            return tuning.on_left(number, now)
        hopeless = end.exit_code == _USAGE
        return tuning.on_death(number, killed or end.error, now, hopeless=hopeless)

    def _obey(self, instructions: Iterable[Instruction]) -> None:
        """Carries out instructions; the state is on disk before."""
        instructions = list(instructions)
        changes = [each for each in instructions if isinstance(each, Changed)]
        if changes:
            self._save()
        for change in changes:
            self._record(change)
        for each in instructions:
            if isinstance(each, Start):
                self._start(self._tuning.trials[each.trial].name)
            elif isinstance(each, Interrupt):
                self._processes.signal(self._tuning.trials[each.trial].name, signal.SIGINT)
            elif isinstance(each, Answer):
                self._control.answer(each)
            elif isinstance(each, Exploit):
                self._exploit(each)
            elif isinstance(each, Skipped):
                name = self._tuning.trials[each.trial].name
                self._log_exploit({"recipient": name, "skipped": each.reason})

    def _exploit(self, exploit: Exploit) -> None:
        """Writes the files of an exploit, in an order that may be interrupted anywhere.

        First the checkpoint, then the config, the state of the tuning and the log, then the answer.
        """
        tuning, began = self._tuning, time.monotonic()
        recipient, donor = (tuning.trials[each] for each in (exploit.trial, exploit.donor))
        own, other = (RunFolder(self._folder.path / each.name) for each in (recipient, donor))
        try:
            fits = in_place(own.read_config(), exploit.settings)
            at = copy_checkpoint(other, own)["record"]["times"][self._file.tune.time]
            write_settings(own, exploit.settings)
        except (OSError, KeyError, SurrealError) as error:
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
        self._save()
        seconds = round(time.monotonic() - began, 4)
        more = {"generation": recipient.generation, "in_place": fits, "seconds": seconds}
        self._log_exploit(line | more)
        self._obey(tuning.on_exploit(exploit, at, in_place=fits))

    def _log_exploit(self, line: Mapping[str, Any]) -> None:
        """Writes an exploit, or one that was skipped, to ``pbt.jsonl`` and as an event."""
        self._exploits.add((json.dumps({"time_of_day": time.time(), **line}) + "\n").encode())
        self._exploits.flush()
        detail = exploit_text(line)
        event = {"time": time.time(), "trial": line["recipient"], "event": "exploit"}
        self._events.add((json.dumps(event | {"detail": detail}) + "\n").encode())
        self._events.flush()
        self._watch.on_message(detail)

    def _start(self, name: str) -> None:
        # Otherwise the heartbeat of its earlier process would count for the new one.
        (self._folder.alive / name).unlink(missing_ok=True)
        self._processes.start(Component(name, "trial", "main.trial", needs_torch=True))

    def _kill_silent(self) -> None:
        """Kills trials whose process hangs."""
        timeout = self._file.heartbeat_seconds
        for number, trial in enumerate(self._tuning.trials):
            if not self._processes.pid(trial.name) or number in self._killed:
                continue
            beat = read_beat(self._folder.alive, trial.name)
            if beat is not None and beat.late(timeout):
                self._killed[number] = f"no heartbeat for {beat.age_seconds:.0f} s: killed"
                self._processes.signal(trial.name, signal.SIGKILL)

    def _interrupt(self, times: int) -> None:
        if times == 1:
            self._watch.on_message("saving every trial; Ctrl-C again ends everything at once")
            self._obey(self._tuning.end(_INTERRUPTED))
            return
        self._watch.on_message("ending everything at once")
        for trial in self._tuning.trials:
            self._processes.signal(trial.name, signal.SIGKILL)

    def _record(self, change: Changed) -> None:
        """Writes a change of state as an event."""
        trial = self._tuning.trials[change.trial]
        detail = f"{change.before} -> {change.after}"
        event = {"time": time.time(), "trial": trial.name, "event": "trial", "detail": detail}
        if change.reason:
            event["reason"] = change.reason
        self._events.add((json.dumps(event) + "\n").encode())
        self._events.flush()
        self._watch.on_change(trial, change)

    def _save(self) -> None:
        state = {"format": FORMAT, **self._tuning.state()}
        write_atomically(self._folder.path / TUNING, json.dumps(state, indent=1) + "\n")

    def _write_result(self) -> dict[str, Any]:
        result = result_of(self._folder.path, self._tuning, time.monotonic() - self._began)
        write_atomically(self._folder.result, json.dumps(result, indent=2) + "\n")
        return result

    def close(self) -> None:
        """Kills the remaining trials and closes all sockets and files."""
        self._processes.close()
        self._events.flush()
        addresses = self._wire.addresses
        self._wire.close(0.0)
        remove_socket_folders(addresses)


def exploit_text(line: Mapping[str, Any]) -> str:
    """Returns a line of ``pbt.jsonl`` as text for users."""
    if "skipped" in line:
        return f"{line['recipient']} does not load: {line['skipped']}"
    before, now = line["donor_settings"], line["new_settings"]
    changes = ", ".join(
        f"{key.removeprefix('learner_config.algo.')} {before[key]:.6g} -> {value:.6g}"
        if isinstance(value, float)
        else f"{key.removeprefix('learner_config.algo.')} {before[key]} -> {value}"
        for key, value in now.items()
        if before[key] != value
    )
    scores = f"{line['donor_score']:.4g} over {line['recipient_score']:.4g}"
    return f"{line['recipient']} <- {line['donor']} ({scores}): {changes or 'the same settings'}"


def result_of(path: Path, tuning: Tuning, seconds: float) -> dict[str, Any]:
    """Returns the content of ``result.json``.

    Args:
        path: folder of the tuning.
        tuning: that has ended.
        seconds: duration of this part.
    """
    best = tuning.best
    interrupted = tuning.ending == _INTERRUPTED
    scored = best is not None
    status = (
        "interrupted" if interrupted else "stopped" if scored and not tuning.ending else "failed"
    )
    reason = tuning.ending or ("all trials have ended" if scored else _without_score(tuning))
    return {
        "status": status,
        "reason": reason,
        "best": None
        if best is None
        else {"trial": best.name, "score": best.score, "settings": dict(best.settings)},
        "trials": {each.name: _trial_result(path, each) for each in tuning.trials},
        "seconds": round(seconds, 3),
    }


def _trial_result(path: Path, trial: Trial) -> dict[str, Any]:
    counts: Mapping[str, Any] = RunFolder(path / trial.name).read_result() or {}
    names = ("env_steps", "iterations", "wall_seconds", "real_seconds")
    return {
        "state": str(trial.state),
        "settings": dict(trial.settings),
        "score": trial.score,
        "best_score": trial.best_score,
        "time": trial.time,
        "generation": trial.generation,
        "failures": trial.failures,
        "reason": trial.reason,
        **{name: counts.get(name) for name in names},
    }


def _without_score(tuning: Tuning) -> str:
    """Explains why no trial has a score."""
    errors = [each for each in tuning.trials if each.state is TrialState.error]
    if not errors:
        return "no trial had a score: too few episodes have ended, or the metric was never a number"
    return f"{len(errors)} of {len(tuning.trials)} trials were given up; the first: " + (
        f"{errors[0].name}: {errors[0].reason}"
    )


def exit_code(result: Mapping[str, Any]) -> int:
    """Returns 0 for a complete tuning with a score, 130 for an interrupted one, else 1."""
    return {"stopped": 0, "interrupted": 130}.get(str(result["status"]), 1)


# A part of these may change when a tuning is resumed.
_MAY_CHANGE = ("slots", "max_failures", "fail_fast", "stop", "trials")


def check_resumed(before: TuneFile, now: TuneFile) -> None:
    """Rejects resuming a tuning with other settings.

    Raises:
        UsageError: the message lists the keys that differ.
        ConfigError: it has fewer trials than before.
    """
    names = [key for key in before.tune if before.tune[key] != now.tune[key]]
    wrong = [f"tune.{key}" for key in names if key not in _MAY_CHANGE]
    wrong += ["space"] if before.entries != now.entries else []
    wrong += ["the experiment"] if before.experiment != now.experiment else []
    if wrong:
        raise UsageError(f"a tuning cannot go on with other settings: {', '.join(wrong)}")
    if now.tune.trials < before.tune.trials:
        raise ConfigError(
            f"tune.trials is {now.tune.trials}, expected {before.tune.trials} or more: the tuning "
            "has so many"
        )
