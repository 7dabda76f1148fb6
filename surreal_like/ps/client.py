"""Client of the parameter server: one request in flight, the reply is read later."""

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
    """Description of the newest known publication.

    Args:
        order: ``(learner incarnation, version)``, ``(0, 0)`` before the first.
        iteration: number of updates of it.
        info: ``time``, ``iteration``, ``message``, ``hash``, ``env_steps``, ``final``.
    """

    order: tuple[int, int] = (0, 0)
    iteration: int = 0
    info: Mapping[str, Any] = MappingProxyType({})

    @property
    def final(self) -> bool:
        """True once the learner has reported the end of the run."""
        return bool(self.info.get("final", False))


class ParameterClient:
    """Fetches parameters; never returns to older ones.

    Args:
        socket: a dealer of ``ps.requests`` for :data:`surreal_like.ps.schemas.ANSWERS`; no other
            code may receive on it.
        clock: for the timeout of a reply.
        policy: name of the policy to fetch.
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
        # The first call of connection_events() starts the monitoring of the connection.
        list(socket.connection_events())

    @property
    def waiting(self) -> bool:
        """True while a reply is pending."""
        return self._waiting_for is not None

    def ask(self, account: Account | None = None, *, patient: bool = False) -> bool:
        """Requests newer parameters without waiting; returns False if a request is impossible now.

        Args:
            account: of the sender of experience.
            patient: the server replies once there are newer parameters; otherwise at once, in any
                case.
        """
        fields = self._fetch_fields(account)
        return self._ask("fetch", {**fields, "patient": True} if patient else fields)

    def ask_info(self, account: Account | None = None) -> bool:
        """Requests the info of the newest parameters; returns False if that is impossible now."""
        part = {} if account is None else {"account": account}
        return self._ask("info", {"policy": self._policy, **part})

    def leave(self, account: Account) -> bool:
        """Sends the final account; call it until it returns True: then it is acknowledged."""
        if False in self.socket.connection_events():
            self._leave_id = None
        if self._leave_id is None and not self._noted:
            self._leave_id = self.socket.send("leave", {"account": account})
        self.receive()
        return self._noted

    def receive(self) -> Parameters | None:
        """Returns parameters that have arrived, if newer than all before, else None.

        Raises:
            RefusedError: this process has been replaced, or belongs to another run.
        """
        # At most one reply is pending: no further request is sent before it.
        answer = self.socket.receive()
        newer = None if answer is None else self._take(answer)
        if self._waiting_for is not None and self._clock.now() >= self._look_at:
            self._look_at += _LOOK_SECONDS
            lost = False in self.socket.connection_events()
            if lost or self._clock.now() >= self._give_up_at:
                self._waiting_for = None
        return newer

    def fetch(self, timeout_seconds: float, account: Account | None = None) -> Parameters | None:
        """Waits for the newest parameters; returns None if there are no newer ones.

        Raises:
            DeadlineError: no reply in time, or this process is stopping.
            RefusedError: this process has been replaced, or belongs to another run.
        """
        return self._request("fetch", self._fetch_fields(account), timeout_seconds)

    def fetch_info(self, timeout_seconds: float) -> Newest:
        """Waits for the info of the newest parameters; raises as :meth:`fetch`."""
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
        # Abandons an earlier request: its reply will be ignored.
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
