"""The serial launcher: every component is a service in this thread, in a fixed order.

Time is counted: one round of turns is one millisecond. Two runs with the same seed are identical,
also with the same faults: components can be killed, stopped, restarted and scaled between rounds.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress

import zmq

from session.addons import telemetry_kinds
from session.config import Config
from session.errors import SurrealError, UsageError, describe
from session.folder import RunFolder
from session.launchers.backend import Backend, Exit
from session.launchers.control import NAME
from session.launchers.instruction import Event, exit_error
from session.launchers.launcher import SUPERVISOR_CONTROL, forget_beats, write_run_files
from session.launchers.supervisor import Supervisor
from session.process.clock import CountedClock
from session.process.component import Component, Topology
from session.process.context import Context, Launch, run_part
from session.process.heartbeat import State, read_beats
from session.process.periodic import Every
from session.process.service import Frame, seeded
from session.wire import AddressBook, Identity, Wire
from session.wire.contexts import make_context
from session.wire.one_way_sockets import Socket

# Between two looks of the supervisor while no component ends; each costs as much as many turns.
_LOOK_SECONDS = 0.05
# Rounds in which telemetry may flush after an error.
_LAST_ROUNDS = 200


class SerialLauncher(Supervisor):
    """Runs the components of one run in this thread, in turn.

    Args:
        config: the resolved experiment.
        topology: components, in the order of their turns.
        folder: the run folder, made already; it is locked while the run goes on.
        prepare: called once, after the modules of the components have been imported and before
            anything is built, for example to set the number of threads for computation.
        began: start of the command in seconds since 1970; None: now.
        restarts: True starts components that died again, by their restart rule; else the first
            error ends the run, for debugging.
    """

    def __init__(
        self,
        config: Config,
        topology: Topology,
        folder: RunFolder,
        *,
        prepare: Callable[[], None] = lambda: None,
        began: float | None = None,
        restarts: bool = False,
    ) -> None:
        self._counted = CountedClock()
        super().__init__(config, topology, folder, clock=self._counted, restarts=restarts)
        self._look_due = Every(seconds=_LOOK_SECONDS, clock=self._counted.now)
        self._prepare = prepare
        self._frames: Frames | None = None
        # Counts the user's waiting time, including imports and earlier parts of the run.
        before: float = (folder.read_result() or {}).get("real_seconds") or 0.0
        age = 0.0 if began is None else max(0.0, time.time() - began)
        self._began_at = time.monotonic() - age - before

    @property
    def frames(self) -> Frames:
        """The components.

        Raises:
            UsageError: the run was never launched.
        """
        if self._frames is None:
            raise UsageError("the run was never launched")
        return self._frames

    def _write_files(self) -> None:
        self._folder.find_modules(self._config.session_config.import_path)
        for component in self._topology:
            component.load()
        self._prepare()
        addresses = AddressBook.inproc((*self._topology.endpoints, SUPERVISOR_CONTROL))
        write_run_files(self._folder, self._topology, addresses)
        self._frames = Frames(
            self._config, self._topology, addresses, self._folder, self._counted, self._supervise
        )
        forget_beats(self._folder)

    def _make_wire(self) -> Wire:
        return self.frames.make_wire(NAME)

    def _make_backend(self) -> Frames:
        return self.frames

    def poll(self, timeout_seconds: float = 0.0) -> list[Event]:
        """Runs rounds for that time, at least one; returns the events since the last call."""
        until = time.monotonic() + timeout_seconds
        try:
            events = super().poll()
            while self.running and time.monotonic() < until:
                events += super().poll()
        except KeyboardInterrupt:
            self.kill()
            raise
        return events

    def _supervise(self, exits: Sequence[Exit]) -> None:
        if exits or self._look_due():
            super()._supervise(exits)

    def kill(self) -> None:
        """Ends the run at once: closes all components."""
        if self.running:
            self._supervision.interrupted = True
            # First, because the learner writes its counts, which the result keeps.
            self.frames.close_components()
            self._finish()

    def _real_seconds(self) -> float:
        return time.monotonic() - self._began_at


class Frames(Backend):
    """Backend whose processes are frames of this thread; signals act like those of a process.

    Args:
        config: the resolved experiment.
        topology: components of the run and their wiring.
        addresses: addresses of their endpoints, within this process.
        folder: the run folder.
        clock: counts the rounds.
        supervise: function called instead of the supervisor's poll while a component waits.
    """

    def __init__(
        self,
        config: Config,
        topology: Topology,
        addresses: AddressBook,
        folder: RunFolder,
        clock: CountedClock,
        supervise: Callable[[Sequence[Exit]], None],
    ) -> None:
        self._config, self._topology = config, topology
        self._addresses, self._folder, self._clock = addresses, folder, clock
        self._supervise = supervise
        # Between sockets of one process ZeroMQ needs no thread.
        self._zmq_context: zmq.Context[zmq.Socket[bytes]] = make_context(0)
        # None: it has ended; one that is started again keeps its turn.
        self._frames: dict[str, Frame | None] = {}
        # Component -> its bound sockets if it has ended; others connect anew at its next start.
        self._retired: defaultdict[str, dict[str, zmq.Socket[bytes]]] = defaultdict(dict)
        self._wires: list[Wire] = []
        self._stack: list[Frame] = []
        self._stopped: set[str] = set()
        self._doomed: list[Frame] = []
        self._exits: list[Exit] = []
        # An incarnation is above all earlier ones of its name, also of earlier parts of the run.
        self._incarnations = {n: beat.incarnation for n, beat in read_beats(folder.alive).items()}

    def living(self) -> list[Frame]:
        """Returns the frames that have not ended, in the order of their turns."""
        return [frame for frame in self._frames.values() if frame is not None]

    def make_wire(self, name: str) -> Wire:
        """Makes the wire of a sender that is no component."""
        fingerprint = bytes.fromhex(self._config.fingerprint()[:16])
        wire = Wire(self._zmq_context, self._addresses, Identity(name, 1, fingerprint))
        wire.retired = self._retired[name]
        self._wires.append(wire)
        return wire

    def pid(self, name: str) -> int:
        """Returns the id of this process, 0 for a component that has ended."""
        return os.getpid() if self._frames.get(name) is not None else 0

    def start(self, component: Component) -> None:
        """Makes a component; it builds its service at its first turn."""
        name = component.name
        # Otherwise the heartbeat of the ended one would count for this one.
        (self._folder.alive / name).unlink(missing_ok=True)
        retired = self._retired.pop(name, {})
        for wire in (*self._wires, *(frame.context.wire for frame in self.living())):
            wire.reconnect(retired)
        for raw in retired.values():
            raw.close(0)
        launch = Launch(component, self._config, self._topology, self._addresses, self._folder)
        earlier = self._incarnations.get(name, 0)
        context = Context(
            launch,
            self._zmq_context,
            clock=self._clock,
            incarnation=max(run_part(self._config), 0 if component.sends else earlier + 1),
            pause=self._pause,
        )
        frame = Frame(context, seeded(component.load().build))
        context.wire.retired = self._retired[name]
        self._frames[name] = frame

    def signal(self, name: str, number: int) -> None:
        """Asks a component to end (SIGTERM, SIGINT), ends it, or stops and continues its turns."""
        frame = self._frames.get(name)
        if frame is None:
            return
        if number == signal.SIGSTOP:
            self._stopped.add(name)
        elif number == signal.SIGCONT:
            self._stopped.discard(name)
        elif number == signal.SIGKILL and frame not in self._stack:
            self._kill(frame)
        else:
            if number == signal.SIGKILL:
                # It waits for a reply, further down in this stack: ends the wait.
                self._doomed.append(frame)
            frame.context.on_signal(number)

    def wait_on(self) -> list[int]:
        """Returns nothing: a round never waits."""
        return []

    def poll(self) -> list[Exit]:
        """Runs one round, a turn of each component; returns the components that ended."""
        self._clock.advance()
        for frame in list(self._frames.values()):
            # A component that waits for a reply is in its turn already, further down in this stack.
            if frame is None or frame in self._stack or frame.context.name in self._stopped:
                continue
            # It may have been killed in the wait of another one.
            if self._frames[frame.context.name] is frame:
                self._turn(frame)
        exits, self._exits = self._exits, []
        return exits

    def _turn(self, frame: Frame) -> None:
        self._stack.append(frame)
        try:
            frame.step()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the run must get every error
            if frame not in self._doomed:
                self._fail(frame, error)
        finally:
            self._stack.pop()
        if frame in self._doomed:
            self._doomed.remove(frame)
            self._kill(frame)
        elif frame.finished:
            self._end(frame, frame.exit_code)

    def _pause(self, sockets: Sequence[Socket], timeout_seconds: float) -> None:
        """Runs the other components while one waits for a reply."""
        self._supervise(self.poll())

    def _fail(self, frame: Frame, error: BaseException) -> None:
        surreal = isinstance(error, SurrealError)
        details = str(error) if surreal else traceback.format_exc().strip()
        self._end(frame, frame.fail(error), describe(error), details)

    def _kill(self, frame: Frame) -> None:
        frame.kill()
        self._end(frame, -signal.SIGKILL)

    def _end(self, frame: Frame, code: int, error: str = "", details: str = "") -> None:
        name = frame.context.name
        self._frames[name] = None
        self._incarnations[name] = frame.context.incarnation
        self._stopped.discard(name)
        self._exits.append(Exit(name, code, error or exit_error(code), details))

    def close(self) -> None:
        """Closes the remaining components, and what they share."""
        self.close_components()
        self._zmq_context.destroy(0)

    def close_components(self) -> None:
        """Closes the remaining components."""
        # Telemetry is first in the list and closed last: it still writes records of the others.
        for frame in reversed(self.living()):
            # Errors while closing must not hide the first error, and another Ctrl-C must not leave
            # the rest open.
            with suppress(Exception, KeyboardInterrupt):
                self._close(frame)

    def _close(self, frame: Frame) -> None:
        if frame.context.component.kind in telemetry_kinds() and frame.state != State.failed:
            frame.context.stopping = True
            for _ in range(_LAST_ROUNDS):
                self._clock.advance()
                if frame.finished or not frame.step():
                    break
        frame.close()
