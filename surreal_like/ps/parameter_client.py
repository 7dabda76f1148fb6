"""Client of the parameter server: one request in flight, the reply is read later."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from session.process.clock import Clock
from session.wire import Message
from session.wire.requests import Call, DealerSocket, refusal
from surreal_like.data.parameters import Parameters

_ANSWER_SECONDS = 5.0
# On a network that is full an answer takes long; another request would bring a second one. A
# connection that is lost is noticed earlier.
_PARAMETERS_SECONDS = 60.0

Account = Mapping[str, Any]


class Newest(NamedTuple):
    """Description of the newest known publication.

    Args:
        order: ``(learner incarnation, version)``, ``(0, 0)`` before the first.
        info: ``time``, ``iteration``, ``message``, ``hash``, ``env_steps``, ``final``.
        final: True once the learner has reported the end of the run.
    """

    order: tuple[int, int] = (0, 0)
    info: Mapping[str, Any] = MappingProxyType({})
    final: bool = False


class ParameterClient:
    """Fetches parameters; never returns to older ones.

    Args:
        socket: the dealer of ``ps.requests`` for :data:`surreal_like.ps.schemas.ANSWERS`.
        clock: clock for the timeout of a reply.
        policy: name of the policy to fetch.

    Attributes:
        newest: newest known publication.
        have: order of the parameters that were fetched last.
    """

    def __init__(self, socket: DealerSocket, clock: Clock, *, policy: str = "default") -> None:
        self.socket = socket
        self.newest = Newest()
        self.have = (0, 0)
        self._clock = clock
        self._policy = policy
        self._call: Call | None = None
        self._farewell: Call | None = None

    @property
    def waiting(self) -> bool:
        """True while a reply is pending."""
        return self._call is not None

    def ask(self, account: Account | None = None, *, patient: bool = False) -> bool:
        """Requests newer parameters without waiting; returns False if a request is impossible now.

        Args:
            account: account of the sender of experience.
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
        if self._farewell is None:
            make = partial(Message, "leave", {"policy": self._policy, "account": account})
            self._farewell = Call(make, again_seconds=_ANSWER_SECONDS, forget=True)
        return self.socket.ask(self._farewell, self._clock.now()) is not None

    def receive(self) -> Parameters | None:
        """Returns parameters that have arrived, if newer than all before, else None.

        Raises:
            RefusedError: this process has been replaced, or belongs to another run.
        """
        if self._call is None:
            return None
        now = self._clock.now()
        answer = self.socket.ask(self._call, now)
        if answer is None:
            if self._call.given_up(now):
                self._call = None
            return None
        self._call = None
        if answer.kind == "refused":
            raise refusal(answer)
        return self._on_reply(answer)

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
        if self._call is not None:
            return False
        make, now = partial(Message, kind, fields), self._clock.now()
        call = Call(make, give_up_at=now + _PARAMETERS_SECONDS, forget=True)
        if self.socket.post(call, now):
            self._call = call
        return self.waiting

    def _request(
        self, kind: str, fields: dict[str, Any], timeout_seconds: float
    ) -> Parameters | None:
        # Abandons an earlier request: its reply will be ignored.
        self._call = None
        return self._on_reply(self.socket.request(kind, fields, timeout_seconds=timeout_seconds))

    def _on_reply(self, answer: Message) -> Parameters | None:
        fields = answer.fields
        if answer.kind == "parameters":
            return self._on_parameters(Parameters.from_message(answer))
        if answer.kind in ("not_modified", "info"):
            self._on_newest((fields["incarnation"], fields["version"]), fields["info"])
        return None

    def _on_parameters(self, parameters: Parameters) -> Parameters | None:
        if parameters.order <= self.have:
            return None
        self.have = parameters.order
        self._on_newest(parameters.order, parameters.info)
        return parameters.decode_half()

    def _on_newest(self, order: tuple[int, int], info: Mapping[str, Any]) -> None:
        if order >= self.newest.order:
            self.newest = Newest(order, info, bool(info.get("final", False)))
