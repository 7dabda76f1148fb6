"""The frame around every process: start, hello, tick, heartbeat, drain, end."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import suppress

import zmq

from session.clock import Clock
from session.context import Context, Launch, Pause
from session.errors import (
    ConfigError,
    DeadlineError,
    SurrealError,
    UsageError,
    describe,
    may_pass,
)
from session.handshake import ANSWERS, Handshake
from session.periodic import Every
from session.wire.sockets import Socket, poll

_CHORES_SECONDS = 0.05
_FLUSH_SECONDS = 0.2
IDLE_SECONDS = 0.02
_ORPHAN_GRACE_SECONDS = 2.0
# "Try again later": whoever is told to stop before its work is done, and is to be started again.
START_AGAIN = 75


class Service:
    """What one process does; extended by each kind of component.

    A service never blocks: it does a little work in :meth:`tick` and says what to wait for.
    """

    def tick(self) -> bool:
        """Does a little work; True if there may be more to do at once."""
        raise NotImplementedError

    def drain(self) -> None:
        """Asked to end: finish what is open, then be :attr:`done`."""

    @property
    def done(self) -> bool:
        """True when nothing is left to do; the frame then closes the service."""
        return False

    @property
    def ready(self) -> bool:
        """False while it only stays because nobody has ended it: its part in the run is over."""
        return True

    @property
    def doing(self) -> str:
        """What it does, in a few words, where that takes long; shown beside its heartbeat."""
        return ""

    @property
    def proven(self) -> bool:
        """False until it has done some of its work: an error before that would come again."""
        return True

    @property
    def exit_code(self) -> int:
        """With what the process ends once it is done."""
        return 0

    def wait_on(self) -> list[Socket]:
        """Sockets that wake an idle service."""
        return []

    def rest_seconds(self) -> float:
        """How long an idle service sleeps at most while its sockets are silent."""
        return IDLE_SECONDS

    def status(self) -> dict[str, float]:
        """Rates and queue lengths for the heartbeat."""
        return {}

    def close(self) -> None:
        """Gives back what is not a socket of the wire."""


Build = Callable[[Context], Service]


class Frame:
    """One component, stepped from outside: by its own process or by the serial launcher.

    Args:
        launch: what to run.
        build: makes the Service once the parameter server has answered the hello.
        zmq_context: the one context of this process.
        clock: where the component takes its time from.
        incarnation: milliseconds of the wall clock at start; serially, the part of the run.
        pause: called while a request waits for its answer.
    """

    def __init__(
        self,
        launch: Launch,
        build: Build,
        zmq_context: zmq.Context[zmq.Socket[bytes]],
        *,
        clock: Clock,
        incarnation: int,
        pause: Pause = poll,
    ) -> None:
        self.context = Context(
            launch, zmq_context, clock=clock, incarnation=incarnation, pause=pause
        )
        self.state = "starting"
        self._build = build
        self._service: Service | None = None
        self._hello = self._make_hello()
        session = launch.config.session_config
        self._beat_due = Every(seconds=session.heartbeat.interval, clock=clock.now)
        self._flush_due = Every(seconds=_FLUSH_SECONDS, clock=clock.now)
        # Looked at now and then, for a step must cost little.
        self._chores_due = Every(seconds=_CHORES_SECONDS, clock=clock.now)
        self._start_deadline = clock.now() + session.heartbeat.starting_seconds
        self._grace_seconds: float = session.launcher.grace_seconds
        self._drain_deadline = float("inf")
        self._resumes: bool = session.launcher.on_sigterm == "resume"
        self.context.pulse = self._pulse
        if launch.folder is not None:
            launch.folder.make_below()

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
        return self.state == "done"

    @property
    def exit_code(self) -> int:
        """With what the process ends once it is finished."""
        if self._service is not None:
            return self._service.exit_code
        return START_AGAIN if self._resumes else 0

    def step(self) -> bool:
        """One step that never blocks; True if there may be more to do at once."""
        greeted = False
        if self._service is None or self._chores_due():
            greeted = self._do_chores()
        if self._service is None:
            return self._start() or greeted
        if self.context.stopping and self.state == "running":
            self._drain(self._service)
        busy = self._service.tick()
        if self._service.done or self.context.clock.now() > self._drain_deadline:
            self.close()
        return busy or greeted

    def _do_chores(self) -> bool:
        """Heartbeat, telemetry, hello; True if there may be more to say hello to."""
        self._beat_and_flush()
        return self._hello is not None and self._hello.tick()

    def _beat_and_flush(self) -> None:
        if self._beat_due():
            self._beat()
        if self._flush_due():
            self.context.flush()

    def _pulse(self) -> None:
        """Heartbeat and telemetry from inside a long tick; the hello waits for its end."""
        if self._service is not None and self._chores_due():
            self._beat_and_flush()

    def idle(self) -> None:
        """Sleeps until a socket of the service has something, or for a moment; never at the end."""
        if self.finished:
            # Its sockets are closed.
            return
        sockets = self._service.wait_on() if self._service is not None else []
        if self._hello is not None:
            sockets = [*sockets, self._hello.socket]
        poll(sockets, IDLE_SECONDS if self._service is None else self._service.rest_seconds())

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
        self.state = "running"
        context.event("start", f"incarnation {context.incarnation}")
        self._beat()
        return True

    def _drain(self, service: Service) -> None:
        self.state = "draining"
        grace = _ORPHAN_GRACE_SECONDS if self.context.orphaned else self._grace_seconds
        self._drain_deadline = self.context.clock.now() + grace
        self._beat()
        service.drain()

    def _beat(self) -> None:
        context, service = self.context, self._service
        context.ready = service is not None and service.ready
        context.status = service.status() if service is not None else {}
        context.beat(self.state, service.doing if service is not None else "")
        context.tensorplex.heartbeat(self.state, context.incarnation, context.status)

    def close(self) -> None:
        """Closes the service and says goodbye."""
        if self.state in ("done", "failed"):
            return
        if self._service is not None:
            self._service.close()
        self.state = "done"
        self._beat()
        self.context.close()

    def is_hopeless(self, error: BaseException) -> bool:
        """Whether a start of this component would end with the same error again.

        That is so for what its code does wrong at the beginning of its first start; what the
        network, a disk or another process did may be over by then.
        """
        if self._service is None and isinstance(error, ConfigError | UsageError):
            # Its exit code says so already.
            return False
        untried = self._service is None or not self._service.proven
        return untried and self.context.welcome.starts <= 1 and not may_pass(error)

    def fail(self, error: BaseException) -> None:
        """Leaves a note of why the component ends, for the supervisor and the log."""
        line = describe(error)
        self.context.event("failed", line)
        # An error of an environment worker has its traceback there as a note.
        lines = getattr(error, "__notes__", [])
        if not isinstance(error, SurrealError):
            lines = traceback.format_exception(error)
        if lines:
            self.context.log.error("".join(lines))
        self.state = "failed"
        self.context.beat("failed", line)
        self.context.tensorplex.heartbeat("failed", self.context.incarnation, {})
        if self._service is not None:
            # The first error is the one to show: a broken service may not close well either.
            with suppress(Exception):
                self._service.close()
        self.context.close()
