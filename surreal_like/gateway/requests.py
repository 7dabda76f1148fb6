"""Requests of admitted clients: they become rows, and are answered together by the agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from session.config import Config
from surreal_like.errors import DataError
from surreal_like.gateway.admission import Seeds
from surreal_like.gateway.batcher import Batch, Batcher
from surreal_like.gateway.counters import Counters
from surreal_like.gateway.evaluations import Evaluations
from surreal_like.gateway.messages import Refusal, Request
from surreal_like.gateway.policies import Policies, joined
from surreal_like.gateway.protocol import refusal_of
from surreal_like.gateway.recorder import Rows
from surreal_like.gateway.replies import send_to
from surreal_like.gateway.session import Effect, State
from surreal_like.gateway.sessions import Member, Sessions


class Requests:
    """Writes the rows of requests, and answers one batch of them after the other.

    Args:
        policies: act.
        rows: of the sessions.
        settings: ``session_config.gateway``.
        sessions: all of this gateway.
        counters: of the gateway.
        seeds: of the episodes of clients.
        evaluations: keep the requests of their sessions; None: there is no such mode.
        now: returns the time in seconds.
    """

    def __init__(
        self,
        policies: Policies,
        rows: Rows,
        settings: Config,
        *,
        sessions: Sessions,
        counters: Counters,
        seeds: Seeds,
        evaluations: Evaluations | None,
        now: Callable[[], float],
    ) -> None:
        self._policies, self._rows = policies, rows
        self._sessions = sessions
        self._batcher = Batcher(settings.max_batch, settings.batch_wait_seconds)
        self._counters, self._seeds = counters, seeds
        self._num_envs = rows.num_envs
        self._evaluations, self._now = evaluations, now
        # Otherwise requests whose rows replay does not take are answered, and not recorded.
        self._waits = settings.when_full == "wait"

    # -- from clients

    def receive(self, member: Member, request: Request, now: float) -> bool:
        """Accepts a request; returns True if it was the end of an episode.

        Args:
            member: its session.
            request: fits the specs.
            now: the time in seconds.

        Raises:
            Refusal: it is wrong now; nothing has changed then.
        """
        session, slot = member.session, member.rows
        if request.action is not None or self._num_envs > 1:
            self._check(member, request)
        effect = session.receive(request.kind, request.seq)
        if effect is Effect.step:
            self._counters.times.think.add(now - member.moved_at)
            if slot.muted:
                self._counters.unrecorded += self._num_envs
                slot.step(request, has_room=self._rows.has_room)
            else:
                slot.step(request)
            member.steps += self._num_envs
            if self._num_envs > 1:
                self._on_ended(member, slot.ended())
        elif effect is Effect.end:
            self._counters.times.think.add(now - member.moved_at)
            self._counters.unrecorded += slot.muted
            self._end(member, request)
            return True
        elif effect is Effect.owed:
            return False
        elif effect is Effect.repeat:
            assert session.answer is not None  # a repeated request has been answered
            send_to(member, session.answer)
            return False
        else:
            if effect is Effect.cut:
                self._counters.cut += slot.cut()
            slot.begin(request)
            member.episodes += 1
        member.asked_at = now
        if member.mode == "evaluate" and self._evaluations is not None:
            self._evaluations.add(member, request)
        else:
            self._batcher.add(member, request)
        return False

    def leave(self, member: Member) -> None:
        """Forgets a session."""
        self._batcher.discard(member)
        if self._evaluations is not None:
            self._evaluations.leave(member)

    def _check(self, member: Member, request: Request) -> None:
        """Raises a Refusal for what only this session's past, or the algorithm, forbids."""
        if request.action is not None and self._rows.overlap:
            raise Refusal(
                "bad_action",
                "this algorithm learns from its own actions only: leave action out",
                request.seq,
            )
        if request.seq == member.session.seq + 1 and member.session.state is State.answered:
            try:
                member.rows.check(request)
            except DataError as error:
                raise refusal_of(error, request.seq) from None

    def _end(self, member: Member, request: Request) -> None:
        summary = member.rows.end(request)
        member.steps += 1
        self._counters.steps += 1
        self._on_ended(member, [{"stream": 0, **summary}])
        member.last_return = summary["return"]
        seed = self._seeds.next(member)
        answer = {"kind": "episode", "seq": request.seq, **summary, "seed": seed}
        member.session.reply(answer)
        send_to(member, answer)

    def _on_ended(self, member: Member, episodes: list[dict[str, Any]]) -> None:
        self._counters.ended += len(episodes)
        self._policies.end_episodes(member.mode, episodes, member.rows.metrics)
        if self._evaluations is not None and member.mode == "evaluate":
            self._evaluations.on_ended(member, episodes)

    # -- to clients

    def answer(self) -> list[Member]:
        """Answers the next batch; returns its sessions."""
        now = self._now()
        if self._evaluations is not None:
            self._evaluations.tick()
            for member, request in self._evaluations.pop_ready().items():
                member.asked_at = now
                self._batcher.add(member, request)
        if self._policies.newest is None:
            return []
        batch = self._batcher.take(now, self._sessions, self._may_answer)
        if batch is None:
            return []
        if batch.mode == "train" and not self._rows.has_room:
            for member in batch.members:
                if not member.rows.muted:
                    self._counters.cut += member.rows.mute()
        self._infer(batch, now)
        self._counters.steps += len(batch.members) * self._num_envs
        return batch.members

    def _may_answer(self, mode: str) -> bool:
        return mode != "train" or not self._waits or self._rows.has_room

    def _infer(self, batch: Batch, began: float) -> None:
        members, num_envs = batch.members, self._num_envs
        streams = np.array([member.slot for member in members], np.int64)
        if num_envs > 1:
            streams = (streams[:, None] * num_envs + np.arange(num_envs)).reshape(-1)
        advice, shown = self._policies.act(
            batch.mode,
            streams,
            joined([request.obs for request in batch.requests]),
            np.concatenate([member.rows.first for member in members]),
        )
        asked_at = [member.asked_at for member in members]
        times = self._counters.times
        times.inference.add(self._now() - began)
        times.batch.add(len(members))
        times.queue.add(len(members) * began - sum(asked_at), len(members))
        actions: Any = shown
        if num_envs > 1:
            actions = shown.reshape(len(members), num_envs, *shown.shape[1:])
        elif self._policies.gives_numbers:
            actions = shown.tolist()
        version = advice.version
        for index, (member, action) in enumerate(zip(members, actions, strict=True)):
            session, rows = member.session, member.rows
            rows.advise(advice, index * num_envs)
            answer = {"kind": "action", "seq": session.seq, "action": action, "version": version}
            if num_envs > 1:
                answer["episodes"] = rows.ended()
            session.reply(answer)
            send_to(member, answer)
        now = self._now()
        for member in members:
            member.moved_at = now
        times.latency.extend([now - at for at in asked_at])
