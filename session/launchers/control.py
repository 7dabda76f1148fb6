"""Sockets of a supervisor: commands of users, requests to the learner, events to Loggerplex."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import zmq

from session.config import Config
from session.errors import SurrealError
from session.launchers.control_client import ANSWERS, COMMANDS
from session.launchers.instruction import Event, Stop
from session.launchers.launcher import SUPERVISOR_CONTROL
from session.loggerplex.log_client import make_log
from session.process.clock import Clock
from session.wire import Message, Wire
from session.wire.requests import Call
from session.wire.telemetry_buffer import Channel

NAME = "supervisor"
_REQUESTS_PER_LOOK = 100
_ASK_AGAIN_SECONDS = 1.0
_CLOSE_SECONDS = 0.2

Execute = Callable[[str, dict[str, Any]], tuple[str, dict[str, Any]]]


class ControlSockets:
    """Answers commands, sends requests to the learner and events to Loggerplex.

    Args:
        config: the resolved experiment.
        wire: wire of the supervisor, closed with this; a missing learner or Loggerplex is not used.
        clock: clock of the supervisor.

    Raises:
        UsageError: ``supervisor.control`` cannot be bound.
    """

    def __init__(self, config: Config, wire: Wire, clock: Clock) -> None:
        session, addresses = config.session_config, wire.addresses
        self._wire, self._clock = wire, clock
        try:
            self._router = wire.router(SUPERVISOR_CONTROL, COMMANDS)
        except BaseException:
            self._wire.close(0.0)
            raise
        has_learner = "learner.control" in addresses
        self._learner = self._wire.dealer("learner.control", ANSWERS) if has_learner else None
        # On a machine that has joined, keys are for agents only; there is no learner.
        has_log = has_learner and "loggerplex.records" in addresses
        push = self._wire.push("loggerplex.records", high_water_mark=100) if has_log else None
        self._channel = Channel(push, "loggerplex")
        self._log = make_log(NAME, self._channel, level=session.loggerplex.level, clock=clock)
        self._call: Call | None = None

    def serve(self, execute: Execute) -> None:
        """Replies to the commands that have arrived.

        Args:
            execute: executes a command of a kind with its fields; returns those of the reply.
        """
        for _ in range(_REQUESTS_PER_LOOK):
            if (request := self._router.receive()) is None:
                return
            try:
                answer = execute(request.message.kind, request.message.fields)
            except SurrealError as error:
                self._router.refuse(request, str(error))
            else:
                self._router.reply(request, *answer)

    def stop(self, stop: Stop) -> None:
        """Asks the learner to end the run; :meth:`ask_again` repeats that until it replies."""
        make = partial(Message, "stop", asdict(stop))
        self._call = Call(make, again_seconds=_ASK_AGAIN_SECONDS)

    def save(self) -> None:
        """Asks the learner to save a checkpoint; repeated in the same way."""
        self._call = Call(partial(Message, "save"), again_seconds=_ASK_AGAIN_SECONDS)

    @property
    def asking(self) -> bool:
        """True until the learner has done what it was asked."""
        return self._call is not None

    def forget(self) -> None:
        """Drops the pending request: the learner has ended."""
        self._call = None

    def ask_again(self) -> None:
        """Repeats the pending request when it is due."""
        if self._call is None or self._learner is None:
            return
        answer = self._learner.ask(self._call, self._clock.now())
        # A refused request stays pending.
        if answer is not None and answer.kind != "refused":
            self._call = None

    def record_event(self, event: Event) -> None:
        """Logs an event of the run."""
        words = [word for word in (event.component, event.detail) if word]
        about = {"name": event.component} if event.component else {}
        self._log.event(event.kind, ": ".join(words), **about)

    def flush(self) -> None:
        """Sends buffered events as far as that is possible without waiting."""
        self._channel.flush()

    def wait_on(self) -> list[zmq.Socket[bytes]]:
        """Returns the sockets that are readable when there is something to do."""
        learner = [self._learner.raw] if self._learner is not None else []
        return [self._router.raw, *learner]

    def close(self) -> None:
        """Flushes for a fraction of a second, then closes all sockets."""
        self._channel.close(_CLOSE_SECONDS)
        self._wire.close(_CLOSE_SECONDS)
