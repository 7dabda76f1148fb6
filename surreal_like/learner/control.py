"""The learner's control endpoint: evaluations and commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.errors import SurrealError
from session.wire.requests import Request, RouterSocket

Flat = npt.NDArray[np.uint8]


class Control:
    """Answers ``learner.control``.

    Args:
        socket: the router.
        evaluated: takes an evaluation and the parameters that played it, or None; returns what
            is answered.
        save: writes a checkpoint, returns its path.
        stop: ends the run for a reason; the second argument says if it was interrupted.
        status: where the run stands.
    """

    def __init__(
        self,
        socket: RouterSocket,
        *,
        evaluated: Callable[[Mapping[str, Any], Flat | None], dict[str, Any]],
        save: Callable[[], str],
        stop: Callable[[str, bool], None],
        status: Callable[[], dict[str, Any]],
    ) -> None:
        self.socket = socket
        self.paused = False
        self._evaluated = evaluated
        self._save = save
        self._stop = stop
        self._status = status

    def tick(self) -> bool:
        """Answers what has come; True if something had."""
        request = self.socket.receive()
        if request is None:
            return False
        try:
            self._answer(request)
        except SurrealError as error:
            self.socket.refuse(request, str(error))
        except (KeyError, TypeError, ValueError) as error:
            self.socket.refuse(request, f"'{request.message.kind}' with wrong fields: {error!r}")
        return True

    def _answer(self, request: Request) -> None:
        kind, fields = request.message.kind, request.message.fields
        reply = self.socket.reply
        if kind == "evaluated":
            flat = request.message.arrays.get("flat")
            reply(request, "noted", self._evaluated(fields, flat))
        elif kind == "save":
            reply(request, "saved", {"path": self._save()})
        elif kind == "stop":
            self._stop(str(fields["reason"]), bool(fields["interrupted"]))
            reply(request, "stopping")
        elif kind in ("pause", "resume"):
            self.paused = kind == "pause"
            reply(request, "noted")
        elif kind == "status":
            reply(request, "status", self._status())
        else:
            self.socket.refuse(request, f"the learner knows no '{kind}'")
