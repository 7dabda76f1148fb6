"""Sessions of a gateway: their requests become rows, and are answered together by the agent."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from session.config import Config
from session.folder import RunFolder
from session.process.clock import Clock
from surreal_like.addons.gateway.counters import ClientCurves, ClientLog, Counters, EventLog
from surreal_like.addons.gateway.evaluations import Evaluations
from surreal_like.addons.gateway.messages import Request, make_refusal, send_goodbye
from surreal_like.addons.gateway.payloads import Refusal
from surreal_like.addons.gateway.policies import Policies, concatenate
from surreal_like.addons.gateway.request_batcher import Batch, Batcher
from surreal_like.addons.gateway.sessions import Due, Effect, Session, Sessions, State
from surreal_like.addons.gateway.slots import Rows
from surreal_like.errors import DataError

# Odd, so that multiples of it are different modulo a power of two.
_SEED_STEP, _SEEDS = 0x9E3779B1, 1 << 30


class Host(Protocol):
    """Process of a gateway; a :class:`~session.process.context.Context` is one."""

    @property
    def config(self) -> Config:
        """Config of the run."""

    @property
    def folder(self) -> RunFolder | None:
        """Folder of the run, which has the tokens."""

    @property
    def clock(self) -> Clock:
        """Clock for all times."""

    @property
    def log(self) -> EventLog:
        """Log for sessions."""

    @property
    def seed(self) -> int:
        """Seed from which those of episodes follow; another one at each start."""


class Gateway:
    """Sessions of clients, their rows and their answers; knows no port.

    Args:
        host: Process of the gateway.
        rows: Rows of the sessions.
        policies: Agents that answer.
        evaluations: Evaluations by sessions of mode ``evaluate``; None: there is no such mode.

    Attributes:
        config, clock, log: Those of the process; the log is bounded.
        sessions, counters, curves: See their classes.
        draining: True sends new clients to another gateway.
        over: True once the run is over.
    """

    def __init__(
        self, host: Host, rows: Rows, policies: Policies, evaluations: Evaluations | None = None
    ) -> None:
        self.config, self.folder, self.clock = host.config, host.folder, host.clock
        self.rows, self.policies, self.evaluations = rows, policies, evaluations
        settings = host.config.session_config.gateway
        self.log = ClientLog(host.log, host.clock.now)
        self.sessions = Sessions(settings, rows.make_slot)
        self.counters, self.curves = Counters(), ClientCurves()
        self.draining = self.over = False
        self._batcher = Batcher(settings.max_batch, settings.batch_wait_seconds)
        self._now, self._num_envs = host.clock.now, rows.num_envs
        # Otherwise requests whose rows replay does not take are answered, and not recorded.
        self._waits = settings.when_full == "wait"
        self._session_seconds: float = settings.session_seconds
        self._seed, self._episodes = host.seed, [0] * settings.max_clients

    @property
    def open(self) -> bool:
        """True while another client gets a session."""
        return not (self.draining or self.over or self.sessions.full)

    def make_seed(self, session: Session) -> int:
        """Returns the seed of the next episode of a session, 31 bits; none is used twice."""
        place = session.place
        number = self._episodes[place] * len(self._episodes) + place
        self._episodes[place] += 1
        # The last bit keeps seeds of evaluations apart from all others, at any gateway.
        evaluates = session.mode == "evaluate"
        return (self._seed + number * _SEED_STEP) % _SEEDS * 2 + evaluates

    # -- from clients

    def receive(self, session: Session, request: Request, now: float) -> None:
        """Accepts a request: writes its row, or ends its episode.

        Args:
            session: Session of the request.
            request: Request that fits the specs.
            now: Time in seconds.

        Raises:
            Refusal: it is wrong now; nothing has changed then.
        """
        if request.info:
            self.curves.check_episode(request)
        if request.action is not None or self._num_envs > 1:
            self._check(session, request)
        effect = session.receive(request.kind, request.seq)
        thought = now - session.moved_at
        session.on_message(now)
        session.turned_at = now
        session.failures = 0
        slot = session.slot
        if effect is Effect.step:
            self.counters.times.think.add(thought)
            if slot.muted:
                self.counters.unrecorded += self._num_envs
                slot.step(request, has_room=self.rows.has_room)
            else:
                slot.step(request)
            session.steps += self._num_envs
            if self._num_envs > 1:
                self._on_ended(session, slot.list_ended())
        elif effect is Effect.end:
            self.counters.times.think.add(thought)
            self.counters.unrecorded += slot.muted
            self._end(session, request)
            return
        elif effect is Effect.owed:
            return
        elif effect is Effect.repeat:
            assert session.answer is not None  # a repeated request has been answered
            session.send(session.answer)
            return
        else:
            if effect is Effect.cut:
                self.counters.cut += slot.cut()
            slot.begin(request)
            session.episodes += 1
        session.asked_at = now
        if session.mode == "evaluate" and self.evaluations is not None:
            self.evaluations.add(session, request)
        else:
            self._batcher.add(session, request)

    def _check(self, session: Session, request: Request) -> None:
        """Raises a Refusal for what only this session's past, or the algorithm, forbids."""
        if request.action is not None and self.rows.overlap:
            raise Refusal(
                "bad_action",
                "this algorithm learns from its own actions only: leave action out",
                request.seq,
            )
        if request.seq == session.seq + 1 and session.state is State.answered:
            try:
                session.slot.check(request)
            except DataError as error:
                raise make_refusal(error, request.seq) from None

    def _end(self, session: Session, request: Request) -> None:
        summary = session.slot.end(request)
        session.steps += 1
        self.counters.steps += 1
        self._on_ended(session, [{"stream": 0, **summary}])
        session.last_return = summary["return"]
        seed = self.make_seed(session)
        session.reply({"kind": "episode", "seq": request.seq, **summary, "seed": seed})
        reason = self._find_reason(session)
        if reason:
            self.leave(session, reason, reconnect=True)

    def _on_ended(self, session: Session, episodes: list[dict[str, Any]]) -> None:
        self.counters.ended += len(episodes)
        self.policies.end_episodes(session.mode, episodes, session.slot.metrics)
        if self.evaluations is not None and session.mode == "evaluate":
            self.evaluations.on_ended(session, episodes)

    # -- to clients

    def answer(self) -> bool:
        """Answers the next batch of requests; returns True if there was one."""
        now = self._now()
        if self.evaluations is not None:
            self.evaluations.tick()
            for session, request in self.evaluations.pop_ready().items():
                session.asked_at = now
                self._batcher.add(session, request)
        if self.policies.newest is None:
            return False
        batch = self._batcher.pop(now, self.sessions, self._may_answer)
        if batch is None:
            return False
        if batch.mode == "train" and not self.rows.has_room:
            for session in batch.sessions:
                if not session.slot.muted:
                    self.counters.cut += session.slot.mute()
        self._infer(batch, now)
        self.counters.steps += len(batch.sessions) * self._num_envs
        if self._num_envs > 1:
            for session in batch.sessions:
                self._leave_if_due(session)
        return True

    def _may_answer(self, mode: str) -> bool:
        return mode != "train" or not self._waits or self.rows.has_room

    def _infer(self, batch: Batch, began: float) -> None:
        sessions, num_envs = batch.sessions, self._num_envs
        streams = np.array([session.place for session in sessions], np.int64)
        if num_envs > 1:
            streams = (streams[:, None] * num_envs + np.arange(num_envs)).reshape(-1)
        advice, actions = self.policies.act(
            batch.mode,
            streams,
            concatenate([request.obs for request in batch.requests]),
            np.concatenate([session.slot.first for session in sessions]),
            np.concatenate([request.reward for request in batch.requests]),
        )
        asked_at = [session.asked_at for session in sessions]
        times = self.counters.times
        times.inference.add(self._now() - began)
        times.batch.add(len(sessions))
        times.queue.add(len(sessions) * began - sum(asked_at), len(sessions))
        sent: Any = actions
        if num_envs > 1:
            sent = actions.reshape(len(sessions), num_envs, *actions.shape[1:])
        elif self.policies.gives_numbers:
            sent = actions.tolist()
        version = advice.version
        for index, (session, action) in enumerate(zip(sessions, sent, strict=True)):
            slot = session.slot
            slot.advise(advice, index * num_envs)
            answer = {"kind": "action", "seq": session.seq, "action": action, "version": version}
            if num_envs > 1:
                answer["episodes"] = slot.list_ended()
            session.reply(answer)
        now = self._now()
        for session in sessions:
            session.moved_at = session.turned_at = now
        times.latency.extend([now - at for at in asked_at])

    def do_chores(self) -> None:
        """Does what is due by time, for all sessions."""
        for session, what in self.sessions.list_due(self._now()):
            if what is Due.left:
                self.leave(session, "lost")
            elif what is Due.idle:
                self.leave(session, "idle", reconnect=True)
            elif what is Due.unavailable:
                text = "no answer in time: send the request again, with the same seq"
                session.send(Refusal("unavailable", text, session.seq).to_message())
            else:
                reason = "replay" if self.policies.version else "parameters"
                reason = "evaluation" if session.held else reason
                session.send({"kind": "wait", "seq": session.seq, "reason": reason})

    # -- the end of a session

    def leave(self, session: Session, reason: str, *, reconnect: bool = False) -> None:
        """Ends a session: cuts its episode, and frees its place.

        Args:
            session: Session that ends.
            reason: Reason that its client and the log get.
            reconnect: True if the client should come back.
        """
        self._batcher.discard(session)
        if self.evaluations is not None:
            self.evaluations.leave(session)
        self.counters.cut += session.slot.cut()
        self.sessions.leave(session)
        if session.connection is not None:
            session.connection.owner = None
            send_goodbye(session.connection, reason, reconnect=reconnect)
        counts = f"{session.steps} steps, {session.episodes} episodes"
        self.log.on_left(session.host, f"{session.name}: {reason}, {counts}")

    def leave_all(self, reason: str, *, reconnect: bool) -> None:
        """Ends all sessions."""
        for session in self.sessions:
            self.leave(session, reason, reconnect=reconnect)

    def leave_between_episodes(self, reason: str) -> None:
        """Ends the sessions that have no open episode, and those without a connection."""
        for session in self.sessions:
            if not session.open or session.held or session.connection is None:
                self.leave(session, reason, reconnect=True)

    def _leave_if_due(self, session: Session) -> None:
        """Ends a session of several environments once none is in an episode that it has to end.

        Their episodes hardly ever end together: those that were open when the time came are
        waited for, and those that have begun since are cut.
        """
        reason, episodes = self._find_reason(session), session.slot.list_ended()
        if not reason or not episodes:
            return
        if session.last_streams is None:
            session.last_streams = set(range(self._num_envs))
        session.last_streams.difference_update(each["stream"] for each in episodes)
        if not session.last_streams:
            self.leave(session, reason, reconnect=True)

    def _find_reason(self, session: Session) -> str:
        if self.draining:
            return "draining"
        over = 0 < self._session_seconds <= self._now() - session.joined_at
        return "rebalance" if over else ""
