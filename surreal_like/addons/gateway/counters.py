"""Counters of a gateway: times, numbers that clients report, and bounded lines of log."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from session.line_limit import LineLimit
from surreal_like.addons.gateway.messages import METRIC_NAMES, Metrics, Request
from surreal_like.addons.gateway.payloads import Refusal
from surreal_like.addons.gateway.sessions import Session

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
        latency: Times from a complete request to its answer, in seconds.
        think: Times from an answer to the next request of the same session, in seconds.
        batch: Number of requests that are answered together.
        queue: Time of a request before its batch begins, in seconds.
        inference: Time of one batch, in seconds.
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
        cut: Episodes with recorded rows that their clients did not end.
        refused: Messages that were refused.
        resumed: Sessions that went on over another connection.
        unrecorded: Environment steps whose rows were not recorded, because replay took none.
        steps: Environment steps, since the user of the counters has set it to 0.
        ended: Episodes that have ended, likewise.
        times: Times of requests and batches.
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
# Names of curves of clients, and of numbers of their episodes, since the start of a gateway.
# Tensorplex takes 2,000 of a component: its own ones need room, too.
_CURVES, _EPISODE_NAMES = 1000, 256
# Place of the numbers of all sessions that have no curves of their own.
_OTHERS = "other"


class ClientCurves:
    """Keeps the newest number of each name until it is reported; bounds the names."""

    def __init__(self) -> None:
        self._values: dict[str, float] = {}
        self._curves: set[str] = set()
        self._of_others: set[str] = set()
        self._of_episodes: set[str] = set()

    def add(self, session: Session, message: Metrics) -> bool:
        """Adds the numbers of a session.

        Returns:
            False if there are too many curves already: then they count for those of all others.

        Raises:
            Refusal: a session has too many names.
        """
        session.names.update(message.values)
        if len(session.names) > METRIC_NAMES:
            session.names.difference_update(message.values)
            raise Refusal("bad_metric", f"values: more than {METRIC_NAMES} names in this session")
        session.round_trip_seconds = message.values.get(_ROUND_TRIP, session.round_trip_seconds)
        shown = True
        for name, value in message.values.items():
            curve = f"client/{session.curve}/{name}"
            if not _has_room(self._curves, curve, _CURVES):
                shown, curve = False, f"client/{_OTHERS}/{name}"
                if not _has_room(self._of_others, curve, METRIC_NAMES):
                    continue
            self._values[curve] = value
        return shown

    def check_episode(self, request: Request) -> None:
        """Raises a Refusal for numbers of an episode whose names are too many of all clients."""
        for name in request.info["metrics"][0]:
            if not _has_room(self._of_episodes, name, _EPISODE_NAMES):
                raise Refusal(
                    "bad_metric",
                    f"metrics: {name} is new, and clients of this gateway have used "
                    f"{_EPISODE_NAMES} names of numbers of episodes already",
                    request.seq,
                )

    def pop(self) -> dict[str, float]:
        """Returns the numbers since the last call, the newest of each name."""
        values, self._values = self._values, {}
        return values


def _has_room(names: set[str], name: str, most: int) -> bool:
    """Adds a name unless there are so many others; returns True if it is there."""
    if name not in names and len(names) < most:
        names.add(name)
    return name in names


# Sessions of one address that are named when they begin, and when they end, in a minute.
_SESSIONS = 60


class EventLog(Protocol):
    """Log that gets the events and warnings of sessions."""

    def event(self, kind: str, detail: str = "") -> None:
        """Records an event."""

    def warning(self, msg: object, /) -> None:
        """Records a warning."""


class ClientLog:
    """Reports what clients do and why they are refused; what a stranger can cause is bounded.

    Args:
        log: Log that gets the events and warnings.
        now: Function that returns the time in seconds.
    """

    def __init__(self, log: EventLog, now: Callable[[], float]) -> None:
        self._log = log
        self._refusals = LineLimit(now)
        self._sessions = LineLimit(now, lines=_SESSIONS)

    def on_refused(self, address: str, reason: str) -> None:
        """Reports a refusal: one line in a minute for each address and kind of reason.

        Args:
            address: Address of the client.
            reason: Kind of the reason; a colon and details may follow.
        """
        more = self._refusals.admit(address, reason.partition(":")[0])
        if more is not None:
            self._log.event("client_refused", f"{address}: {reason}{more}")

    def on_joined(self, address: str, name: str) -> None:
        """Reports that a session has begun."""
        self._session("client_joined", address, f"{name} from {address}")

    def on_left(self, address: str, text: str) -> None:
        """Reports that a session has ended."""
        self._session("client_left", address, text)

    def _session(self, kind: str, address: str, text: str) -> None:
        more = self._sessions.admit(address, kind)
        if more is not None:
            self._log.event(kind, f"{text}{more}")

    def on_defect(self, error: Exception) -> None:
        """Reports a defect of this program with its traceback, each place once a minute."""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        more = self._refusals.admit("", f"{frame.filename}:{frame.lineno}")
        if more is not None:
            self._log.warning("".join(traceback.format_exception(error)) + more)
