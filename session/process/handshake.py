"""Handshake of a component with the parameter server; never blocks."""

from __future__ import annotations

from dataclasses import dataclass

from session.process.clock import Clock
from session.wire import PROTOCOL_VERSION, Message
from session.wire.requests import Call, DealerSocket, refusal
from session.wire.schema import Count, Flag, Incarnation, Name, Optional, Row, Schema, Text

HELLO = Schema(
    {
        "protocol": Count(),
        "name": Name(),
        # Half the range: the server may assign a higher incarnation if a node's clock is slow.
        "incarnation": Incarnation(1 << 52),
        "fingerprint": Text(128),
        "spec_hash": Text(64),
        "fresh": Flag(),
        "starts": Optional(Count()),
    },
    any_run=True,
)
ANSWERS = {
    "welcome": Schema(
        {
            "starts": Count(),
            "incarnation": Incarnation(),
            "version": Row(Incarnation(), Count()),
            "iteration": Count(),
        }
    )
}
_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Accepted:
    """The parameter server's answer.

    Args:
        starts: number of starts under this name, this one included.
        incarnation: the one to use; above the own one if the node's clock is slow.
        version: newest published ``(learner incarnation, version)``, ``(0, 0)`` before the first.
        iteration: number of updates in the newest parameters.
    """

    starts: int = 1
    incarnation: int = 1
    version: tuple[int, int] = (0, 0)
    iteration: int = 0


class Handshake:
    """Sends a hello at start and after each reconnection; repeats it until it is answered.

    Args:
        socket: the dealer of ``ps.requests`` for :data:`ANSWERS`.
        clock: times the repetition of an unanswered hello.
        name: component name.
        incarnation: incarnation of this process.
        fingerprint: full fingerprint of the experiment.
        spec_hash: hash of the observation and action specs.
    """

    def __init__(
        self,
        socket: DealerSocket,
        clock: Clock,
        *,
        name: str,
        incarnation: int,
        fingerprint: str,
        spec_hash: str,
    ) -> None:
        self.socket = socket
        self.welcome: Accepted | None = None
        self._clock = clock
        self._fields = {
            "protocol": PROTOCOL_VERSION,
            "name": name,
            "incarnation": incarnation,
            "fingerprint": fingerprint,
            "spec_hash": spec_hash,
        }
        # After a lost connection the server may be a new process without this component's hello.
        self._call = Call(self._hello, again_seconds=_RETRY_SECONDS, forget=True)

    def tick(self) -> bool:
        """Does one step; True if the answer came.

        Raises:
            RefusedError: a newer process has this name.
            AdmissionError: protocol, fingerprint or specs differ.
        """
        answer = self.socket.ask(self._call, self._clock.now())
        if answer is not None and answer.kind == "refused":
            raise refusal(answer)
        if answer is None or answer.kind != "welcome":
            return False
        fields = answer.fields
        incarnation, version = fields["version"]
        self.welcome = Accepted(
            fields["starts"], fields["incarnation"], (incarnation, version), fields["iteration"]
        )
        self._fields["incarnation"] = self.welcome.incarnation
        # Sent in later hellos: restores the count of starts in a restarted parameter server.
        self._fields["starts"] = self.welcome.starts
        self._call.rest()
        return True

    def _hello(self) -> Message:
        return Message("hello", {**self._fields, "fresh": self.welcome is None})
