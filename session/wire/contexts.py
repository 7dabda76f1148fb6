"""ZeroMQ contexts, and the exit handler of a process, which ends what uses them.

libzmq reads the memory of a large frame without a copy, in a thread of its own, until the frame is
sent. pyzmq's collector keeps that memory alive, and is ended by an exit handler of pyzmq. A context
that outlives the collector reads freed memory: the process ends with SIGSEGV or SIGABRT.

Python calls exit handlers in the reverse order of their registration. pyzmq registers its own at
the first large frame, and ``weakref`` its own at the first finalizer, such as that of shared
memory. This module causes both registrations at import, before its own: so its handler is the first
of the three. It is the only exit handler of the package, and the only place that makes contexts.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import weakref
from collections.abc import Callable

import zmq
from zmq.utils import garbage

Close = Callable[[], object]


class _Exit:
    """The exit handler of this process."""

    def __init__(self) -> None:
        self._closing: list[Close] = []
        self._contexts: weakref.WeakSet[zmq.Context[zmq.Socket[bytes]]] = weakref.WeakSet()
        weakref.finalize(self, int).detach()
        atexit.register(self.run)
        os.register_at_fork(after_in_child=self._forget)

    def add_context(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._contexts.add(context)

    def add(self, close: Close) -> None:
        self._closing.append(close)

    def remove(self, close: Close) -> None:
        if close in self._closing:
            self._closing.remove(close)

    def run(self) -> None:
        """Calls all, the newest first; an error of one keeps no other from it."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # Each has its deadlines; one that is interrupted would leave its context open.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        while self._closing:
            try:
                self._closing.pop()()
            except BaseException:  # noqa: BLE001 - shown; the process is at its end
                sys.excepthook(*sys.exc_info())
        if any(not context.closed for context in self._contexts):
            # Another thread uses it to the last moment: the memory of its frames must stay.
            atexit.unregister(garbage.gc._atexit)

    def _forget(self) -> None:
        """Leaves to the parent what it has opened: a forked child has no thread that serves it."""
        self._closing.clear()
        self._contexts.clear()


_EXIT = _Exit()


def make_context(io_threads: int = 1) -> zmq.Context[zmq.Socket[bytes]]:
    """Makes a ZeroMQ context; its owner calls ``destroy`` once its sockets are closed."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads)
    _EXIT.add_context(context)
    return context


def close_at_exit(close: Close) -> None:
    """Calls ``close`` at the end of this process, before those registered earlier."""
    _EXIT.add(close)


def cancel_close_at_exit(close: Close) -> None:
    """Undoes :func:`close_at_exit`; does nothing if it was called or never registered."""
    _EXIT.remove(close)
