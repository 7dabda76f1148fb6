"""Service of a gateway: an agent whose environments are the sessions of its clients."""

from __future__ import annotations

import itertools
import secrets
from typing import Any

import numpy as np

from session.config import Config
from session.errors import OversizeError
from session.process.context import Context
from session.process.periodic import Every
from session.process.service import Service
from session.stream.door import DoorSettings, Encoding
from session.stream.listener import Connection, Event, Listener, StreamLimits
from session.version import VERSION as RELEASE
from session.wire.sockets import Pollable
from surreal_like.agent.base import Agent
from surreal_like.agent.fetcher import Fetcher
from surreal_like.agent.leaving import Leaving
from surreal_like.agent.loop import Report
from surreal_like.data.frames import frame_spec, stack_size
from surreal_like.data.spec import parse_action_spec
from surreal_like.experience.sender import SenderLink
from surreal_like.experience.writer import ChunkWriter
from surreal_like.gateway.inference import Inference, joined
from surreal_like.gateway.latency import Times
from surreal_like.gateway.protocol import (
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
from surreal_like.gateway.session import Effect
from surreal_like.gateway.sessions import Busy, Due, Member, Sessions, Timing
from surreal_like.gateway.slots import Slot, split
from surreal_like.ps.client import ParameterClient
from surreal_like.ps.schemas import ANSWERS
from surreal_like.replay.base import load_replay_class

_PUMP_SECONDS = 0.01
_CHORES_SECONDS = 0.05
_FAILURES = 20
_SECRET_BYTES = 16
# Odd, so that multiples of it are different modulo a power of two.
_SEED_STEP, _SEEDS = 0x9E3779B1, 1 << 31


class GatewayService(Service):
    """Answers the requests of all sessions in batches, and sends their rows to replay.

    Args:
        context: of this process.
        agent: not yet attached.
    """

    def __init__(self, context: Context, agent: Agent) -> None:
        config, clock = context.config, context.clock
        session = config.session_config
        gateway = session.gateway
        self._context, self._now = context, clock.now
        self._num_envs: int = gateway.num_envs
        self._overlap = load_replay_class(config.learner_config).overlap
        self._places: int = gateway.max_clients
        self._max_batch: int = gateway.max_batch
        agent.attach(context)
        self._agent = agent
        self._link = SenderLink(context, session.sender)
        self._window_chunks: int = session.sender.max_unacked_chunks
        self._ids = itertools.count()
        env = config.env_config
        self._frame_spec = frame_spec(env.obs_spec, stack_size(env))
        self._protocol = Protocol(self._frame_spec, env.action_spec, self._num_envs)
        self._inference = Inference(agent, env, self._places * self._num_envs)
        spec = parse_action_spec(env.action_spec)
        bounded = spec.array.low is not None or spec.array.high is not None
        self._clip = bool(env.clip_action) and spec.type == "continuous" and bounded
        self._bounds = spec.array.low, spec.array.high
        self._sessions = Sessions(
            self._places,
            Timing(gateway.grace_seconds, gateway.idle_seconds, gateway.answer_seconds),
            lambda: secrets.token_hex(_SECRET_BYTES),
        )
        self._slots: dict[int, Slot] = {}
        self._episodes = [0] * self._places
        # Sessions to which an answer is owed, the longest waiting first.
        self._waiting: dict[Member, Request] = {}
        self._fetcher = Fetcher(
            ParameterClient(context.wire.dealer("ps.requests", ANSWERS), clock),
            clock,
            mode=session.agent.fetch_parameter_mode,
            interval_seconds=session.agent.fetch_interval_seconds,
            account=self._account,
        )
        self._leaving = Leaving(context, self._link.sender, self._fetcher.client)
        self._leaves_at_end = session.at_end == "exit"
        self._stop_received = False
        self._report = Report(context, session.tensorplex.update_schedule.agent)
        self._pump_due = Every(seconds=_PUMP_SECONDS, clock=clock.now)
        self._chores_due = Every(seconds=_CHORES_SECONDS, clock=clock.now)
        self._times = Times()
        self._cut = self._ended = self._refused = self._resumed = 0
        self._listener = make_listener(context, config, self._protocol, lambda: self.open)
        context.event("listening", f"clients connect to port {self._listener.port}")

    # -- the frame of a service

    def tick(self) -> bool:
        """Handles what has arrived, and answers one batch."""
        parameters = self._fetcher.tick()
        if parameters is not None:
            self._agent.load(parameters)
        events = self._listener.poll()
        for event in events:
            self._handle(event)
        if self._leaving.begun:
            self._leaving.tick()
            return False
        if self._fetcher.final:
            self._begin_leaving("finished", reconnect=False)
            return True
        if not self._agent.version and self._fetcher.idle:
            self._fetcher.want()
        answered = self._answer_batch()
        if self._pump_due():
            self._link.sender.pump()
        if self._chores_due():
            self._do_chores()
        return bool(events) or answered

    @property
    def open(self) -> bool:
        """True while a newcomer is given a session."""
        return not self._leaving.begun and not self._sessions.full

    def drain(self) -> None:
        """Handles the stop request: sends the collected experience first."""
        self._stop_received = True
        if not self._leaving.begun:
            self._begin_leaving("draining", reconnect=True)

    @property
    def done(self) -> bool:
        """True once everything is sent, unless the process has to stay."""
        return self._leaving.over and (self._leaves_at_end or self._stop_received)

    @property
    def ready(self) -> bool:
        """False once the run is over."""
        return not self._leaving.begun

    def wait_on(self) -> list[Pollable]:
        """Returns the port for clients, and the sockets of acks and of parameters."""
        return [self._listener, self._link.sender.socket, self._fetcher.client.socket]

    def status(self) -> dict[str, float]:
        """Returns rates and queue lengths for the heartbeat."""
        return {
            "steps_per_second": self._report.steps_per_second,
            **self._waits_for(),
            "version_lag": float(self._fetcher.lag),
            "unacked_bytes": float(self._link.sender.window.unacked_bytes),
            "env_steps": float(self._link.sender.env_steps),
            "sessions": float(len(self._sessions)),
        }

    def _account(self) -> dict[str, Any]:
        return {**self._link.sender.account(), "status": self._waits_for()}

    def _waits_for(self) -> dict[str, float]:
        return {
            "version": float(self._agent.version),
            "waits_for_acks": float(not self._link.sender.window.ready),
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
        if mode != "train":
            raise Refusal("not_supported", f"this gateway has no mode {mode}, only train")
        now = self._now()
        member = self._sessions.find(message.resume)
        if member is not None and member.mode == mode:
            before = self._sessions.resume(member, connection, now)
            if before is not None:
                before.owner = None
                before.close()
            self._resumed += 1
            self._welcome(member, connection, resumed=True)
            return
        if self._leaving.begun:
            self._part(connection, "finished" if self._fetcher.final else "draining")
            return
        displaced = self._sessions.displaced()
        if displaced is not None:
            self._leave(displaced, "displaced")
        try:
            member = self._sessions.join(message, mode, connection, now)
        except Busy as busy:
            self._send(
                connection,
                {
                    "kind": "busy",
                    "reason": busy.reason,
                    "retry_after_seconds": busy.retry_after_seconds,
                },
            )
            connection.close()
            return
        self._context.event("client_joined", f"{member.name} from {connection.host}")
        self._welcome(member, connection, resumed=False)

    def _welcome(self, member: Member, connection: Connection, *, resumed: bool) -> None:
        connection.owner = member
        connection.admit()
        gateway = self._context.config.session_config.gateway
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
                "obs_spec": shown_spec(self._frame_spec),
                "action_spec": shown_spec(self._context.config.env_config.action_spec),
                "seed": self._seed(member),
                "version": self._agent.version,
                "max_message_bytes": self._protocol.max_message_bytes,
                "grace_seconds": gateway.grace_seconds,
                "idle_seconds": gateway.idle_seconds,
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
        self._waiting.pop(member, None)
        slot = self._slots.get(member.slot)
        if slot is not None:
            self._cut += slot.cut()
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
            self._sessions.heard(member, now)
        elif isinstance(message, Ping):
            self._sessions.heard(member, now)
            self._tell(member, {"kind": "pong", "t": message.token})
            return
        elif isinstance(message, Bye):
            self._leave(member, "bye")
            return
        elif isinstance(message, Metrics):
            self._sessions.heard(member, now)
        else:
            raise Refusal("wrong_state", "this connection has a session already")
        member.session.failures = 0

    def _request(self, member: Member, request: Request, now: float) -> None:
        session = member.session
        if request.action is not None and self._overlap:
            raise Refusal(
                "bad_action",
                "this algorithm learns from its own actions only: leave action out",
                request.seq,
            )
        effect = session.receive(request.kind, request.seq)
        if effect is Effect.owed:
            return
        if effect is Effect.repeat:
            assert session.answer is not None  # a repeated request has been answered
            self._tell(member, session.answer)
            return
        slot = self._slot(member.slot)
        if request.kind != "reset":
            self._times.think.add(now - member.moved_at)
        if effect is Effect.end:
            self._end(member, slot, request)
            return
        if effect is Effect.step:
            slot.step(request)
            member.steps += self._num_envs
        else:
            if effect is Effect.cut:
                self._cut += slot.cut()
            slot.begin(request)
            member.episodes += 1
        self._sessions.asked(member, now)
        self._waiting[member] = request

    def _end(self, member: Member, slot: Slot, request: Request) -> None:
        summary = slot.end(request)
        member.steps += 1
        self._report.steps += 1
        self._ended += 1
        self._episodes[member.slot] += 1
        answer = {"kind": "episode", "seq": request.seq, **summary, "seed": self._seed(member)}
        member.session.reply(answer)
        self._tell(member, answer)

    def _slot(self, number: int) -> Slot:
        """Returns a slot, which is made when its first session needs it."""
        slot = self._slots.get(number)
        if slot is None:
            config = self._context.config
            env = config.env_config
            writer = ChunkWriter(
                self._num_envs,
                obs_spec=self._frame_spec,
                action_spec=env.action_spec,
                settings=config.session_config.sender,
                overlap=self._overlap,
                send=self._link.sender.send,
                ids=self._ids,
            )
            writer.keep_frames(stack_size(env) - 1)
            slot = Slot(writer, self._num_envs, self._link.acting, self._now)
            self._slots[number] = slot
        return slot

    # -- answers

    def _answer_batch(self) -> bool:
        """Answers the requests that wait; returns True if there were any."""
        if not self._waiting or not self._agent.version or not self._link.sender.window.ready:
            return False
        members = list(itertools.islice(self._waiting, self._max_batch))
        num_envs = self._num_envs
        slots = [self._slots[member.slot] for member in members]
        began = self._now()
        self._times.queue.add(sum(began - member.asked_at for member in members), len(members))
        numbers = np.array([member.slot for member in members], np.int64)
        streams = (numbers[:, None] * num_envs + np.arange(num_envs)).reshape(-1)
        advice = self._inference.act(
            streams,
            joined([self._waiting[member].obs for member in members]),
            np.concatenate([slot.first for slot in slots]),
        )
        self._times.inference.add(self._now() - began)
        self._times.batch.add(len(members))
        shown = np.clip(advice.action, *self._bounds) if self._clip else advice.action
        simple = shown.tolist() if self._protocol.is_discrete and num_envs == 1 else None
        for index, (member, slot) in enumerate(zip(members, slots, strict=True)):
            rows = slice(index * num_envs, (index + 1) * num_envs)
            extras = split(advice.extras, rows.start, rows.stop)
            slot.advise(advice._replace(action=advice.action[rows], extras=extras))
            action = shown[rows] if simple is None else simple[index]
            self._reply(member, slot, action if simple is not None or num_envs > 1 else action[0])
        self._report.steps += len(members) * num_envs
        ended, self._ended = self._ended, 0
        self._fetcher.count(ended)
        if self._report.due():
            self._report_curves()
        return True

    def _reply(self, member: Member, slot: Slot, action: Any) -> None:
        request = self._waiting.pop(member)
        answer = {
            "kind": "action",
            "seq": request.seq,
            "action": action,
            "version": self._agent.version,
        }
        if self._num_envs > 1:
            answer["episodes"] = slot.ended()
        member.session.reply(answer)
        self._tell(member, answer)
        member.moved_at = self._now()
        self._times.latency.add(member.moved_at - member.asked_at)

    def _report_curves(self) -> None:
        window = self._link.sender.window
        episodes = [
            each
            for slot in self._slots.values()
            if slot.writer is not None
            for each in slot.writer.pop_recent()
        ]
        values = {
            **self._times.pop(),
            "version_lag": float(self._fetcher.lag),
            "sessions": float(len(self._sessions)),
            "episodes_cut": float(self._cut),
            "resumed": float(self._resumed),
            "refused": float(self._refused + self._listener.refused),
            ".core/unacked_bytes": float(window.unacked_bytes),
            ".core/resent_chunks": float(window.resent),
        }
        epsilon = getattr(self._agent, "epsilon", None)
        if isinstance(epsilon, float):
            values["epsilon"] = epsilon
        self._report.tell(values, episodes, 1, self._agent.progress.env_steps)

    # -- what is due

    def _do_chores(self) -> None:
        now = self._now()
        self._link.sender.window.max_chunks = self._window_chunks * max(1, len(self._sessions))
        for slot in self._slots.values():
            slot.flush(now)
        for member, what in self._sessions.due(now):
            self._on_due(member, what)
        if self._listener.trouble:
            self._context.log.warning(self._listener.trouble)
            self._listener.trouble = ""

    def _on_due(self, member: Member, what: Due) -> None:
        if what is Due.left:
            self._leave(member, "lost")
        elif what is Due.idle:
            self._leave(member, "idle", reconnect=True)
        elif what is Due.wait:
            reason = "replay" if self._agent.version else "parameters"
            self._tell(member, {"kind": "wait", "seq": member.session.seq, "reason": reason})
        else:
            text = "no answer in time: send the request again, with the same seq"
            self._tell(member, Refusal("unavailable", text, member.session.seq).fields())

    def _begin_leaving(self, reason: str, *, reconnect: bool) -> None:
        for member in self._sessions:
            self._leave(member, reason, reconnect=reconnect)
        self._leaving.begin()
        for slot in self._slots.values():
            slot.finish()
        self._link.sender.send_goodbye()
        if self._report.steps:
            self._report_curves()


def make_listener(context: Context, config: Config, protocol: Protocol, healthy: Any) -> Listener:
    """Binds the port of a gateway; a port that was just used is tried again for a while."""
    gateway = config.session_config.gateway
    door = DoorSettings(
        limit_bytes=protocol.max_message_bytes,
        host=gateway.host,
        hosts=tuple(gateway.hosts),
        origins=tuple(gateway.origins),
        healthy=healthy,
    )
    limits = StreamLimits(greeting_seconds=config.session_config.security.handshake_seconds)
    port = gateway.port + context.component.index if gateway.port else 0
    return Listener(gateway.host, port, door=door, clock=context.clock, limits=limits)
