"""Advice on the number of agents or gateways of a run: pure functions of its numbers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise, takewhile
from math import fsum
from typing import NamedTuple

from session.show.text import percent

# The wanted number changes at most once in this time, unless agents come or go [s].
HOLD_SECONDS = 30.0
# More agents: the learner has waited for more than this share of so many seconds.
LEARNER_WAITS, LEARNER_SECONDS = 0.2, 30.0
# Fewer agents: senders have waited for replay for more than this share of so many seconds.
SENDERS_WAIT, SENDERS_SECONDS = 0.5, 60.0
# One more gateway: places are free for fewer than this share of the clients.
FREE = 0.1


class Advice(NamedTuple):
    """A wanted number, the numbers behind it in words, and the time of its last change [s]."""

    number: int
    reason: str
    since: float


class Load(NamedTuple):
    """One look at a run that learns: its time [s], the number of agents then, and two shares.

    They are of the time since the look before: that in which the learner had no batch, and that in
    which replay took no rows. A program that starts machines gives its own wanted number of agents.
    """

    at: float
    agents: int
    learner_waits: float
    senders_wait: float


def want_agents(loads: Sequence[Load], now: float, last: Advice | None = None) -> Advice:
    """Returns the wanted number of agents, changed in proportion to what lacks, by one at least.

    Where the learner waits for half of the time, twice as many agents keep it busy. Where senders
    wait for half of the time, half of the agents suffice; half of the others stay as a reserve.
    Only looks since the number of agents has changed count: a change takes effect before the next.

    Args:
        loads: looks at the run, at least one, the oldest first; older ones than 2 minutes may go.
        now: the present time, on the clock of ``loads`` [s].
        last: the previous advice.
    """
    agents = loads[-1].agents
    same = list(takewhile(lambda load: load.agents == agents, reversed(loads)))[::-1]
    if len(same) == 1:
        # The agents that have just come or gone are what is wanted now.
        last = None
    learner = _mean([(each.at, each.learner_waits) for each in same], now - LEARNER_SECONDS)
    senders = _mean([(each.at, each.senders_wait) for each in same], now - SENDERS_SECONDS)
    waits = learner if learner is not None and learner > LEARNER_WAITS else 0.0
    idle = senders if senders is not None and senders > SENDERS_WAIT else 0.0
    wanted = agents
    if waits and not idle:
        wanted += max(1, round(agents * min(1.0, waits / max(1.0 - waits, 1e-9))))
    elif idle and not waits:
        wanted = max(1, agents - max(1, int(agents * idle / 2)))
    reason = f"learner waits {percent(learner)}, agents wait {percent(senders)}"
    return _hold(wanted, reason, now, last)


def _mean(looks: Sequence[tuple[float, float]], begin: float) -> float | None:
    """Returns the mean share from ``begin`` on; None if the looks do not reach so far back."""
    spans = [
        (until - max(since, begin), share)
        for (since, _), (until, share) in pairwise(looks)
        if until > begin
    ]
    if looks[0][0] > begin or not spans:
        return None
    return fsum(span * share for span, share in spans) / fsum(span for span, _ in spans)


def want_gateways(
    sessions: Collection[float], places: int, now: float, last: Advice | None = None
) -> Advice | None:
    """Returns the wanted number of gateways, by the sessions of each and the most places of one."""
    clients = sum(sessions)
    free = len(sessions) * places - clients
    reason = f"{clients:.0f} clients, {free:.0f} places free"
    advice = _hold(len(sessions) + (free < FREE * clients), reason, now, last)
    return advice if sessions else None


def _hold(number: int, reason: str, now: float, last: Advice | None) -> Advice:
    """Keeps the last number until 30 s after its change."""
    if last is None or (number != last.number and now - last.since >= HOLD_SECONDS):
        return Advice(number, reason, now)
    return last if number != last.number else Advice(number, reason, last.since)
