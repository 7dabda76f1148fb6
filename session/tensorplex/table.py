"""The component table, built from heartbeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from session.process.state import State
from session.wire import Identity

_ENDED = (State.done, State.failed)


@dataclass(slots=True)
class _Row:
    state: State
    incarnation: int
    beat_at: float
    pid: int
    rss_bytes: int
    status: dict[str, float]


class ComponentTable:
    """Last heartbeat of every component, and its age by the server's clock.

    Args:
        timeout_seconds: a component without a heartbeat is ``silent`` after this time [s].
        starting_seconds: the same for a starting component [s].
    """

    def __init__(self, *, timeout_seconds: float, starting_seconds: float) -> None:
        self._rows: dict[str, _Row] = {}
        self._patience_seconds = {State.starting: max(starting_seconds, timeout_seconds)}
        self._timeout_seconds = timeout_seconds

    def beat(self, sender: Identity, beat: Mapping[str, Any], now: float) -> None:
        """Stores one heartbeat; ignores it if a newer incarnation is known.

        Args:
            sender: identity of the sender.
            beat: the record.
            now: arrival time by the server's own clock [s], because clocks of machines differ.
        """
        row = _Row(
            state=State(beat["state"]),
            incarnation=beat["incarnation"],
            beat_at=now,
            pid=beat["pid"],
            rss_bytes=beat["rss_bytes"],
            status={key: float(value) for key, value in beat["status"].items()},
        )
        known = self._rows.get(sender.name)
        if known is None or known.incarnation <= row.incarnation:
            self._rows[sender.name] = row

    def rows(self, now: float) -> list[dict[str, Any]]:
        """Returns the table as plain data, sorted by name.

        Each row has ``name``, ``state``, ``incarnation``, ``age_seconds`` since its heartbeat,
        ``rss_bytes``, ``pid`` and ``status``. The state of a silent component is ``silent``, unless
        its last state was ``done`` or ``failed``.
        """
        return [self._plain(name, self._rows[name], now) for name in sorted(self._rows)]

    def _plain(self, name: str, row: _Row, now: float) -> dict[str, Any]:
        age_seconds = now - row.beat_at
        patience = self._patience_seconds.get(row.state, self._timeout_seconds)
        silent = row.state not in _ENDED and age_seconds > patience
        return {
            "name": name,
            "state": State.silent if silent else row.state,
            "incarnation": row.incarnation,
            "age_seconds": age_seconds,
            "rss_bytes": row.rss_bytes,
            "pid": row.pid,
            "status": dict(row.status),
        }
