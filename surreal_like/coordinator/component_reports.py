"""Reports of the components of a run: accounts, statuses, heartbeats, and a standstill."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from session.addons import count_acting, list_feeds
from session.process.component import has_joined
from session.process.context import Context
from session.process.heartbeat import HANGS_SECONDS, Beat, State, read_beats
from session.show.components import CORE
from session.wire import Message
from session.wire.requests import Call, DealerSocket, refusal
from surreal_like.coordinator.learners import Learners
from surreal_like.coordinator.run_stats import RunStats
from surreal_like.coordinator.standstill import (
    Standstill,
    Status,
    explain,
    newest_statuses,
    reported,
    shortest,
    waits_for,
)
from surreal_like.ps.schemas import ANSWERS

_ACCOUNTS_SECONDS = 0.25


class Monitor:
    """Reads what the components report, and decides nothing.

    Args:
        context: context of the learner's process.
        record: statistics of the run, which get the accounts of all senders.
        learners: the side that learns.
    """

    def __init__(self, context: Context, record: RunStats, learners: Learners) -> None:
        self._context, self._record, self._learners = context, record, learners
        self._call = Call(self._ask_accounts, again_seconds=_ACCOUNTS_SECONDS)
        self._standstill = Standstill(context.clock.now())
        # Newest line of progress.
        self._line: Mapping[str, Any] = {}
        # Sender with incarnation -> the account that it reported to the parameter server.
        self._accounts: Mapping[str, Mapping[str, Any]] = {}
        # True if replay or the parameter server did not work at the newest line of progress.
        self._lacked = False
        # Agents of machines that have joined, among those that were counted last.
        self.guests = 0
        self.socket: DealerSocket

    def connect(self) -> None:
        """Connects to the parameter server."""
        self.socket = self._context.wire.dealer("ps.requests", ANSWERS)

    def set_interval(self, seconds: float) -> None:
        """Sets the time between two requests for accounts [s]."""
        self._call.again_seconds = seconds

    def on_line(self, line: Mapping[str, Any]) -> None:
        """Keeps the newest line of progress, for machines that have joined."""
        self._line = line

    def tick(self) -> None:
        """Reads and requests the accounts of all senders.

        Raises:
            RefusedError: a newer learner has taken over.
        """
        answer = self.socket.ask(self._call, self._context.clock.now())
        if answer is None:
            return
        if answer.kind == "refused":
            # A newer learner has taken over; two learners must not write to one folder.
            raise refusal(answer)
        self._accounts = answer.fields.get("accounts", {})
        for key, account in self._accounts.items():
            self._record.accounts.add_sender(key, account)

    def _ask_accounts(self) -> Message:
        """Makes the request for the accounts, with what machines that have joined ask for."""
        line = self._line
        load = {
            "wall_seconds": line.get("wall_seconds"),
            "learner_waits": line.get("waiting_share"),
            "senders_wait": line.get("senders_waiting_share"),
        }
        advises = line.get("wanted", {}).get("agents") is not None
        known = advises and None not in load.values()
        return Message("accounts", {"load": load} if known else {})

    def count_agents(self) -> int | None:
        """Returns the number of agents; None while it does not limit how fast a run learns."""
        # The line after its return still has waiting times of its absence.
        before, self._lacked = self._lacked, self._lacks_core()
        if before or self._lacked:
            return None
        counts = self._record.accounts.counts
        # A guest may report under all its names; it works under those of which rows have come.
        senders = [each for each in newest_statuses(self._accounts) if counts(each)]
        names = {each.name for each in senders if each.name.startswith("agent-")}
        self.guests = sum(map(has_joined, names))
        return len(names)

    def _lacks_core(self) -> bool:
        """Returns True if replay or the parameter server is seen not to work now."""
        kinds = {each.name: each.kind for each in self._context.topology}
        core = [beat for name, beat in self.beats().items() if kinds.get(name) in CORE]
        wrong = (each.state != State.running or each.late(HANGS_SECONDS) for each in core)
        return self._learners.lacks_shard or any(wrong)

    def explain_standstill(self, *, learns: bool) -> str | None:
        """Explains a standstill, None without one; also sends an event at growing intervals.

        Args:
            learns: False while the run is paused or ends.
        """
        record, now = self._record, self._context.clock.now()
        numbers = {
            "env_steps": record.accounts.env_steps,
            "updates": record.iterations,
            "inserted": record.accounts.rows().inserted,
        }
        session = self._context.config.session_config
        if list_feeds(session) and not count_acting(session):
            # It learns from recorded rows only: no step is missing.
            del numbers["env_steps"]
        stood = self._standstill.look(now, numbers)
        if not stood or not learns:
            self._standstill.due(None)
            return None
        why = explain(stood, self._statuses())
        if self._standstill.due(None if why is None else shortest(stood)):
            self._context.event("standstill", why or "")
        return why

    def find_wait(self) -> str:
        """Returns what the learner waits for; empty if that is unknown."""
        return self._learners.refusal or waits_for(self._statuses())

    def _statuses(self) -> dict[str, Status]:
        """Returns the newest status of every component that reports one."""
        return {
            **reported(self._accounts, self._learners.counts()),
            **{name: beat.status for name, beat in self.beats().items()},
            self._context.name: self._learners.status(),
        }

    def beats(self) -> Mapping[str, Beat]:
        """Returns the newest heartbeat of each component that shares the run folder."""
        folder = self._context.folder
        return {} if folder is None else read_beats(folder.alive)
