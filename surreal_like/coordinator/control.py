"""The learner's control endpoint: evaluations and commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from session.errors import RunError, SurrealError
from session.launchers.control_client import STOP
from session.wire.requests import Request, RouterSocket
from session.wire.schema import (
    ArrayOf,
    Count,
    Flag,
    Incarnation,
    Kinds,
    MapOf,
    Name,
    Number,
    OneOf,
    Optional,
    Row,
    Schema,
)
from surreal_like.agent.evaluation import BY_CLIENTS

_POLICIES = 1000
_RETURNS = ("mean_return", "std_return", "min_return", "max_return")

Flats = Mapping[str, npt.NDArray[np.uint8]]


def requests(flat_bytes: Mapping[str, int], modes: Sequence[str]) -> Kinds:
    """Returns the schema of each kind of message to ``learner.control``.

    Args:
        flat_bytes: array of an evaluation -> size in bytes of the parameters that it may hold.
        modes: modes of the run's evaluators.
    """
    return {
        "evaluated": Schema(
            {
                **dict.fromkeys(_RETURNS, Number()),
                "mean_length": Number(0.0),
                "seconds": Number(0.0),
                "episodes": Count(1),
                "version": Count(),
                "incarnation": Incarnation(),
                "iteration": Count(),
                "env_steps": Count(),
                "confirm": Flag(),
                "mode": OneOf(*modes, BY_CLIENTS),
                "policies": Optional(MapOf(Name(), Number(), _POLICIES)),
                # Version and iteration of each other policy that played.
                "versions": Optional(MapOf(Name(), Row(Count(), Count()), _POLICIES)),
            },
            {
                name: ArrayOf("uint8", shape=(size,), optional=True)
                for name, size in flat_bytes.items()
            },
        ),
        "stop": STOP,
        **dict.fromkeys(("pause", "resume", "save", "status"), Schema()),
    }


class Control:
    """Replies to requests at ``learner.control``.

    Args:
        socket: the router of :func:`requests`.
        evaluated: called with an evaluation and the evaluated parameters, as far as it holds
            them; returns the fields of the reply.
        stop: ends the run; called with reason and status.
        save: saves a checkpoint; None if the disk failed.
        status: returns the state of the run.
    """

    def __init__(
        self,
        socket: RouterSocket,
        *,
        evaluated: Callable[[Mapping[str, Any], Flats], dict[str, Any]],
        stop: Callable[[str, str], None],
        save: Callable[[], Path | None],
        status: Callable[[], dict[str, Any]],
    ) -> None:
        self.socket = socket
        self.paused = False
        self._evaluated = evaluated
        self._stop = stop
        self._save = save
        self._status = status

    def tick(self) -> bool:
        """Replies to one request; returns True if there was one."""
        request = self.socket.receive()
        if request is None:
            return False
        try:
            self._answer(request)
        except SurrealError as error:
            self.socket.refuse(request, str(error))
        return True

    def _answer(self, request: Request) -> None:
        kind, fields = request.message.kind, request.message.fields
        reply = self.socket.reply
        if kind == "evaluated":
            reply(request, "noted", self._evaluated(fields, request.message.arrays))
        elif kind == "stop":
            ended = "interrupted" if fields["interrupted"] else "stopped"
            self._stop(fields["reason"], "failed" if fields.get("failed") else ended)
            reply(request, "stopping")
        elif kind in ("pause", "resume"):
            self.paused = kind == "pause"
            reply(request, "noted")
        elif kind == "save":
            if self._save() is None:
                raise RunError("no checkpoint could be written: see events.jsonl of the run")
            reply(request, "noted")
        else:
            reply(request, "status", self._status())
