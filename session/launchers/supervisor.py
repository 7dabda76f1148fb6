"""Base class of supervising launchers: keeps the components of one run alive until it is over."""

from __future__ import annotations

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import zmq

from session.config import Config
from session.errors import DeadlineError, UsageError
from session.folder import RunFolder
from session.launchers.backend import Backend, Exit
from session.launchers.control import NAME, ControlSockets
from session.launchers.held_files import HeldMemory
from session.launchers.instruction import Event, Failure, Instruction, Signal, Start, Stop
from session.launchers.launcher import (
    Outcome,
    earlier_addresses,
    finish_result,
    forget_beats,
    last_lines,
    make_addresses,
    protect,
    write_run_files,
)
from session.launchers.memory_use import MemoryGuard
from session.launchers.silence_and_restarts import Deadlines
from session.launchers.status import ComponentStatus, status_row
from session.launchers.supervisor_state_machine import Supervision
from session.process.clock import Clock, WallClock
from session.process.component import Topology
from session.process.heartbeat import State, read_beats
from session.process.periodic import Every
from session.run_connection import Client
from session.wire import AddressBook, Wire
from session.wire.security import Security

_LISTEN_SECONDS = 0.2
_POLL_SECONDS = 0.05
_KILL_SECONDS = 5.0
_SAVE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _Resources:
    """Resources of a launcher while its run goes on."""

    backend: Backend
    sockets: ControlSockets

    def wait(self, timeout_seconds: float) -> None:
        """Sleeps until a process ends, a message arrives or the timeout has passed."""
        poller = zmq.Poller()
        for each in (*self.backend.wait_on(), *self.sockets.wait_on()):
            poller.register(each, zmq.POLLIN)
        poller.poll(round(timeout_seconds * 1000))


def _note_move(before: AddressBook, now: AddressBook) -> list[Event]:
    """Returns an event if machines that have joined look for the run at its earlier addresses."""
    pairs = [(each.connect, now[name].connect) for name, each in before.items() if name in now]
    other = [f"{old} is now {new}" for old, new in pairs if old != new]
    if not other:
        return []
    text = f"{other[0]}, and {len(other) - 1} more: machines that join need the new address"
    return [Event("supervisor", "moved", text)]


class Supervisor(ABC):
    """Starts the components of one run, and keeps them alive until it is over.

    The caller must call :meth:`poll` often: all work is done there.

    Args:
        config: the resolved experiment.
        topology: components of the run and their wiring.
        folder: the run folder, made already; it is locked while the run goes on.
        clock: source of time; None: the machine's.
        restarts: False ends the run at the first death of a component.
    """

    def __init__(
        self,
        config: Config,
        topology: Topology,
        folder: RunFolder,
        *,
        clock: Clock | None = None,
        restarts: bool = True,
    ) -> None:
        self.outcome: Outcome | None = None
        self._config = config
        self._topology = topology
        self._folder = folder
        self._resources: _Resources | None = None
        session = config.session_config
        deadlines = Deadlines(
            session.heartbeat.timeout,
            session.launcher.grace_seconds,
            final_seconds=session.evaluator.final_seconds,
        )
        self._supervision = Supervision(topology, deadlines, restarts=restarts)
        self._restarts = restarts
        self._clock = clock or WallClock()
        self._listen_due = Every(seconds=_LISTEN_SECONDS, clock=self._clock.now)
        # The memory of a trial is the business of its tuning, which knows all trials.
        trial = (config.get("run") or {}).get("trial")
        limit: float = session.launcher.memory_share
        self._memory = None if trial else MemoryGuard(folder.path, limit)
        self._held = HeldMemory()
        self._events: list[Event] = []
        self._locked = False

    def launch(self) -> None:
        """Starts all components and returns at once.

        Raises:
            UsageError: the folder is in use, or an address.
        """
        # A caller that has locked the folder itself also unlocks it.
        self._locked = not self._folder.locked
        self._folder.lock()
        if self._restarts and self._config.session_config.replay.keep != "none":
            self._topology = self._held.give(self._topology)
        try:
            self._resources = self._open()
        except BaseException:
            self._close()
            raise
        self._execute(self._begin(self._clock.now()))

    def _open(self) -> _Resources:
        self._write_files()
        # Bound before any component exists: if an address is in use, nothing was started.
        sockets = ControlSockets(self._config, self._make_wire(), self._clock)
        try:
            return _Resources(self._make_backend(), sockets)
        except BaseException:
            sockets.close()
            raise

    def _write_files(self) -> None:
        """Writes topology, addresses and keys; removes leftovers of an earlier part of the run."""
        folder = self._folder
        before = earlier_addresses(folder)
        addresses = make_addresses(self._topology, self._config, folder)
        if self._config.session_config.launcher.host is not None:
            self._events += _note_move(before, addresses)
        protect(folder, self._config)
        write_run_files(folder, self._topology, addresses)
        forget_beats(folder)
        # A run that was killed leaves its sockets.
        shutil.rmtree(folder.sockets, ignore_errors=True)

    def _make_wire(self) -> Wire:
        """Makes the connections of the supervisor."""
        security = Security.of_run(self._folder.keys, self._config)
        addresses = AddressBook.load(self._folder.addresses)
        return Client(addresses, NAME, config=self._config, security=security)

    @abstractmethod
    def _make_backend(self) -> Backend:
        """Makes the backend that runs the components."""

    def _begin(self, now: float) -> list[Instruction]:
        """Returns the first instructions."""
        return self._supervision.launch(now)

    @property
    def running(self) -> bool:
        """True from the launch until no process is left."""
        return self._resources is not None

    def poll(self, timeout_seconds: float = 0.0) -> list[Event]:
        """Does the pending work; returns the events since the last call.

        Args:
            timeout_seconds: maximum wait if there is nothing to do.
        """
        if self._resources is not None:
            if timeout_seconds:
                self._resources.wait(timeout_seconds)
            self._supervise(self._resources.backend.poll())
            if self._supervision.over:
                self._finish()
        events, self._events = self._events, []
        return events

    def _supervise(self, exits: Sequence[Exit]) -> None:
        """Handles the ends of components, heartbeats and commands, and acts on them."""
        if self._resources is None:
            return
        backend, sockets = self._resources.backend, self._resources.sockets
        restarted, now = backend.manual_restarts(), self._clock.now()
        # Heartbeats before deaths: whether a service has run decides if a restart makes sense.
        if exits or restarted or self._listen_due():
            self._read_heartbeats(backend, now)
        for end in exits:
            self._on_exit(end, self._resources, now)
        for name in restarted:
            self._execute(self._supervision.on_manual_restart(name, now))
        self._look_at_memory(now)
        sockets.serve(self._command)
        sockets.ask_again()
        self._execute(self._supervision.tick(now))
        sockets.flush()

    def _command(self, kind: str, fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Executes the command of a user; returns kind and fields of the reply."""
        if kind == "status":
            return "status", {"components": [asdict(row) for row in self.status()]}
        if kind == "stop":
            self.stop(interrupted=fields["interrupted"], reason=fields["reason"])
        elif kind == "scale":
            self.scale(fields["kind"], fields["num"])
        else:
            self.restart(fields["name"])
        return "noted", {}

    def _look_at_memory(self, now: float) -> None:
        """Warns once if memory becomes scarce; ends the run before the kernel kills a component."""
        found = self._memory.look() if self._memory is not None else None
        if found is not None and found.over:
            self._execute(self._supervision.fail(Failure("memory", found.text), now))
        elif found is not None:
            self._execute([Event("", "memory", found.text)])

    def _on_exit(self, end: Exit, resources: _Resources, now: float) -> None:
        child = self._supervision.children[end.name]
        if end.name == "learner":
            # The next learner must not get the request that was made to this one.
            resources.sockets.forget()
        self._execute(
            self._supervision.on_exit(end.name, end.exit_code, end.error, now, details=end.details)
        )
        # Only one that was scaled down: the other windows of tmux stay, for their last lines.
        if child.state == State.gone and not child.wanted:
            resources.backend.remove(end.name)

    def _read_heartbeats(self, backend: Backend, now: float) -> None:
        """Reads heartbeats; ignores those of earlier processes."""
        for name, beat in read_beats(self._folder.alive).items():
            if name in self._supervision.children and beat.pid == backend.pid(name):
                self._supervision.on_heartbeat(beat, now)

    def _execute(self, instructions: list[Instruction]) -> None:
        if self._resources is None:
            return
        for instruction in instructions:
            match instruction:
                case Start(name):
                    self._resources.backend.start(self._topology.component(name))
                case Signal(name, number):
                    self._resources.backend.signal(name, number)
                case Stop():
                    self._resources.sockets.stop(instruction)
                case Event():
                    self._events.append(instruction)
                    self._resources.sockets.record_event(instruction)

    def scale(self, kind: str, num: int) -> None:
        """Sets the number of agents or evaluators (``agent``, ``eval``) while the run goes on.

        Raises:
            UsageError: there is nothing of that kind to scale, or the run is ending.
        """
        self._execute(self._supervision.scale(kind, num, self._clock.now()))

    def restart(self, name: str) -> None:
        """Ends one component and starts it again; the learner saves its state first.

        Raises:
            UsageError: there is no such component, or the run is ending.
        """
        self._execute(self._supervision.restart(name, self._clock.now()))

    def stop(self, *, interrupted: bool = False, reason: str = "stopped by command") -> None:
        """Begins the clean end of the run and returns at once; :meth:`poll` completes it."""
        if self.running:
            self._execute(
                self._supervision.stop(self._clock.now(), reason=reason, interrupted=interrupted)
            )

    def save(self) -> None:
        """Makes the learner save a checkpoint, and waits for it; at once if the run is over.

        Raises:
            DeadlineError: no checkpoint was written within a minute.
        """
        if self._resources is None:
            return
        # Real time: the clock of a serial run counts rounds.
        sockets, deadline = self._resources.sockets, time.monotonic() + _SAVE_SECONDS
        sockets.save()
        # Events are returned once: those of this wait are kept for the next call of poll().
        events: list[Event] = []
        while self.running and sockets.asking:
            if time.monotonic() > deadline:
                sockets.forget()
                raise DeadlineError(
                    f"run {self._folder} wrote no checkpoint for {_SAVE_SECONDS:g} s: is its disk "
                    "full?"
                )
            events += self.poll(_POLL_SECONDS)
        self._events = events

    def kill(self) -> None:
        """Kills every process and returns when all have ended."""
        deadline = time.monotonic() + _KILL_SECONDS
        if self.running:
            self._supervision.interrupted = True
            self._execute(self._supervision.kill(self._clock.now()))
        events: list[Event] = []
        while self.running and time.monotonic() < deadline:
            events += self.poll(_POLL_SECONDS)
        self._events = events
        # A process that outlives SIGKILL hangs in the kernel, such as on a dead network disk.
        if self.running:
            self._finish()

    def components(self) -> dict[str, dict[str, Any]]:
        """Returns name -> restarts, exit_code, alive_seconds."""
        return self._supervision.report(self._clock.now())

    def status(self) -> list[ComponentStatus]:
        """Returns the table of components."""
        beats, now = read_beats(self._folder.alive), self._clock.now()
        resources = self._resources
        return [
            status_row(
                name,
                beats.get(name),
                state=child.state,
                pid=resources.backend.pid(name) if resources is not None else 0,
                restarts=max(0, child.starts - 1),
                exit_code=child.shown_exit_code,
                loss=child.last_loss(now),
            )
            for name, child in self._supervision.children.items()
        ]

    def logs(self, name: str, lines: int = 50) -> list[str]:
        """Returns the last lines of a component's log and of its standard error.

        Raises:
            UsageError: it has neither.
        """
        return last_lines(self._folder, name, lines)

    def wait(self, timeout_seconds: float | None = None) -> Outcome:
        """Supervises the run until it is over.

        Raises:
            UsageError: the run was never launched.
            DeadlineError: that took longer than ``timeout_seconds``.
        """
        start = time.monotonic()
        events: list[Event] = []
        while self.outcome is None:
            if not self.running:
                raise UsageError("the run was never launched")
            if timeout_seconds is not None and time.monotonic() - start > timeout_seconds:
                raise DeadlineError(f"run {self._folder} goes on after {timeout_seconds:g} s")
            events += self.poll(_POLL_SECONDS)
        self._events = events
        return self.outcome

    def _finish(self) -> None:
        supervision = self._supervision
        # Before the folder is unlocked: commands read the result as soon as it is not in use.
        self.outcome = finish_result(
            self._folder,
            self._config,
            self.components(),
            failure=supervision.failure,
            interrupted=supervision.interrupted,
            reason=supervision.reason,
            real_seconds=self._real_seconds(),
        )
        self._close()

    def _real_seconds(self) -> float | None:
        """Returns the duration of a run whose clock does not measure real time, else None."""
        return None

    def _close(self) -> None:
        """Closes whatever is open."""
        if self._resources is not None:
            self._resources.sockets.close()
            self._resources.backend.close()
        self._resources = None
        self._held.close()
        # Components unlink their own sockets; killed ones do not.
        shutil.rmtree(self._folder.sockets, ignore_errors=True)
        if self._locked:
            self._folder.unlock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Kills the remaining processes of the run."""
        self.kill()
