"""Life cycle of every process: start, handshake, tick, heartbeat, drain, quiet period, end."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress

from session.errors import (
    HOPELESS,
    START_AGAIN,
    ConfigError,
    DeadlineError,
    SurrealError,
    UsageError,
    describe,
    may_pass,
)
from session.process.context import Context
from session.process.handshake import ANSWERS, Handshake
from session.process.heartbeat import State, beat_interval, starting_seconds
from session.process.periodic import Every
from session.process.seeding import build_seeded
from session.wire.socket_state import Pollable, poll

_CHORES_SECONDS = 0.5
IDLE_SECONDS = 0.02
_ORPHAN_GRACE_SECONDS = 2.0

_DRAINED_SECONDS = 0.3
_SILENT_SECONDS = 2.0
_LOOK_SECONDS = 1.0


class QuietPeriod:
    """Decides the end of a server that has clients.

    After :meth:`drain`: once no message has come for 0.3 s. By itself, if ``at_end`` is ``exit``:
    once the run is over and no message has come for 2 s.

    Args:
        context: context of the process.

    Attributes:
        draining: True from :meth:`drain` on.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._look_due = Every(seconds=_LOOK_SECONDS, clock=context.clock.now)
        self.draining = False
        self._over = False
        self._last_message = context.clock.now()

    def on_message(self, *, outlives: bool = False) -> None:
        """Restarts the period; before :meth:`drain` not for senders that may outlive the server."""
        if self.draining or not outlives:
            self._last_message = self._context.clock.now()

    def drain(self) -> None:
        """Begins the end; messages in transit still have 0.3 s to arrive."""
        self.draining = True
        self.on_message()

    @property
    def done(self) -> bool:
        """True when no more messages are expected."""
        if self.draining:
            return self._context.clock.now() - self._last_message >= _DRAINED_SECONDS
        return self._context.may_exit and self.silent and self.run_over

    @property
    def silent(self) -> bool:
        """True if no message has come for 2 s."""
        return self._context.clock.now() - self._last_message >= _SILENT_SECONDS

    @property
    def run_over(self) -> bool:
        """True once the result of the run is final; looked at once a second, or by :meth:`look`."""
        if not self._over and self._look_due():
            self.look()
        return self._over

    def look(self) -> None:
        """Looks at the result of the run now."""
        self._over = self._context.run_over


class Service:
    """Work of one process; base class of each kind of component.

    A service never blocks: :meth:`tick` does a little work, :meth:`wait_on` names its sockets.
    """

    def tick(self) -> bool:
        """Does a little work; True if more may be ready at once."""
        raise NotImplementedError

    def drain(self) -> None:
        """Begins the shutdown: finishes open work, then sets :attr:`done`."""

    @property
    def done(self) -> bool:
        """True when no work is left; the frame then closes the service."""
        return False

    @property
    def ready(self) -> bool:
        """False while the service idles although its work for the run is over."""
        return True

    @property
    def doing(self) -> str:
        """Short description of a long operation, shown beside the heartbeat."""
        return ""

    @property
    def proven(self) -> bool:
        """False until some work has succeeded; an earlier error is taken as permanent."""
        return True

    @property
    def exit_code(self) -> int:
        """Exit code of the process once it is done."""
        return 0

    def wait_on(self) -> Sequence[Pollable]:
        """Sockets that wake an idle service."""
        return []

    def rest_seconds(self) -> float:
        """Maximum sleep of an idle service while its sockets are silent [s]."""
        return IDLE_SECONDS

    def status(self) -> dict[str, float]:
        """Rates and queue lengths for the heartbeat."""
        return {}

    def close(self) -> None:
        """Releases all resources except the sockets of the wire."""


Build = Callable[[Context], Service]


def seeded(build: Build) -> Build:
    """Returns a `build` that seeds the global generators of its process with the context's seed.

    For launchers; a script, which is the process of its author, seeds its own generators.
    """
    return lambda context: build_seeded(context.seed, lambda: build(context))


class Frame:
    """Runs one component step by step, for its own process or the serial launcher.

    Args:
        context: context of the component.
        build: makes the Service once the parameter server has answered the hello.
    """

    def __init__(self, context: Context, build: Build) -> None:
        self.context = context
        self.state = State.starting
        self._build = build
        clock = context.clock
        self._service: Service | None = None
        self._hello = self._make_hello()
        session = context.config.session_config
        interval = beat_interval(session.heartbeat.timeout)
        self._beat_due = Every(seconds=interval, clock=clock.now)
        # Chores are periodic because a step must be cheap.
        self._chores_due = Every(seconds=min(_CHORES_SECONDS, interval), clock=clock.now)
        # Its own deadline: a process that was started by hand has no supervisor with one.
        self._start_deadline = clock.now() + starting_seconds(session.heartbeat.timeout)
        self._grace_seconds: float = session.launcher.grace_seconds
        self._drain_deadline = float("inf")
        self._idle_seconds = 0.0
        self._now = clock.now
        # Looks after the process, with each heartbeat; set by its entry.
        self.watch: Callable[[], object] = lambda: None
        self.context.pulse = self._pulse
        if context.folder is not None:
            context.folder.make_below()

    def _make_hello(self) -> Handshake | None:
        context = self.context
        if "ps.requests" not in context.component.connects:
            return None
        return Handshake(
            context.wire.dealer("ps.requests", ANSWERS),
            context.clock,
            name=context.name,
            incarnation=context.incarnation,
            fingerprint=context.fingerprint,
            spec_hash=context.spec_hash,
        )

    @property
    def finished(self) -> bool:
        """True once the service is done and closed."""
        return self.state == State.done

    @property
    def exit_code(self) -> int:
        """Exit code of the process once it is finished."""
        code = self._service.exit_code if self._service is not None else 0
        leaves = self.context.leaves and not self.context.run_over
        return code or (START_AGAIN if leaves else 0)

    def step(self) -> bool:
        """Does one step without blocking; True if more may be ready at once."""
        greeted, service, due = False, self._service, self._chores_due
        if service is None or (self._now() >= due.at and due()):
            greeted = self._do_chores()
        if service is None:
            return self._start() or greeted
        # Once: a second signal must not extend the grace period.
        if self.context.stopping and self.state is State.running:
            self._drain(service)
        busy = service.tick()
        late = self.state is State.draining and self._now() > self._drain_deadline
        if late or service.done:
            self.close()
        return busy or greeted

    def _do_chores(self) -> bool:
        """Sends heartbeat and telemetry, advances the handshake; True if the handshake did work."""
        self._beat_and_flush()
        return self._hello is not None and self._hello.tick()

    def _beat_and_flush(self) -> None:
        self.watch()
        if self._beat_due():
            self._beat()
        self.context.flush()

    def _pulse(self) -> None:
        """Sends heartbeat and telemetry during a long tick; the handshake waits for its end."""
        if self._service is not None and self._chores_due():
            self._beat_and_flush()

    def idle(self) -> None:
        """Sleeps until a socket can be read, at most `rest_seconds`; not when finished."""
        if self.finished:
            # Its sockets are closed.
            return
        sockets = self._service.wait_on() if self._service is not None else []
        if self._hello is not None and self._hello.socket not in sockets:
            sockets = [*sockets, self._hello.socket]
        began = self.context.clock.now()
        poll(sockets, IDLE_SECONDS if self._service is None else self._service.rest_seconds())
        self._idle_seconds += self.context.clock.now() - began

    def _start(self) -> bool:
        context = self.context
        if context.stopping:
            self.close()
            return False
        if self._hello is not None:
            if self._hello.welcome is None:
                if context.clock.now() > self._start_deadline:
                    raise DeadlineError("the parameter server did not answer the hello in time")
                return False
            context.accept(self._hello.welcome)
        self._service = self._build(context)
        self.state = State.running
        context.event("start", f"incarnation {context.incarnation}")
        self._beat()
        return True

    def _drain(self, service: Service) -> None:
        self.state = State.draining
        # Shorter than the time after which the fork server kills orphans.
        grace = _ORPHAN_GRACE_SECONDS if self.context.orphaned else self._grace_seconds
        self._drain_deadline = self.context.clock.now() + grace
        self._beat()
        service.drain()

    def _beat(self) -> None:
        context, service = self.context, self._service
        context.ready = service is not None and service.ready
        context.status = service.status() if service is not None else {}
        context.status["idle_seconds"] = self._idle_seconds
        context.beat(self.state, service.doing if service is not None else "")
        context.tensorplex.heartbeat(self.state, context.incarnation, context.status)

    def close(self) -> None:
        """Closes the service, sends a last heartbeat and closes the sockets."""
        if self.state in (State.done, State.failed):
            return
        if self._service is not None:
            self._service.close()
        self.state = State.done
        self._beat()
        self.context.close()

    def kill(self) -> None:
        """Ends it within a process that goes on, like SIGKILL: it sends nothing any more."""
        self.context.wire.close(0.0)
        if self._service is not None:
            # Releases environments and files; a service that sends as it closes fails.
            with suppress(Exception):
                self._service.close()

    def is_hopeless(self, error: BaseException) -> bool:
        """True if a restart of this component would end with the same error.

        That holds for errors of its code at the beginning of its first start. Causes such as the
        network, a disk or another process may be gone at a restart.
        """
        if self._service is None and isinstance(error, ConfigError | UsageError):
            # The exit code of these errors already means that a restart is useless.
            return False
        untried = self._service is None or not self._service.proven
        return untried and self.context.welcome.starts <= 1 and not may_pass(error)

    def fail(self, error: BaseException) -> int:
        """Reports the failure to the supervisor and the log, closes everything.

        Returns:
            The exit code of the process.
        """
        code = error.exit_code if isinstance(error, SurrealError) else 1
        # With this code the supervisor fails the run at once, instead of repeating the error.
        code = HOPELESS if self.is_hopeless(error) else code
        line = describe(error)
        self.context.event("failed", line)
        # An error of an environment worker holds the worker's traceback as a note.
        lines = getattr(error, "__notes__", [])
        if not isinstance(error, SurrealError):
            lines = traceback.format_exception(error)
        if lines:
            self.context.log.error("".join(lines))
        self.state = State.failed
        self.context.beat(State.failed, line)
        self.context.tensorplex.heartbeat(State.failed, self.context.incarnation, {})
        if self._service is not None:
            # Suppressed: only the first error matters; a broken service may fail to close.
            with suppress(Exception):
                self._service.close()
        self.context.close()
        return code
