"""Agents, learners and replays of a script before they are connected to their run."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from session.config import Config
from session.folder import RunFolder
from session.loggerplex.client import Log
from session.process.clock import WallClock
from session.process.context import Context, Launch
from session.tensorplex.client import TensorplexClient
from session.wire.contexts import make_context
from session.wire.sockets import poll

_PARTS_KEPT = 64
_PLEXES = ("tensorplex", "loggerplex")


def is_planned(session_config: Config) -> bool:
    """True if there is a run folder, with the addresses of a run."""
    folder = session_config.folder
    # Not Path.exists, which raises an error for a name that is too long.
    return folder is not None and os.path.exists(RunFolder(folder).addresses)


@dataclass(frozen=True, slots=True)
class Part:
    """An agent, a learner or a replay with early records.

    Args:
        session_config: its ``folder`` is that of the run.
        kind: kind of component.
        index: number of the component.
        log: log from ``early_log``.
        metrics: client from ``TensorplexClient.early``.
    """

    session_config: Config
    kind: str
    index: int
    log: Log
    metrics: TensorplexClient

    def joins(self, context: Context) -> bool:
        """True if its records go by this context; a replay has another one, in its thread."""
        folder = RunFolder(self.session_config.folder).path
        same = context.folder is not None and context.folder.path == folder
        return same and self.kind != "replay"

    def join(self, context: Context) -> None:
        """Sends its records by a context, the later ones, too."""
        self.log.join(context.log)
        self.metrics.join(context.metrics(self.metrics.client_id))

    def send(self, launch: Launch) -> None:
        """Sends its records with a deadline, without being admitted to the run."""
        if any(each.connect.startswith("inproc://") for each in launch.addresses.values()):
            return
        waiting = self.log.buffered + self.metrics.buffered
        # Without the folder: the heartbeat there is that of another process, if there is one.
        keys = RunFolder(self.session_config.folder).keys
        launch = replace(launch, folder=None, keys=keys if keys.exists() else None)
        zmq_context = make_context()
        try:
            incarnation = time.time_ns() // 1_000_000
            context = Context(
                launch, zmq_context, clock=WallClock(), incarnation=incarnation, pause=poll
            )
            self.join(context)
            context.close()
            lost = sum(context.channel(plex).dropped for plex in _PLEXES)
        finally:
            zmq_context.destroy(0)
        if lost:
            sys.stderr.write(
                f"{launch.component.name}: {lost} of {waiting} records were lost: its run's "
                "servers do not answer\n"
            )


class Parts:
    """Parts of this process that have not been connected; the oldest of too many are forgotten.

    Attributes:
        open: False while the library makes some that belong to no run.
    """

    def __init__(self) -> None:
        self.open = True
        self._parts: deque[Part] = deque(maxlen=_PARTS_KEPT)

    def add(self, part: Part) -> None:
        """Keeps a part until it is connected."""
        self._parts.append(part)

    def join(self, context: Context) -> None:
        """Sends the records of all parts of the run of a context."""
        for part in [part for part in self._parts if part.joins(context)]:
            self._parts.remove(part)
            part.join(context)

    def send(self, make_launch: Callable[[Config, str, int], Launch]) -> None:
        """Sends the records of all parts that nothing has connected, each with a deadline."""
        while self._parts:
            part = self._parts.popleft()
            if part.log.buffered + part.metrics.buffered and is_planned(part.session_config):
                part.send(make_launch(part.session_config, part.kind, part.index))
