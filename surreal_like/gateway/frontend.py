"""Sessions of a port: receives the messages of clients, and ends sessions when it is time."""

from __future__ import annotations

import secrets
from typing import Any

from session.errors import OversizeError
from session.stream.connection import Connection, Event
from surreal_like.data.bounds import reward_bounds
from surreal_like.gateway import replies
from surreal_like.gateway.admission import Admission, Seeds, send_welcome
from surreal_like.gateway.counters import ClientCurves, Counters
from surreal_like.gateway.evaluations import Evaluations
from surreal_like.gateway.messages import (
    Bye,
    Incoming,
    Metrics,
    Ping,
    Refusal,
    Request,
)
from surreal_like.gateway.payloads import decode
from surreal_like.gateway.policies import Policies
from surreal_like.gateway.port import Host, make_gate, make_listener
from surreal_like.gateway.protocol import Protocol
from surreal_like.gateway.recorder import Rows
from surreal_like.gateway.refusal_log import ClientLog
from surreal_like.gateway.requests import Requests
from surreal_like.gateway.sessions import Due, Member, Sessions, Timing

_FAILURES = 20
_SECRET_BYTES = 16


class Frontend:
    """The clients of one port, their sessions and their answers.

    Args:
        host: of the process.
        rows: of the sessions.
        policies: act.
        evaluations: of sessions of mode ``evaluate``; None: there is no such mode.
        port: for clients; 0: any free one.

    Attributes:
        sessions, listener, counters, curves, admission: see their classes.
    """

    def __init__(
        self,
        host: Host,
        rows: Rows,
        policies: Policies,
        evaluations: Evaluations | None = None,
        *,
        port: int,
    ) -> None:
        config, log, clock = host.config, host.log, host.clock
        gateway = config.session_config.gateway
        self._config, self._now = config, clock.now
        self._rows, self._policies = rows, policies
        env = config.env_config
        rewards = reward_bounds(env) if rows.learned else None
        self._protocol = Protocol(rows.frame_spec, env.action_spec, rows.num_envs, rewards)
        self.sessions = Sessions(
            gateway.max_clients,
            Timing(gateway.grace_seconds, gateway.idle_seconds, gateway.answer_seconds),
            lambda: secrets.token_hex(_SECRET_BYTES),
        )
        self._session_seconds: float = gateway.session_seconds
        self.counters = Counters()
        self._log = ClientLog(log, clock.now)
        self.curves = ClientCurves()
        self._seeds = Seeds(host.seed, gateway.max_clients)
        self._requests = Requests(
            policies,
            rows,
            gateway,
            sessions=self.sessions,
            counters=self.counters,
            seeds=self._seeds,
            evaluations=evaluations,
            now=clock.now,
        )
        self.listener = make_listener(
            config,
            port,
            limit_bytes=self._protocol.max_message_bytes,
            healthy=lambda: self.open,
            on_refused=self._log.refused,
            clock=clock,
        )
        self.admission = Admission(
            self.sessions,
            policies.modes,
            gate=make_gate(config, host.folder),
            log=self._log,
            clock=clock,
            rows=rows,
            leave=self.leave,
        )

    @property
    def open(self) -> bool:
        """True while a newcomer is given a session."""
        admission = self.admission
        return not (admission.draining or admission.over or self.sessions.full)

    def receive(self) -> bool:
        """Handles what has arrived; returns True if there was anything."""
        events = self.listener.poll()
        now = self._now()
        for event in events:
            self._handle(event, now)
        return bool(events)

    def answer(self) -> bool:
        """Answers the next batch of requests; returns True if there was one."""
        answered = self._requests.answer()
        if self._rows.num_envs > 1:
            for member in answered:
                self._on_episodes(member, member.rows.ended())
        return bool(answered)

    # -- messages

    def _handle(self, event: Event, now: float) -> None:
        connection, payload, fault = event
        member: Member | None = connection.owner
        if payload is None and fault is None:
            self._lose(member, connection)
            return
        if connection.closed:
            return
        try:
            if payload is None:
                code = "oversize" if isinstance(fault, OversizeError) else "malformed"
                raise Refusal(code, str(fault))
            fields, connection.encoding = decode(payload, connection.encoding)
            message = self._protocol.parse(fields)
            if member is None:
                self._greet(connection, message)
            elif type(message) is Request:
                if message.info:
                    self.curves.check_episode(message)
                ended = self._requests.receive(member, message, now)
                self.sessions.on_message(member, now)
                member.session.failures = 0
                if ended:
                    self._on_episode(member)
            else:
                self._receive(member, message, now)
        except Refusal as refusal:
            self._refuse(connection, member, refusal)
        except Exception as error:  # noqa: BLE001 - a defect here must not end the other sessions
            self._log.defect(error)
            text = "a defect of the gateway, whose log has the details"
            self._refuse(connection, member, Refusal("internal", text))

    def _refuse(self, connection: Connection, member: Member | None, refusal: Refusal) -> None:
        self.counters.refused += 1
        self._log.refused(connection.host, f"{refusal.code}: {refusal.text}")
        if member is not None:
            member.session.failures += 1
            if member.session.failures >= _FAILURES and not refusal.fatal:
                replies.send(connection, refusal.fields())
                refusal = Refusal("too_many_errors", f"{_FAILURES} errors in a row: {refusal.text}")
        if refusal.fatal or member is None:
            replies.send_refusal(connection, refusal)
            self._lose(member, connection)
        else:
            replies.send(connection, refusal.fields())

    def _lose(self, member: Member | None, connection: Connection) -> None:
        if member is not None and member.connection is connection:
            self.sessions.lose(member, self._now())

    def _greet(self, connection: Connection, message: Incoming) -> None:
        admitted = self.admission.admit(connection, message)
        if admitted is None:
            return
        member, resumed = admitted
        self.counters.resumed += resumed
        if not resumed:
            member.rows = self._rows.slot(member.slot, recorded=member.mode == "train")
        present = {
            "resumed": resumed,
            "seed": self._seeds.next(member),
            "version": self._policies.version,
            "max_message_bytes": self._protocol.max_message_bytes,
        }
        send_welcome(member, connection, self._config, present)

    def _receive(self, member: Member, message: Incoming, now: float) -> None:
        if isinstance(message, Bye):
            self.leave(member, "bye")
        elif isinstance(message, Ping):
            self.sessions.on_message(member, now)
            replies.send_to(member, {"kind": "pong", "t": message.token})
        elif isinstance(message, Metrics):
            self.sessions.on_message(member, now)
            if not self.curves.add(member, message):
                text = f"numbers of {member.name} are shown as client/other: too many names"
                self._log.refused(member.host, f"curves: {text}")
            member.session.failures = 0
        else:
            raise Refusal("wrong_state", "this connection has a session already")

    # -- the end of a session

    def leave(self, member: Member, reason: str, *, reconnect: bool = False) -> None:
        """Ends a session: cuts its episode, and frees its slot."""
        self._requests.leave(member)
        self.counters.cut += member.rows.cut()
        self.sessions.leave(member)
        if member.connection is not None:
            member.connection.owner = None
            replies.send_goodbye(member.connection, reason, reconnect=reconnect)
        self._log.left(
            member.host,
            f"{member.name}: {reason}, {member.steps} steps, {member.episodes} episodes",
        )

    def leave_all(self, reason: str, *, reconnect: bool) -> None:
        """Ends all sessions."""
        for member in self.sessions:
            self.leave(member, reason, reconnect=reconnect)

    def leave_between_episodes(self, reason: str) -> None:
        """Ends the sessions that have no open episode, and those without a connection."""
        for member in self.sessions:
            if not member.session.open or member.held or member.connection is None:
                self.leave(member, reason, reconnect=True)

    def _on_episode(self, member: Member) -> None:
        reason = self._why_leave(member)
        if reason:
            self.leave(member, reason, reconnect=True)

    def _on_episodes(self, member: Member, episodes: list[dict[str, Any]]) -> None:
        """Ends a session of several environments once none is in an episode that it has to end.

        Their episodes hardly ever end together: those that were open when the time came are
        waited for, and those that have begun since are cut.
        """
        reason = self._why_leave(member)
        if not reason or not episodes:
            return
        if member.last_streams is None:
            member.last_streams = set(range(self._rows.num_envs))
        member.last_streams.difference_update(each["stream"] for each in episodes)
        if not member.last_streams:
            self.leave(member, reason, reconnect=True)

    def _why_leave(self, member: Member) -> str:
        if self.admission.draining:
            return "draining"
        over = 0 < self._session_seconds <= self._now() - member.joined_at
        return "rebalance" if over else ""

    def do_chores(self) -> None:
        """Does what is due by time, for all sessions."""
        now = self._now()
        for member, what in self.sessions.due(now):
            self._on_due(member, what)
        self.admission.end_revoked()

    def _on_due(self, member: Member, what: Due) -> None:
        if what is Due.left:
            self.leave(member, "lost")
        elif what is Due.idle:
            self.leave(member, "idle", reconnect=True)
        elif what is Due.wait:
            replies.send_wait(member, "replay" if self._policies.version else "parameters")
        else:
            replies.send_unavailable(member)

    def close(self) -> None:
        """Closes the port and all connections."""
        self.listener.close()
