"""Counters of a gateway, times between two reports, and numbers that clients report."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from surreal_like.gateway.messages import METRIC_NAMES, Metrics, Refusal
from surreal_like.gateway.sessions import Member

# Of more times, the newest are used.
_KEPT = 4096


class Quantiles:
    """The newest times since the last report, in seconds.

    ``add`` adds one, ``extend`` several.
    """

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_KEPT)
        # Of the queue itself: each request passes here.
        self.add, self.extend = self._seconds.append, self._seconds.extend

    def pop(self, *shares: float) -> list[float]:
        """Returns the quantiles of these shares, nearest rank, and forgets all times.

        Returns nothing if there is no time.
        """
        ordered = sorted(self._seconds)
        self._seconds.clear()
        count = len(ordered)
        return [ordered[min(count - 1, int(share * count))] for share in shares] if ordered else []


class Mean:
    """A mean since the last report."""

    def __init__(self) -> None:
        self._total, self._count = 0.0, 0

    def add(self, value: float, count: int = 1) -> None:
        """Adds values by their sum and their number."""
        self._total += value
        self._count += count

    def pop(self) -> float | None:
        """Returns the mean and begins anew; None without values."""
        mean = self._total / self._count if self._count else None
        self._total, self._count = 0.0, 0
        return mean


class Times:
    """Latencies and counts of the requests of a gateway.

    Attributes:
        latency: from a complete request to its answer, in seconds.
        think: from an answer to the next request of the same session, in seconds.
        batch: requests that are answered together.
        queue: time of a request before its batch begins, in seconds.
        inference: time of one batch, in seconds.
    """

    def __init__(self) -> None:
        self.latency, self.think = Quantiles(), Quantiles()
        self.batch, self.queue, self.inference = Mean(), Mean(), Mean()

    def pop(self) -> dict[str, float]:
        """Returns the metrics since the last report; those without values are left out."""
        latency, think = self.latency.pop(0.5, 0.99), self.think.pop(0.5)
        values = dict(zip(("latency_p50_seconds", "latency_p99_seconds"), latency, strict=False))
        values |= dict(zip(("think_p50_seconds",), think, strict=False))
        means = {
            "batch": self.batch.pop(),
            "queue_seconds": self.queue.pop(),
            "inference_seconds": self.inference.pop(),
        }
        return values | {name: mean for name, mean in means.items() if mean is not None}


@dataclass(slots=True)
class Counters:
    """Counters of a gateway, shared by its parts.

    Args:
        cut: episodes that their clients did not end.
        refused: messages that were refused.
        resumed: sessions that went on over another connection.
        unrecorded: environment steps whose rows were not recorded, because replay took none.
        steps: environment steps, since the user of the counters has set it to 0.
        ended: episodes that have ended, likewise.
        times: of requests and batches.
    """

    cut: int = 0
    refused: int = 0
    resumed: int = 0
    unrecorded: int = 0
    steps: int = 0
    ended: int = 0
    times: Times = field(default_factory=Times)


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
