"""Answers of a gateway: the requests that wait are answered by one call of the agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from surreal_like.gateway.batcher import Batch, Batcher
from surreal_like.gateway.counters import Counters
from surreal_like.gateway.inference import joined
from surreal_like.gateway.policies import Policies
from surreal_like.gateway.recorder import Rows
from surreal_like.gateway.replies import send_to
from surreal_like.gateway.sessions import Member, Sessions


class Answering:
    """Answers one batch of requests after the other.

    Args:
        policies: act.
        rows: of the sessions.
        sessions: all of this gateway.
        batcher: has the requests that wait.
        counters: of the gateway.
        now: returns the time in seconds.
        waits: True: requests whose rows replay does not take have to wait; False: they are
            answered, and their rows are not recorded.
        numbers: True: an action is one number.
    """

    def __init__(
        self,
        policies: Policies,
        rows: Rows,
        *,
        sessions: Sessions,
        batcher: Batcher,
        counters: Counters,
        now: Callable[[], float],
        waits: bool,
        numbers: bool,
    ) -> None:
        self._policies, self._rows = policies, rows
        self._sessions, self._batcher = sessions, batcher
        self._counters, self._now = counters, now
        self._waits, self._numbers = waits, numbers

    def answer(self) -> list[Member]:
        """Answers the next batch; returns its sessions."""
        if self._policies.newest is None:
            return []
        now = self._now()
        batch = self._batcher.take(now, self._sessions, self._may_answer)
        if batch is None:
            return []
        if batch.mode == "train" and not self._rows.has_room:
            for member in batch.members:
                if not member.rows.muted:
                    self._counters.cut += member.rows.mute()
        self._infer(batch, now)
        self._counters.steps += len(batch.members) * self._rows.num_envs
        return batch.members

    def _may_answer(self, mode: str) -> bool:
        return mode != "train" or not self._waits or self._rows.has_room

    def _infer(self, batch: Batch, began: float) -> None:
        members, num_envs = batch.members, self._rows.num_envs
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
        elif self._numbers:
            actions = shown.tolist()
        for index, (member, action) in enumerate(zip(members, actions, strict=True)):
            session, rows = member.session, member.rows
            rows.advise(advice, index * num_envs)
            answer = {
                "kind": "action",
                "seq": session.seq,
                "action": action,
                "version": advice.version,
            }
            if num_envs > 1:
                answer["episodes"] = rows.ended()
            session.reply(answer)
            send_to(member, answer)
        now = self._now()
        for member in members:
            member.moved_at = now
        times.latency.extend([now - at for at in asked_at])
