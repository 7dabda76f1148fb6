"""Numbers that clients report, for curves of their own."""

from __future__ import annotations

from surreal_like.gateway.messages import METRIC_NAMES, Metrics, Refusal
from surreal_like.gateway.sessions import Member

# Of a client that measures its own round trips.
_ROUND_TRIP = "latency_p50_seconds"


class ClientCurves:
    """Keeps the newest number of each name until it is reported."""

    def __init__(self) -> None:
        self._values: dict[str, float] = {}

    def add(self, member: Member, message: Metrics) -> None:
        """Adds the numbers of a session.

        Raises:
            Refusal: a session has too many names.
        """
        member.names.update(message.values)
        if len(member.names) > METRIC_NAMES:
            member.names.difference_update(message.values)
            raise Refusal("bad_metric", f"values: more than {METRIC_NAMES} names in this session")
        member.round_trip_seconds = message.values.get(_ROUND_TRIP, member.round_trip_seconds)
        for name, value in message.values.items():
            self._values[f"client/{member.name}/{name}"] = value

    def pop(self) -> dict[str, float]:
        """Returns the numbers since the last call, the newest of each name."""
        values, self._values = self._values, {}
        return values
