"""Counters of a gateway: sessions, errors and rows that were not recorded, since its start."""

from __future__ import annotations

from dataclasses import dataclass, field

from surreal_like.gateway.latency import Times


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
