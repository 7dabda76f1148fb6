"""Requests of admitted clients: resets, steps and ends become rows, and wait for their answers."""

from __future__ import annotations

from typing import Any

from surreal_like.errors import DataError
from surreal_like.gateway.admission import Seeds
from surreal_like.gateway.batcher import Batcher
from surreal_like.gateway.counters import Counters
from surreal_like.gateway.evaluations import Evaluations
from surreal_like.gateway.messages import Refusal, Request
from surreal_like.gateway.recorder import Rows
from surreal_like.gateway.replies import send_to
from surreal_like.gateway.session import Effect, State
from surreal_like.gateway.sessions import Member


class SessionRequests:
    """Writes the rows of requests.

    Args:
        rows: of the sessions.
        batcher: gets the requests that need an action.
        counters: of the gateway.
        seeds: of the episodes of clients.
        evaluations: keep the requests of their sessions; None: there is no such mode.
    """

    def __init__(
        self,
        rows: Rows,
        *,
        batcher: Batcher,
        counters: Counters,
        seeds: Seeds,
        evaluations: Evaluations | None,
    ) -> None:
        self._rows, self._batcher = rows, batcher
        self._num_envs = rows.num_envs
        self._counters, self._seeds = counters, seeds
        self._evaluations = evaluations

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
            self._on_acted(member, now)
            slot.step(request, has_room=not slot.muted or self._rows.has_room)
            member.steps += self._num_envs
            if self._num_envs > 1:
                self._on_ended(member, slot.ended())
        elif effect is Effect.end:
            self._on_acted(member, now)
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

    def _on_acted(self, member: Member, now: float) -> None:
        """Notes that the client has taken an action."""
        self._counters.times.think.add(now - member.moved_at)
        if member.rows.muted:
            self._counters.unrecorded += self._num_envs

    def _on_ended(self, member: Member, episodes: list[dict[str, Any]]) -> None:
        self._counters.ended += len(episodes)
        if self._evaluations is not None and member.mode == "evaluate":
            self._evaluations.on_ended(member, episodes)

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
                code = "bad_reward" if str(error).startswith("reward") else "bad_observation"
                raise Refusal(code, str(error), request.seq) from None

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
