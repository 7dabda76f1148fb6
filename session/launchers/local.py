"""The local launcher: every component a supervised process of this machine."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import zmq

from session.component import Topology
from session.config import Config
from session.errors import DeadlineError
from session.folder import RunFolder
from session.heartbeat import read_beats
from session.launchers.child import Limits
from session.launchers.control import ControlSockets
from session.launchers.instruction import Ask, Happening, Instruction, Signal, Start
from session.launchers.launcher import (
    ComponentStatus,
    Outcome,
    finish_result,
    forget_beats,
    last_lines,
    make_addresses,
    write_run_files,
)
from session.launchers.processes import Processes
from session.launchers.supervision import Phase, Supervision
from session.launchers.zygote import Zygote
from session.periodic import Every

_LISTEN_SECONDS = 0.2
_POLL_SECONDS = 0.05
_KILL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Machinery:
    """What a launcher holds while its run goes on."""

    processes: Processes
    sockets: ControlSockets

    def wait(self, timeout_seconds: float) -> None:
        """Sleeps until a process ends or a message comes, at most so long."""
        poller = zmq.Poller()
        for each in (*self.processes.wait_on(), *self.sockets.wait_on()):
            poller.register(each, zmq.POLLIN)
        poller.poll(round(timeout_seconds * 1000))


class LocalLauncher:
    """Starts the components of one run as processes, and keeps them alive until it is over.

    Whoever makes it calls :meth:`poll` often: everything is done there.

    Args:
        config: the resolved experiment.
        topology: its components.
        folder: the run folder, made already; it is locked while the run goes on.
        preload: modules that the zygote imports before it forks.
        zygote: one that was started earlier; this launcher closes it.
    """

    def __init__(
        self,
        config: Config,
        topology: Topology,
        folder: RunFolder,
        *,
        preload: Sequence[str] = (),
        zygote: Zygote | None = None,
    ) -> None:
        self.outcome: Outcome | None = None
        self._config = config
        self._topology = topology
        self._folder = folder
        self._preload = preload
        self._zygote = zygote
        self._machinery: _Machinery | None = None
        session = config.session_config
        limits = Limits(
            session.heartbeat.starting_seconds,
            session.heartbeat.timeout,
            session.launcher.grace_seconds,
        )
        self._supervision = Supervision(topology, limits)
        self._listen_due = Every(seconds=_LISTEN_SECONDS, clock=time.monotonic)
        self._happenings: list[Happening] = []
        self._locked = False

    def launch(self) -> None:
        """Starts all components and returns.

        Raises:
            UsageError: the folder is in use, or an address.
        """
        self._locked = not self._folder.locked
        self._folder.lock()
        try:
            self._machinery = self._open()
        except BaseException:
            self._close()
            raise
        self._obey(self._supervision.launch(time.monotonic()))

    def _open(self) -> _Machinery:
        folder, session = self._folder, self._config.session_config
        addresses = make_addresses(self._topology, session.launcher.transport, folder)
        write_run_files(folder, self._topology, addresses)
        forget_beats(folder)
        # What lies there was left by a run that was killed.
        shutil.rmtree(folder.sockets, ignore_errors=True)
        self._zygote = self._zygote or Zygote.start(self._preload)
        self._zygote.remove_at_end(str(folder.sockets))
        sockets = ControlSockets(self._config, addresses)
        return _Machinery(Processes(folder, self._zygote), sockets)

    @property
    def running(self) -> bool:
        """True from the launch until nobody is left."""
        return self._machinery is not None

    def poll(self, timeout_seconds: float = 0.0) -> list[Happening]:
        """Does what is to be done; returns what has happened since the last call.

        Args:
            timeout_seconds: how long to wait if there is nothing to do.
        """
        if self._machinery is not None:
            self._machinery.wait(timeout_seconds)
            self._step(self._machinery)
        happenings, self._happenings = self._happenings, []
        return happenings

    def _step(self, machinery: _Machinery) -> None:
        processes, sockets, supervision = machinery.processes, machinery.sockets, self._supervision
        processes.keep_warm = supervision.phase is Phase.running
        exits = processes.poll()
        if exits or self._listen_due():
            self._listen(processes)
        now = time.monotonic()
        for end in exits:
            if supervision.children[end.name].component.kind == "learner":
                sockets.forget()
            self._obey(
                supervision.exited(end.name, end.exit_code, end.error, now, details=end.details)
            )
        sockets.serve(self)
        if (kind := sockets.answered()) is not None:
            self._obey(supervision.answered(kind, now))
        self._obey(supervision.tick(now))
        sockets.flush()
        if supervision.over:
            self._finish()

    def _listen(self, processes: Processes) -> None:
        """Hears the beats, but not those of processes that went before."""
        now = time.monotonic()
        for name, beat in read_beats(self._folder.alive).items():
            if name in self._supervision.children and beat.pid == processes.pid(name):
                self._supervision.hear(beat, now)

    def _obey(self, instructions: list[Instruction]) -> None:
        if self._machinery is None:
            return
        for instruction in instructions:
            match instruction:
                case Start(name):
                    self._machinery.processes.start(self._topology.component(name))
                case Signal(name, number):
                    self._machinery.processes.signal(name, number)
                case Ask():
                    self._machinery.sockets.ask(instruction)
                case Happening():
                    self._happenings.append(instruction)
                    self._machinery.sockets.tell(instruction)

    def scale(self, kind: str, num: int) -> None:
        """Makes it so many agents or evaluators (``agent``, ``eval``) while the run goes on.

        Raises:
            UsageError: there is nothing of that kind to scale, or the run is ending.
        """
        self._obey(self._supervision.scale(kind, num, time.monotonic()))

    def restart(self, name: str) -> None:
        """Ends one component and starts it again; the learner saves itself first.

        Raises:
            UsageError: there is no such component, or the run is ending.
        """
        self._obey(self._supervision.restart(name, time.monotonic()))

    def stop(self, *, interrupted: bool = False, reason: str = "stopped by command") -> None:
        """Begins the clean end of the run and returns; :meth:`poll` brings it about."""
        if self.running:
            self._obey(
                self._supervision.stop(time.monotonic(), reason=reason, interrupted=interrupted)
            )

    def kill(self) -> None:
        """Ends every process at once and returns when they are gone."""
        deadline = time.monotonic() + _KILL_SECONDS
        if self.running:
            self._supervision.interrupted = True
            self._obey(self._supervision.kill(time.monotonic()))
        happenings: list[Happening] = []
        while self.running and time.monotonic() < deadline:
            happenings += self.poll(_POLL_SECONDS)
        self._happenings = happenings
        if self.running:
            self._finish()

    def components(self) -> dict[str, dict[str, Any]]:
        """Name -> restarts, exit_code, alive_seconds."""
        return self._supervision.report(time.monotonic())

    def status(self) -> list[ComponentStatus]:
        """The table of components."""
        beats = read_beats(self._folder.alive)
        machinery = self._machinery
        return [
            ComponentStatus(
                name=name,
                state=child.state,
                pid=machinery.processes.pid(name) if machinery is not None else 0,
                age_seconds=beats[name].age_seconds if name in beats else None,
                restarts=max(0, child.starts - 1),
                exit_code=child.exit_code,
                doing=beats[name].doing if name in beats else "",
            )
            for name, child in self._supervision.children.items()
        ]

    def logs(self, name: str, lines: int = 50) -> list[str]:
        """The last lines of a component's log and of its standard error.

        Raises:
            UsageError: it has left neither.
        """
        return last_lines(self._folder, name, lines)

    def wait(self, timeout_seconds: float | None = None) -> Outcome:
        """Runs until the run is over.

        Raises:
            DeadlineError: that took longer than ``timeout_seconds``.
        """
        start = time.monotonic()
        happenings: list[Happening] = []
        while self.outcome is None:
            if timeout_seconds is not None and time.monotonic() - start > timeout_seconds:
                raise DeadlineError(f"run {self._folder} goes on after {timeout_seconds:g} s")
            happenings += self.poll(_POLL_SECONDS)
        self._happenings = happenings
        return self.outcome

    def _finish(self) -> None:
        supervision = self._supervision
        self.outcome = finish_result(
            self._folder,
            self._config,
            self.components(),
            failure=supervision.failure,
            interrupted=supervision.interrupted,
        )
        self._close()

    def _close(self) -> None:
        """Leaves nothing behind, whatever was open."""
        if self._machinery is not None:
            self._machinery.processes.close()
            self._machinery.sockets.close()
        elif self._zygote is not None:
            self._zygote.close()
        self._machinery = self._zygote = None
        shutil.rmtree(self._folder.sockets, ignore_errors=True)
        if self._locked:
            self._folder.unlock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kills whatever is left of the run."""
        self.kill()
        if self._zygote is not None:
            self._zygote.close()
