"""Service of a gateway: an agent whose environments are the sessions of its clients."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np

from session.errors import ConfigError, OversizeError
from session.folder import write_atomically
from session.process.context import Context
from session.process.periodic import Every
from session.process.service import Service
from session.stream.door import DoorSettings, Encoding
from session.stream.listener import Connection, Event, Listener, StreamLimits
from session.stream.tls import server_context
from session.stream.tokens import TokenGate
from session.version import VERSION as RELEASE
from session.wire.sockets import Pollable
from surreal_like.agent.fetcher import Fetcher
from surreal_like.agent.leaving import Leaving
from surreal_like.agent.loop import Report
from surreal_like.errors import DataError
from surreal_like.experiment.machine import find_available_bytes
from surreal_like.gateway.batcher import Batch, Batcher
from surreal_like.gateway.inference import joined
from surreal_like.gateway.latency import Times
from surreal_like.gateway.policies import MODES, MakeAgent, Policies
from surreal_like.gateway.protocol import (
    METRIC_NAMES,
    VERSION,
    Bye,
    Fields,
    Hello,
    Incoming,
    Metrics,
    Ping,
    Protocol,
    Refusal,
    Request,
    decode,
    encode,
    shown_spec,
)
from surreal_like.gateway.recorder import Recorder
from surreal_like.gateway.session import Effect, State
from surreal_like.gateway.sessions import Busy, Due, Member, Sessions, Timing, shown
from surreal_like.gateway.slots import split
from surreal_like.ps.client import ParameterClient
from surreal_like.ps.schemas import ANSWERS

_PUMP_SECONDS = 0.01
_CHORES_SECONDS = 0.05
_METRICS_SECONDS = 0.1
_TABLE_SECONDS = 1.0
# Of the grace period, for the last acks.
_LAST_ACKS_SECONDS = 3.0
_FAILURES = 20
# What is left to the rest of the machine when a newcomer is let in.
_SPARE_BYTES = 256 << 20
_SECRET_BYTES = 16
# Odd, so that multiples of it are different modulo a power of two.
_SEED_STEP, _SEEDS = 0x9E3779B1, 1 << 31


class GatewayService(Service):
    """Answers the requests of all sessions in batches, and sends their rows to replay.

    Args:
        context: of this process.
        make: makes the agent of a mode, not attached.
    """

    def __init__(self, context: Context, make: MakeAgent) -> None:
        config, clock = context.config, context.clock
        session = config.session_config
        gateway = session.gateway
        self._context, self._config, self._now = context, gateway, clock.now
        self._num_envs: int = gateway.num_envs
        self._places: int = gateway.max_clients
        self._recorder = Recorder(context)
        env = config.env_config
        self._protocol = Protocol(self._recorder.frame_spec, env.action_spec, self._num_envs)
        self._policies = Policies(make, env, self._places * self._num_envs)
        self._agent = self._policies.agent("train")
        self._agent.attach(context)
        self._sessions = Sessions(
            self._places,
            Timing(gateway.grace_seconds, gateway.idle_seconds, gateway.answer_seconds),
            lambda: secrets.token_hex(_SECRET_BYTES),
        )
        self._batcher = Batcher(gateway.max_batch, gateway.batch_wait_seconds)
        self._episodes = [0] * self._places
        self._fetcher = Fetcher(
            ParameterClient(context.wire.dealer("ps.requests", ANSWERS), clock),
            clock,
            mode=session.agent.fetch_parameter_mode,
            interval_seconds=session.agent.fetch_interval_seconds,
            account=self._account,
        )
        self._leaving = Leaving(context, self._recorder.sender, self._fetcher.client)
        self._grace_seconds: float = session.launcher.grace_seconds
        self._drain_until: float | None = None
        self._report = Report(context, session.tensorplex.update_schedule.agent)
        self._pump_due, self._chores_due, self._metrics_due, self._table_due = (
            Every(seconds=seconds, clock=clock.now)
            for seconds in (_PUMP_SECONDS, _CHORES_SECONDS, _METRICS_SECONDS, _TABLE_SECONDS)
        )
        self._gate = make_gate(context)
        self._times = Times()
        self._cut = self._refused = self._resumed = self._unrecorded = 0
        self._listener = make_listener(context, self._protocol, lambda: self.open)
        context.event("listening", f"clients connect to port {self._listener.port}")

    # -- the frame of a service

    def tick(self) -> bool:
        """Handles what has arrived, and answers one batch."""
        parameters = self._fetcher.tick()
        if parameters is not None:
            self._policies.load(parameters)
        events = self._listener.poll()
        for event in events:
            self._handle(event)
        if self._leaving.begun:
            self._leaving.tick()
            return False
        if self._fetcher.final:
            self._begin_leaving("finished", reconnect=False)
            return True
        if not self._policies.version and self._fetcher.idle:
            self._fetcher.want()
        answered = self._answer_batch()
        if self._pump_due():
            self._recorder.sender.pump()
        if self._chores_due():
            self._do_chores()
        return bool(events) or answered

    @property
    def open(self) -> bool:
        """True while a newcomer is given a session."""
        return not self._ending and not self._sessions.full

    @property
    def _ending(self) -> bool:
        return self._leaving.begun or self._drain_until is not None

    def drain(self) -> None:
        """Handles the stop request: open episodes may end, then all rows are sent."""
        self._leaving.asked = True
        if not self._leaving.begun:
            wait = 0.0 if self._context.orphaned else self._grace_seconds - _LAST_ACKS_SECONDS
            self._drain_until = self._now() + wait
            self._continue_draining()

    def _continue_draining(self) -> None:
        """Sends sessions away between two episodes; at the deadline all of them."""
        assert self._drain_until is not None  # drain() was called
        for member in self._sessions:
            if not member.session.open or member.connection is None:
                self._leave(member, "draining", reconnect=True)
        if not len(self._sessions) or self._now() >= self._drain_until:
            self._begin_leaving("draining", reconnect=True)

    @property
    def done(self) -> bool:
        """True once everything is sent, unless the process has to stay."""
        return self._leaving.done

    @property
    def ready(self) -> bool:
        """False once the run is over."""
        return not self._leaving.begun

    def wait_on(self) -> list[Pollable]:
        """Returns the port for clients, and the sockets of acks and of parameters."""
        return [self._listener, self._recorder.sender.socket, self._fetcher.client.socket]

    def status(self) -> dict[str, float]:
        """Returns rates and queue lengths for the heartbeat."""
        sender = self._recorder.sender
        return {
            "steps_per_second": self._report.steps_per_second,
            **self._waits_for(),
            "version_lag": float(self._fetcher.lag),
            "unacked_bytes": float(sender.window.unacked_bytes),
            "env_steps": float(sender.env_steps),
            "sessions": float(len(self._sessions)),
        }

    def _account(self) -> dict[str, Any]:
        return {**self._recorder.account(), "status": self._waits_for()}

    def _waits_for(self) -> dict[str, float]:
        return {
            "version": float(self._policies.version),
            "waits_for_acks": float(not self._recorder.has_room),
            "waits_above_version": 0.0,
        }

    def close(self) -> None:
        """Closes the port and all connections."""
        self._listener.close()

    # -- messages

    def _handle(self, event: Event) -> None:
        connection, payload = event.connection, event.payload
        member: Member | None = connection.owner
        if payload is None and event.fault is None:
            if member is not None and member.connection is connection:
                self._sessions.lose(member, self._now())
            return
        if connection.closed:
            return
        try:
            if payload is None:
                code = "oversize" if isinstance(event.fault, OversizeError) else "malformed"
                raise Refusal(code, str(event.fault))
            fields, encoding = decode(payload, connection.encoding)
            connection.encoding = encoding
            message = self._protocol.parse(fields)
            if member is None:
                self._greet(connection, message)
            else:
                self._take(member, message)
        except Refusal as refusal:
            self._refuse(connection, member, refusal)

    def _refuse(self, connection: Connection, member: Member | None, refusal: Refusal) -> None:
        self._refused += 1
        fields = refusal.fields()
        if member is not None:
            member.session.failures += 1
            if member.session.failures >= _FAILURES and not refusal.fatal:
                refusal = Refusal("too_many_errors", f"{_FAILURES} errors in a row: {refusal.text}")
                fields = refusal.fields()
        fatal = refusal.fatal or member is None
        self._send(connection, {**fields, "fatal": fatal})
        if fatal:
            self._close(connection)

    def _close(self, connection: Connection) -> None:
        member: Member | None = connection.owner
        connection.close()
        if member is not None and member.connection is connection:
            self._sessions.lose(member, self._now())

    def _send(self, connection: Connection, fields: Fields) -> None:
        connection.send(encode(fields, connection.encoding or Encoding.msgpack))

    def _tell(self, member: Member, fields: Fields) -> None:
        if member.connection is not None:
            self._send(member.connection, fields)

    # -- the beginning and the end of a session

    def _greet(self, connection: Connection, message: Incoming) -> None:
        if not isinstance(message, Hello):
            raise Refusal("wrong_state", "the first message of a connection is hello")
        mode = message.mode or "train"
        if mode not in MODES:
            raise Refusal("not_supported", f"this gateway has no mode {mode}: {', '.join(MODES)}")
        now = self._now()
        token = self._admit(connection, message, mode)
        member = self._sessions.find(message.resume)
        if member is not None and member.mode == mode:
            member.token = token
            before = self._sessions.resume(member, connection, now)
            if before is not None:
                before.owner = None
                before.close()
            self._resumed += 1
            self._welcome(member, connection, resumed=True)
            return
        if self._fetcher.final:
            self._part(connection, "finished")
            return
        if self._ending:
            self._busy(connection, Busy("this gateway is ending"))
            return
        if find_available_bytes() < _SPARE_BYTES + self._recorder.slot_bytes:
            self._busy(connection, Busy("this machine has too little memory left"))
            return
        displaced = self._sessions.displaced()
        if displaced is not None:
            self._leave(displaced, "displaced")
        try:
            member = self._sessions.join(message, mode, connection, now)
        except Busy as busy:
            self._busy(connection, busy)
            return
        member.token = token
        member.rows = self._recorder.slot(member.slot, recorded=mode == "train")
        self._context.event("client_joined", f"{member.name} from {connection.host}")
        self._welcome(member, connection, resumed=False)

    def _admit(self, connection: Connection, hello: Hello, mode: str) -> str:
        """Returns the name of the client's token; empty if clients need none.

        Raises:
            Refusal: the token is wrong, in one text for all reasons.
        """
        if self._gate is None:
            return ""
        now, wall = self._now(), self._context.clock.time()
        name = self._gate.find(hello.token, mode, now=now, wall=wall)
        if name is None:
            self._context.log.warning(f"{connection.host}: a wrong token")
            if self._gate.under_attack(now):
                self._listener.shut_out(connection.host)
            raise Refusal("bad_token", "this token is not valid here")
        return name

    def _part_revoked(self, now: float) -> None:
        """Sends away the sessions whose tokens are no longer valid."""
        if self._gate is None:
            return
        wall = self._context.clock.time()
        for member in self._sessions:
            if not self._gate.valid(member.token, now=now, wall=wall):
                self._leave(member, "revoked")

    def _busy(self, connection: Connection, busy: Busy) -> None:
        fields = {"reason": busy.reason, "retry_after_seconds": busy.retry_after_seconds}
        self._send(connection, {"kind": "busy", **fields})
        connection.close()

    def _welcome(self, member: Member, connection: Connection, *, resumed: bool) -> None:
        connection.owner = member
        connection.admit()
        self._send(
            connection,
            {
                "kind": "welcome",
                "v": VERSION,
                "session": member.number,
                "resume": member.resumes[-1],
                "resumed": resumed,
                "seq": member.session.seq,
                "mode": member.mode,
                "num_envs": self._num_envs,
                "obs_spec": shown_spec(self._recorder.frame_spec),
                "action_spec": shown_spec(self._context.config.env_config.action_spec),
                "seed": self._seed(member),
                "version": self._policies.version,
                "max_message_bytes": self._protocol.max_message_bytes,
                "grace_seconds": self._config.grace_seconds,
                "idle_seconds": self._config.idle_seconds,
                "server": f"surreal_like {RELEASE}",
            },
        )

    def _seed(self, member: Member) -> int:
        """Returns the seed of the next episode of a session's slot."""
        number = self._episodes[member.slot] * self._places + member.slot
        return (self._context.seed + number * _SEED_STEP) % _SEEDS

    def _part(self, connection: Connection, reason: str, *, reconnect: bool = False) -> None:
        fields = {
            "kind": "goodbye",
            "reason": reason,
            "reconnect": reconnect,
            "retry_after_seconds": 1.0 if reconnect else 0.0,
        }
        self._send(connection, fields)
        connection.close()

    def _leave(self, member: Member, reason: str, *, reconnect: bool = False) -> None:
        """Ends a session: cuts its episode, and frees its slot."""
        self._batcher.discard(member)
        self._show_metrics(member)
        self._cut += member.rows.cut()
        self._sessions.leave(member)
        if member.connection is not None:
            member.connection.owner = None
            self._part(member.connection, reason, reconnect=reconnect)
        self._context.event(
            "client_left",
            f"{member.name}: {reason}, {member.steps} steps, {member.episodes} episodes",
        )

    # -- the messages of a session

    def _take(self, member: Member, message: Incoming) -> None:
        now = self._now()
        if isinstance(message, Request):
            self._request(member, message, now)
            self._sessions.on_message(member, now)
        elif isinstance(message, Ping):
            self._sessions.on_message(member, now)
            self._tell(member, {"kind": "pong", "t": message.token})
            return
        elif isinstance(message, Bye):
            self._leave(member, "bye")
            return
        elif isinstance(message, Metrics):
            self._sessions.on_message(member, now)
            self._keep_metrics(member, message)
        else:
            raise Refusal("wrong_state", "this connection has a session already")
        member.session.failures = 0

    def _keep_metrics(self, member: Member, message: Metrics) -> None:
        member.names.update(message.values)
        if len(member.names) > METRIC_NAMES:
            member.names.difference_update(message.values)
            raise Refusal("bad_metric", f"values: more than {METRIC_NAMES} names in this session")
        member.metrics.update(message.values)

    def _request(self, member: Member, request: Request, now: float) -> None:
        session, slot = member.session, member.rows
        self._check(member, request)
        effect = session.receive(request.kind, request.seq)
        if effect is Effect.owed:
            return
        if effect is Effect.repeat:
            assert session.answer is not None  # a repeated request has been answered
            self._tell(member, session.answer)
            return
        if request.kind != "reset":
            self._times.think.add(now - member.moved_at)
            self._unrecorded += self._num_envs * slot.muted
        if effect is Effect.end:
            self._end(member, request, now)
            return
        if effect is Effect.step:
            slot.step(request, has_room=self._recorder.has_room)
            member.steps += self._num_envs
        else:
            if effect is Effect.cut:
                self._cut += slot.cut()
            slot.begin(request)
            member.episodes += 1
        self._sessions.asked(member, now)
        self._batcher.add(member, request)

    def _check(self, member: Member, request: Request) -> None:
        """Raises a Refusal for what only this session's past, or the algorithm, forbids."""
        if request.action is not None and self._recorder.overlap:
            raise Refusal(
                "bad_action",
                "this algorithm learns from its own actions only: leave action out",
                request.seq,
            )
        if request.seq == member.session.seq + 1 and member.session.state is State.answered:
            try:
                member.rows.check(request)
            except DataError as error:
                code = "bad_reward" if str(error).startswith("reward") else "bad_observation"
                raise Refusal(code, str(error), request.seq) from None

    def _end(self, member: Member, request: Request, now: float) -> None:
        summary = member.rows.end(request)
        member.steps += 1
        self._report.steps += 1
        self._fetcher.count(1)
        self._episodes[member.slot] += 1
        member.last_return = summary["return"]
        answer = {"kind": "episode", "seq": request.seq, **summary, "seed": self._seed(member)}
        member.session.reply(answer)
        self._tell(member, answer)
        # The client has its turn from now on.
        self._sessions.on_message(member, now)
        session_seconds: float = self._config.session_seconds
        if self._drain_until is not None:
            self._leave(member, "draining", reconnect=True)
        elif 0 < session_seconds <= now - member.joined_at:
            self._leave(member, "rebalance", reconnect=True)

    # -- answers

    def _answer_batch(self) -> bool:
        """Answers the requests that wait; returns True if there were any."""
        if not len(self._batcher) or not self._policies.version:
            return False
        now = self._now()
        batch = self._batcher.take(now, self._sessions, self._may_answer)
        if batch is None:
            return False
        if batch.mode == "train" and not self._recorder.has_room:
            for member in batch.members:
                if not member.rows.muted:
                    self._cut += member.rows.mute()
        self._times.queue.add(
            sum(now - each.asked_at for each in batch.members), len(batch.members)
        )
        self._infer(batch, now)
        self._report.steps += len(batch.members) * self._num_envs
        if self._report.due():
            self._report_curves()
        return True

    def _may_answer(self, mode: str) -> bool:
        waits = mode == "train" and self._config.when_full == "wait"
        return not waits or self._recorder.has_room

    def _infer(self, batch: Batch, began: float) -> None:
        members, num_envs = batch.members, self._num_envs
        numbers = np.array([member.slot for member in members], np.int64)
        advice, shown = self._policies.act(
            batch.mode,
            (numbers[:, None] * num_envs + np.arange(num_envs)).reshape(-1),
            joined([request.obs for request in batch.requests]),
            np.concatenate([member.rows.first for member in members]),
        )
        self._times.inference.add(self._now() - began)
        self._times.batch.add(len(members))
        single = num_envs == 1
        self._fetcher.count(0 if single else sum(len(each.rows.ended()) for each in members))
        simple = shown.tolist() if self._protocol.is_discrete and single else None
        for index, (member, request) in enumerate(zip(members, batch.requests, strict=True)):
            start, stop = index * num_envs, (index + 1) * num_envs
            extras = split(advice.extras, start, stop)
            action = advice.action[start:stop]
            member.rows.advise(advice._replace(action=action, extras=extras))
            if simple is not None:
                self._reply(member, request, simple[index], advice.version)
            else:
                given = shown[start] if single else shown[start:stop]
                self._reply(member, request, given, advice.version)

    def _reply(self, member: Member, request: Request, action: Any, version: int) -> None:
        answer = {"kind": "action", "seq": request.seq, "action": action, "version": version}
        if self._num_envs > 1:
            answer["episodes"] = member.rows.ended()
        member.session.reply(answer)
        self._tell(member, answer)
        member.moved_at = self._now()
        self._times.latency.add(member.moved_at - member.asked_at)

    def _report_curves(self) -> None:
        window = self._recorder.sender.window
        values = {
            **self._times.pop(),
            "version_lag": float(self._fetcher.lag),
            "sessions": float(len(self._sessions)),
            "episodes_cut": float(self._cut),
            "resumed": float(self._resumed),
            "refused": float(self._refused + self._listener.refused),
            "unrecorded": float(self._unrecorded),
            ".core/unacked_bytes": float(window.unacked_bytes),
            ".core/resent_chunks": float(window.resent),
        }
        epsilon = getattr(self._agent, "epsilon", None)
        if isinstance(epsilon, float):
            values["epsilon"] = epsilon
        env_steps = self._agent.progress.env_steps
        self._report.add_curves(values, self._recorder.pop_recent(), 1, env_steps)

    # -- what is due

    def _do_chores(self) -> None:
        now = self._now()
        self._recorder.flush(now, sum(each.mode == "train" for each in self._sessions))
        for member, what in self._sessions.due(now):
            self._on_due(member, what)
        self._part_revoked(now)
        if self._metrics_due():
            for member in self._sessions:
                self._show_metrics(member)
        if self._table_due():
            self._write_table(now)
        if self._listener.trouble:
            self._context.log.warning(self._listener.trouble)
            self._listener.trouble = ""
        if self._drain_until is not None:
            self._continue_draining()

    def _write_table(self, now: float) -> None:
        """Writes the sessions to ``gateway/gateway-0.json`` of the run folder, for ``clients``."""
        folder = self._context.folder
        if folder is None:
            return
        rows = [shown(member, now) for member in self._sessions]
        folder.gateways.mkdir(exist_ok=True)
        path = folder.gateways / f"{self._context.name}.json"
        write_atomically(path, json.dumps({"time": self._context.clock.time(), "sessions": rows}))

    def _show_metrics(self, member: Member) -> None:
        """Reports the numbers of a client; of many in a short time the newest of each name."""
        if member.metrics:
            values = {f"client/{member.name}/{key}": v for key, v in member.metrics.items()}
            member.metrics = {}
            self._context.tensorplex.add_scalars(values, self._agent.progress.env_steps)

    def _on_due(self, member: Member, what: Due) -> None:
        if what is Due.left:
            self._leave(member, "lost")
        elif what is Due.idle:
            self._leave(member, "idle", reconnect=True)
        elif what is Due.wait:
            reason = "replay" if self._policies.version else "parameters"
            self._tell(member, {"kind": "wait", "seq": member.session.seq, "reason": reason})
        else:
            text = "no answer in time: send the request again, with the same seq"
            self._tell(member, Refusal("unavailable", text, member.session.seq).fields())

    def _begin_leaving(self, reason: str, *, reconnect: bool) -> None:
        for member in self._sessions:
            self._leave(member, reason, reconnect=reconnect)
        self._leaving.begin()
        self._recorder.finish()
        if self._report.steps:
            self._report_curves()


def make_gate(context: Context) -> TokenGate | None:
    """Returns the check of tokens; None if clients need none."""
    if not context.config.session_config.gateway.tokens:
        return None
    if context.folder is None:
        raise ConfigError("session_config.gateway.tokens: tokens are in the run folder: share it")
    return TokenGate(context.folder.client_tokens)


def make_listener(context: Context, protocol: Protocol, healthy: Callable[[], bool]) -> Listener:
    """Binds the port of a gateway.

    Raises:
        ConfigError: it cannot be bound.
    """
    session = context.config.session_config
    gateway = session.gateway
    door = DoorSettings(
        limit_bytes=protocol.max_message_bytes,
        host=gateway.host,
        hosts=tuple(gateway.hosts),
        origins=tuple(gateway.origins),
        healthy=healthy,
    )
    limits = StreamLimits(greeting_seconds=session.security.handshake_seconds)
    port = gateway.port + context.component.index if gateway.port else 0
    cert, key = gateway.tls.cert, gateway.tls.key
    tls = None if cert is None else server_context(cert, key)
    return Listener(gateway.host, port, door=door, clock=context.clock, limits=limits, tls=tls)
