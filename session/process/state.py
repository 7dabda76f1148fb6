"""States of a component, for services, supervisors and everything that shows them."""

from __future__ import annotations

from session.config.string_enum import StringEnum


class State(StringEnum):
    """State of a component.

    A service reports the first five of its own process. The others are seen from outside.

    Attributes:
        starting: its service is being built.
        running: it works.
        draining: it was asked to end and completes its work.
        done: it has ended as planned.
        failed: it has ended with an error.
        waiting: its process will be started, or started again.
        gone: its process has ended as planned, or was never wanted.
        dead: its process has ended unexpectedly, and nothing starts it again.
        silent: its process may live, but its heartbeat is late.
    """

    starting = ()
    running = ()
    draining = ()
    done = ()
    failed = ()
    waiting = ()
    gone = ()
    dead = ()
    silent = ()


# Of a process that lives.
ALIVE = (State.starting, State.running, State.draining)
# What a service reports of itself.
REPORTED = (*ALIVE, State.done, State.failed)
# Of a component that the run keeps alive; a draining one is not restarted.
KEPT = (State.waiting, State.starting, State.running)
ENDED = (State.done, State.failed, State.gone, State.dead)
