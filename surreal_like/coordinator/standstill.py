"""Detects a run that stands still, and explains which component waits for what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from surreal_like.data.sender import Sender

SECONDS = 30.0

# Status that a component reports in its heartbeat.
Status = Mapping[str, float]

# (environment steps stand still, updates stand still) -> text.
_STANDS = {
    (True, True): "nothing has moved",
    (True, False): "no environment step",
    (False, True): "no update",
}


class Standstill:
    """Schedules reports of a standstill: after 30 s, then after twice the time, and so on.

    Args:
        now: the time [s].
    """

    def __init__(self, now: float) -> None:
        self._numbers: dict[str, int] = {}
        self._since: dict[str, float] = {}
        self._began = now
        self._report_after = SECONDS

    def look(self, now: float, numbers: Mapping[str, int]) -> dict[str, float]:
        """Returns for each number that has stood still for at least 30 s its duration [s].

        Args:
            now: the time [s].
            numbers: counters such as ``env_steps`` and ``updates``.
        """
        for name, number in numbers.items():
            if self._numbers.get(name, 0) != number:
                self._numbers[name], self._since[name] = number, now
        seconds = {name: now - self._since.get(name, self._began) for name in numbers}
        return {name: each for name, each in seconds.items() if each >= SECONDS}

    def due(self, seconds: float | None) -> bool:
        """Returns True if a standstill of this length is to be reported now; None: none."""
        if seconds is None:
            self._report_after = SECONDS
            return False
        if seconds < self._report_after:
            return False
        self._report_after = 2 * seconds
        return True


def reported(
    accounts: Mapping[str, Mapping[str, Any]], counts: Mapping[str, Mapping[str, Any]]
) -> dict[str, Status]:
    """Collects the statuses that agents and replay shards report in messages: component -> status.

    If components share no folder, as on Kubernetes, the learner cannot read their heartbeats.

    Args:
        accounts: agent with incarnation (``agent-0/17...``) -> its account, from the parameter
            server; agents that have left are skipped.
        counts: shard with incarnation -> its newest counts.
    """
    statuses = newest_statuses({**accounts, **counts})
    return {sender.account: status for sender, status in statuses.items()}


def newest_statuses(sources: Mapping[str, Mapping[str, Any]]) -> dict[Sender, Status]:
    """Returns the status of the newest incarnation of each sender that has not left.

    Args:
        sources: sender with incarnation -> its account, or its counts if it is a shard.
    """
    newest: dict[str, tuple[Sender, Status]] = {}
    for key, source in sources.items():
        sender = Sender.parse(key)
        status = None if source.get("final") else source.get("status")
        known = newest.get(sender.account)
        if known is None or sender.incarnation >= known[0].incarnation:
            newest[sender.account] = sender, status or {}
    return {sender: status for sender, status in newest.values() if status}


def explain(stood: Mapping[str, float], statuses: Mapping[str, Status]) -> str | None:
    """Explains in a sentence which component waits for what; None if no part stands still.

    Updates may stop while replay fills up, environment steps while replay waits for the learner.

    Args:
        stood: those of ``env_steps``, ``updates`` and ``inserted`` that stand still -> duration
            [s].
        statuses: component -> its newest status.
    """
    steps, updates = "env_steps" in stood, "updates" in stood
    filling = "inserted" not in stood and any(s.get("needs_rows") for s in statuses.values())
    holding = any(status.get("takes_no_rows") for status in statuses.values())
    if not (steps or updates) or (not steps and filling) or (not updates and holding):
        return None
    agents = _agents(statuses) if steps else ()
    waits = [*agents, *_replays(statuses), *_learner(statuses)]
    waits_for = ", ".join(waits) or "no component says why"
    return f"{_STANDS[steps, updates]} for {shortest(stood):.0f} s: {waits_for}"


def waits_for(statuses: Mapping[str, Status]) -> str:
    """Returns what the learner waits for, by the statuses of all components; empty if unknown."""
    return ", ".join([*_replays(statuses), *_learner(statuses)])


def shortest(stood: Mapping[str, float]) -> float:
    """Returns the duration of the standstill of all of them together [s]."""
    return min(seconds for name, seconds in stood.items() if name != "inserted")


def _agents(statuses: Mapping[str, Status]) -> Iterable[str]:
    agents = {name: status for name, status in statuses.items() if name.startswith("agent-")}
    if not agents:
        yield "no agent has reported"
    reasons: dict[str, list[str]] = {}
    for name, status in agents.items():
        reasons.setdefault(_agent(status), []).append(name)
    for reason, names in reasons.items():
        subject = "agents" if len(names) == len(agents) else " and ".join(names)
        yield f"{subject} {'waits' if len(names) == 1 and subject != 'agents' else 'wait'} {reason}"


def _agent(status: Status) -> str:
    if status.get("waits_for_acks"):
        return "until replay has acknowledged rows"
    if status.get("waits_above_version"):
        return f"for a version above {status['waits_above_version']:.0f}"
    if not status.get("version"):
        return "for the first parameters"
    return "for environments, which are slow or stand"


def _replays(statuses: Mapping[str, Status]) -> Iterable[str]:
    for name, status in statuses.items():
        if not name.startswith("replay-"):
            continue
        if status.get("needs_rows"):
            needs, has = status["needs_rows"], status.get("has_rows", 0.0)
            yield f"learner waits for rows of {name} (needs {needs:.0f}, has {has:.0f})"
        elif status.get("requests_waiting"):
            yield f"learner waits for {name}, which gives no batch yet"
        if status.get("takes_no_rows"):
            yield f"{name} takes no rows until the learner has sampled more"


def _learner(statuses: Mapping[str, Status]) -> Iterable[str]:
    if statuses.get("learner", {}).get("batches_waiting"):
        yield "learner has batches and makes no update of them"
