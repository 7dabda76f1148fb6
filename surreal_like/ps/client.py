"""The asking side of the parameter server: one request in flight, its answer taken later."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from session.clock import Clock
from session.wire import Message
from session.wire.requests import DealerSocket, refusal
from surreal_like.data.parameters import Parameters

_ANSWER_SECONDS = 5.0
_LOOK_SECONDS = 0.2

Account = Mapping[str, Any]


class Newest(NamedTuple):
    """What is known of the newest publication.

    Args:
        order: ``(learner incarnation, version)``, ``(0, 0)`` before the first.
        iteration: updates that it has had.
        info: ``time``, ``iteration``, ``message``, ``hash``, ``env_steps``, ``final``.
    """

    order: tuple[int, int] = (0, 0)
    iteration: int = 0
    info: Mapping[str, Any] = MappingProxyType({})

    @property
    def final(self) -> bool:
        """True once the learner says that the run is over."""
        return bool(self.info.get("final", False))


class ParameterClient:
    """Fetches parameters; never steps back.

    Args:
        socket: a dealer of ``ps.requests`` for :data:`surreal_like.ps.schemas.ANSWERS`; nobody else
            may receive on it.
        clock: for giving up on an answer.
        policy: whose parameters.
    """

    def __init__(self, socket: DealerSocket, clock: Clock, *, policy: str = "default") -> None:
        self.socket = socket
        self.newest = Newest()
        self.have = (0, 0)
        self._clock = clock
        self._policy = policy
        self._waiting_for: int | None = None
        self._look_at = self._give_up_at = 0.0
        self._leave_id: int | None = None
        self._noted = False
        # The first call begins to watch the connection.
        list(socket.connection_events())

    @property
    def waiting(self) -> bool:
        """True while an answer is on its way."""
        return self._waiting_for is not None

    def ask(self, account: Account | None = None, *, patient: bool = False) -> bool:
        """Asks for newer parameters without waiting; False if that cannot be asked now.

        Args:
            account: of the sender of experience.
            patient: the answer comes when there are newer ones; else at once, whether or not.
        """
        fields = self._fetch_fields(account)
        return self._ask("fetch", {**fields, "patient": True} if patient else fields)

    def ask_info(self, account: Account | None = None) -> bool:
        """Asks what the newest parameters are; False if that cannot be asked now."""
        told = {} if account is None else {"account": account}
        return self._ask("info", {"policy": self._policy, **told})

    def leave(self, account: Account) -> bool:
        """Leaves the final account; call it until it is True: then it has been noted."""
        if False in self.socket.connection_events():
            self._leave_id = None
        if self._leave_id is None and not self._noted:
            self._leave_id = self.socket.send("leave", {"account": account})
        self.receive()
        return self._noted

    def receive(self) -> Parameters | None:
        """The parameters that have come, if they are newer than all that came before.

        Raises:
            RefusedError: this process has been replaced, or belongs to another run.
        """
        # One at a time: nobody asks again before it has come.
        answer = self.socket.receive()
        newer = None if answer is None else self._take(answer)
        if self._waiting_for is not None and self._clock.now() >= self._look_at:
            self._look_at += _LOOK_SECONDS
            lost = False in self.socket.connection_events()
            if lost or self._clock.now() >= self._give_up_at:
                self._waiting_for = None
        return newer

    def fetch(self, timeout_seconds: float, account: Account | None = None) -> Parameters | None:
        """Waits for the newest parameters; None if there are none that are newer.

        Raises:
            DeadlineError: no answer in time, or this process is stopping.
            RefusedError: this process has been replaced, or belongs to another run.
        """
        return self._request("fetch", self._fetch_fields(account), timeout_seconds)

    def fetch_info(self, timeout_seconds: float) -> Newest:
        """Waits to hear what the newest parameters are; raises as :meth:`fetch`."""
        self._request("info", {"policy": self._policy}, timeout_seconds)
        return self.newest

    def _fetch_fields(self, account: Account | None) -> dict[str, Any]:
        fields: dict[str, Any] = {"policy": self._policy, "have": self.have}
        if account is not None:
            fields["account"] = account
        return fields

    def _ask(self, kind: str, fields: dict[str, Any]) -> bool:
        if self._waiting_for is not None:
            return False
        self._waiting_for = self.socket.send(kind, fields)
        now = self._clock.now()
        self._look_at, self._give_up_at = now + _LOOK_SECONDS, now + _ANSWER_SECONDS
        return self._waiting_for is not None

    def _request(
        self, kind: str, fields: dict[str, Any], timeout_seconds: float
    ) -> Parameters | None:
        # What was asked before is thrown away with its answer.
        self._waiting_for = None
        answer = self.socket.request(kind, fields, timeout_seconds=timeout_seconds)
        self._waiting_for = answer.fields["id"]
        return self._take(answer)

    def _take(self, answer: Message) -> Parameters | None:
        fields = answer.fields
        if fields["id"] == self._leave_id:
            self._noted = True
            return None
        if fields["id"] != self._waiting_for:
            return None
        self._waiting_for = None
        if answer.kind == "refused":
            raise refusal(answer)
        if answer.kind == "parameters":
            return self._take_parameters(Parameters.from_message(answer))
        if answer.kind in ("not_modified", "info"):
            order = (fields["incarnation"], fields["version"])
            self._note(Newest(order, fields["iteration"], fields["info"]))
        return None

    def _take_parameters(self, parameters: Parameters) -> Parameters | None:
        if parameters.order <= self.have:
            return None
        self.have = parameters.order
        self._note(Newest(parameters.order, parameters.iteration, parameters.info))
        return parameters

    def _note(self, newest: Newest) -> None:
        if newest.order >= self.newest.order:
            self.newest = newest
