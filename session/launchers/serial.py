"""The serial launcher: every component is a service in this thread, in a fixed order.

Time is counted: one round of turns is one millisecond. Two runs with the same seed are identical.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import zmq

from session.clock import CountedClock
from session.component import Topology
from session.config import Config
from session.context import Launch, run_part
from session.errors import DeadlineError, UsageError, describe
from session.folder import RunFolder
from session.heartbeat import read_beats
from session.launchers.instruction import Failure, Stop
from session.launchers.launcher import (
    ComponentStatus,
    Outcome,
    finish_result,
    forget_beats,
    last_lines,
    write_run_files,
)
from session.launchers.serial_end import TELEMETRY, Leaving, Owner
from session.launchers.status import status_row
from session.service import Frame
from session.state import State
from session.wire import AddressBook, Identity, Wire
from session.wire.sockets import Socket

# Rounds in which telemetry may flush after an error.
_LAST_ROUNDS = 200


class SerialLauncher:
    """Runs the components of one run in this thread, in turn; exceptions propagate.

    Args:
        config: the resolved experiment.
        topology: its components, in the order of their turns.
        folder: the run folder, made already; it is locked while the run goes on.
        prepare: called once, after the modules of the components have been imported and before
            anything is built, for example to set the number of threads for computation.
        began: start of the command in seconds since 1970; None: now.
    """

    def __init__(
        self,
        config: Config,
        topology: Topology,
        folder: RunFolder,
        *,
        prepare: Callable[[], None] = lambda: None,
        began: float | None = None,
    ) -> None:
        self.outcome: Outcome | None = None
        self._config = config
        self._topology = topology
        self._folder = folder
        self._prepare = prepare
        self._clock = CountedClock()
        self._zmq_context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._frames: list[Frame] = []
        self._stack: list[Frame] = []
        self._broken: Frame | None = None
        self._owner: Owner | None = None
        self._leaving: Leaving | None = None
        self._started_at = 0.0
        # Counts the user's waiting time, including imports and earlier parts of the run.
        before: float = (folder.read_result() or {}).get("real_seconds", 0.0)
        age = 0.0 if began is None else max(0.0, time.time() - began)
        self._began_at = time.monotonic() - age - before
        self._alive_seconds: dict[str, float] = {}
        self._failure: Failure | None = None
        self._interrupted = False
        self._locked = False

    def launch(self) -> None:
        """Makes all components; each builds its service at its first turn.

        Raises:
            UsageError: the folder is in use.
        """
        self._locked = not self._folder.locked
        self._folder.lock()
        try:
            self._open()
        except BaseException:
            self._close()
            raise

    def _open(self) -> None:
        self._folder.find_modules(self._config.session_config.import_path)
        modules = [importlib.import_module(each.module) for each in self._topology]
        self._prepare()
        addresses = AddressBook.inproc(self._topology.endpoints)
        write_run_files(self._folder, self._topology, addresses)
        forget_beats(self._folder)
        # Between sockets of one process ZeroMQ needs no thread.
        self._zmq_context = zmq.Context(0)
        self._started_at = time.monotonic()
        # Differs between parts of a run; otherwise the accounting of two parts would be mixed.
        incarnation = run_part(self._config)
        for component, module in zip(self._topology, modules, strict=True):
            launch = Launch(component, self._config, self._topology, addresses, self._folder)
            self._frames.append(
                Frame(
                    launch,
                    module.build,
                    self._zmq_context,
                    clock=self._clock,
                    incarnation=incarnation,
                    pause=self._pause,
                )
            )
        owner = next((f for f in self._frames if f.context.component.kind == "learner"), None)
        if owner is not None:
            self._owner = Owner(owner, self._wire(addresses, self._zmq_context))
        grace_seconds = self._config.session_config.launcher.grace_seconds
        self._leaving = Leaving(self._frames, grace_seconds)

    def _wire(self, addresses: AddressBook, context: zmq.Context[zmq.Socket[bytes]]) -> Wire:
        fingerprint = bytes.fromhex(self._config.fingerprint()[:16])
        return Wire(context, addresses, Identity("supervisor", 1, fingerprint))

    @property
    def running(self) -> bool:
        """True from the launch until all components have ended."""
        return self._zmq_context is not None

    def step(self) -> bool:
        """Runs one round, one turn per component; returns False once the run is over.

        Raises:
            Exception: whatever a component raises; the run has failed then.
        """
        if self._leaving is None:
            return False
        self._broken = None
        try:
            self._round()
            if self._owner is not None:
                self._owner.tick(self._clock.now())
                if self._owner.frame.finished:
                    self._leaving.tick(self._clock.now())
        except KeyboardInterrupt:
            self._interrupted = True
            self._finish()
            raise
        except BaseException as error:
            self._fail(error)
            raise
        if all(frame.finished for frame in self._frames):
            self._finish()
        return self.running

    def _round(self) -> None:
        self._clock.advance()
        for frame in self._frames:
            # A component that waits for a reply is in its turn already, further down in this stack.
            if not frame.finished and frame not in self._stack:
                self._turn(frame)

    def _turn(self, frame: Frame) -> None:
        self._stack.append(frame)
        try:
            frame.step()
        except (Exception, SystemExit):
            # Keeps the innermost frame: the outer ones only wait for a reply.
            self._broken = self._broken or frame
            raise
        finally:
            self._stack.pop()
        if frame.finished:
            self._alive_seconds[frame.context.name] = time.monotonic() - self._started_at

    def _pause(self, sockets: Sequence[Socket], timeout_seconds: float) -> None:
        """Runs the other components while one waits for a reply."""
        self._round()

    def run(self) -> Outcome:
        """Runs until the run is over.

        Raises:
            Exception: whatever a component raises; the run has failed then.
        """
        while self.step():
            pass
        if self.outcome is None:
            raise UsageError("the run was never launched")
        return self.outcome

    def wait(self, timeout_seconds: float | None = None) -> Outcome:
        """Runs until the run is over, with a deadline.

        Raises:
            DeadlineError: that took longer than ``timeout_seconds``.
        """
        start = time.monotonic()
        while self.step():
            if timeout_seconds is not None and time.monotonic() - start > timeout_seconds:
                raise DeadlineError(f"run {self._folder} goes on after {timeout_seconds:g} s")
        return self.run()

    def stop(self, *, interrupted: bool = False, reason: str = "stopped by command") -> None:
        """Begins the clean end of the run; the following rounds complete it."""
        self._interrupted = interrupted
        if self._owner is not None and self._owner.frame.state == State.running:
            self._owner.ask(Stop(reason, interrupted))
            return
        for frame in self._frames:
            frame.context.ends_run = frame.context.stopping = True

    def kill(self) -> None:
        """Ends the run at once."""
        if self.running:
            self._interrupted = True
            self._finish()

    def scale(self, kind: str, num: int) -> None:
        """Refuses: not possible in one thread.

        Raises:
            UsageError: always.
        """
        raise UsageError("a serial run cannot be scaled: everything runs in one thread")

    def restart(self, name: str) -> None:
        """Refuses: not possible in one thread.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"a serial run cannot restart '{name}': everything runs in one thread")

    def status(self) -> list[ComponentStatus]:
        """Returns the table of components."""
        ends, beats = self.components(), read_beats(self._folder.alive)
        return [
            status_row(
                name,
                beats.get(name),
                state=State.gone if frame.finished else frame.state,
                pid=os.getpid(),
                exit_code=ends[name]["exit_code"],
            )
            for frame in self._frames
            for name in (frame.context.name,)
        ]

    def components(self) -> dict[str, dict[str, Any]]:
        """Returns name -> restarts, exit_code, alive_seconds."""
        failed = self._failure.component if self._failure is not None else ""
        now = time.monotonic()
        return {
            name: {
                "restarts": 0,
                "exit_code": 1 if name == failed else 0 if name in self._alive_seconds else None,
                "alive_seconds": round(self._alive_seconds.get(name, now - self._started_at), 3),
            }
            for name in (frame.context.name for frame in self._frames)
        }

    def logs(self, name: str, lines: int = 50) -> list[str]:
        """Returns the last lines of a component's log.

        Raises:
            UsageError: it has none.
        """
        return last_lines(self._folder, name, lines)

    def _fail(self, error: BaseException) -> None:
        name = "serial"
        if self._broken is not None:
            name = self._broken.context.name
            self._broken.fail(error)
        self._failure = Failure(name, describe(error))
        self._finish()

    def _finish(self) -> None:
        self.outcome = finish_result(
            self._folder,
            self._config,
            self.components(),
            failure=self._failure,
            interrupted=self._interrupted,
            real_seconds=time.monotonic() - self._began_at,
        )
        self._close()

    def _close(self) -> None:
        """Closes whatever is open."""
        self._leaving = None
        # Telemetry is first in the list and closed last: it still writes records of the others.
        for frame in reversed(self._frames):
            # Errors while closing must not hide the first error, and another Ctrl-C must not leave
            # the rest open.
            with suppress(Exception, KeyboardInterrupt):
                self._end(frame)
        if self._owner is not None:
            self._owner.wire.close(0.0)
        if self._zmq_context is not None:
            self._zmq_context.destroy(0)
        self._zmq_context = None
        if self._locked:
            self._folder.unlock()

    def _end(self, frame: Frame) -> None:
        if frame.context.component.kind in TELEMETRY and frame.state != State.failed:
            frame.context.stopping = True
            for _ in range(_LAST_ROUNDS):
                self._clock.advance()
                if frame.finished or not frame.step():
                    break
        frame.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the run if it still runs."""
        self.kill()
