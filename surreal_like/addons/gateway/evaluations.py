"""Evaluations that sessions of mode ``evaluate`` play for the learner; no socket.

An evaluation has one version of the parameters and a number of tickets. Each episode that begins
takes one, and every episode that has one is waited for, so short episodes are not favoured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from session.config import Config
from session.errors import RefusedError
from surreal_like.addons.gateway.messages import Request
from surreal_like.addons.gateway.policies import Policies
from surreal_like.addons.gateway.sessions import Session
from surreal_like.agent.evaluation import BY_CLIENTS, EvaluationReporter, score_of
from surreal_like.data.episodes import EpisodeSummary
from surreal_like.data.parameters import Parameters
from surreal_like.data.timestep import Flags


class _Player:
    """A session that evaluates: streams that have a ticket, and the request that waits."""

    def __init__(self, num_envs: int) -> None:
        self.tickets: Flags = np.zeros(num_envs, np.bool_)
        self.request: Request | None = None


class Evaluations:
    """Plays one version at a time, and reports its score.

    Args:
        config: Config of the run.
        policies: Policies whose agent of mode ``evaluate`` gets the version.
        scores: Reporter of scores to the learner.
        now: Function that returns the time in seconds.

    Attributes:
        trouble: Refusal of the newest score, for the log; "" after the owner has cleared it.
    """

    def __init__(
        self,
        config: Config,
        policies: Policies,
        scores: EvaluationReporter,
        now: Callable[[], float],
    ) -> None:
        self._policies, self.scores, self._now = policies, scores, now
        session = config.session_config
        self._episodes: int = session.stop.eval_episodes
        self._pause_seconds: float = session.evaluator.interval_seconds
        self._num_envs: int = session.gateway.num_envs
        # Beside own evaluators clients decide about no goal, and about no best checkpoint.
        decides = session.gateway.clients_decide or not session.evaluator.num
        self._mode = str(policies.modes["evaluate"]) if decides else BY_CLIENTS
        self.trouble = ""
        self._players: dict[Session, _Player] = {}
        self._version: Parameters | None = None
        self._played = (0, 0)
        self._free = 0
        self._finished: list[EpisodeSummary] = []
        self._playing = self._confirm = False
        self._began_at = self._next_at = now()

    @property
    def wants_newer(self) -> bool:
        """True while sessions wait for a version that was not evaluated."""
        if not self._players or self._playing or self.scores.busy:
            return False
        return any(player.request is not None for player in self._players.values())

    # -- sessions

    def add(self, session: Session, request: Request) -> None:
        """Keeps a request that needs an action until :meth:`pop_ready` returns it."""
        player = self._players.setdefault(session, _Player(self._num_envs))
        # A ticket of an episode that is begun anew stays with it.
        player.request = request
        session.held = True

    def on_ended(self, session: Session, episodes: list[dict[str, Any]]) -> None:
        """Counts episodes that have ended.

        Args:
            session: Session of the episodes.
            episodes: Episodes with their ``stream``, ``return`` and ``length``.
        """
        tickets = self._players[session].tickets
        self._finished += [each for each in episodes if tickets[each["stream"]]]
        tickets[[each["stream"] for each in episodes]] = False

    def leave(self, session: Session) -> None:
        """Forgets a session; the tickets of its open episodes go to others."""
        player = self._players.pop(session, None)
        if player is not None:
            self._free += int(np.count_nonzero(player.tickets))

    def pop_ready(self) -> Mapping[Session, Request]:
        """Removes and returns the requests that may be answered now."""
        if not self._playing:
            return {}
        ready = {}
        for session, player in self._players.items():
            request = player.request
            if request is None or session.connection is None:
                continue
            for stream in np.flatnonzero(session.slot.first & ~player.tickets):
                if self._free:
                    self._free -= 1
                    player.tickets[stream] = True
            # Where no episode begins while tickets are left, the open ones are played to their end.
            if self._free or player.tickets.any():
                ready[session], player.request, session.held = request, None, False
        return ready

    # -- evaluations

    def tick(self) -> None:
        """Begins, ends or reports an evaluation, if it is time."""
        if self.scores.busy:
            self._report()
        elif not self._playing:
            newest = self._policies.newest
            waits = self.wants_newer and self._now() >= self._next_at
            if waits and newest is not None and newest.order != self._played:
                self._version, self._played = newest, newest.order
                self._policies.freeze("evaluate", newest)
                self._begin(confirm=False)
        elif len(self._finished) == self._episodes:
            self._end()
        elif not self._players:
            # All sessions are gone: the next ones begin with a newer version.
            self._playing, self._played = False, (0, 0)

    def _begin(self, *, confirm: bool) -> None:
        self._playing, self._confirm = True, confirm
        self._free, self._finished = self._episodes, []
        self._began_at = self._now()

    def _end(self) -> None:
        assert self._version is not None  # an evaluation begins with one
        self._playing = False
        score = score_of(
            self._finished,
            self._version,
            env_steps=self._policies.agent("train").progress.env_steps,
            confirm=self._confirm,
            mode=self._mode,
            seconds=self._now() - self._began_at,
        )
        self.scores.report(score, {"flat": self._version.flat})

    def _report(self) -> None:
        try:
            again = self.scores.tick()
        except RefusedError as error:
            # The gateway goes on: its other sessions do not depend on scores.
            self.trouble, again = f"the learner refuses a score: {error}", False
        if again:
            self._begin(confirm=True)
        elif again is not None:
            self._next_at = self._now() + self._pause_seconds
