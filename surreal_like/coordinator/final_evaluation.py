"""The evaluation of the parameters with which a run ends; no sockets, no clock."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from session.config import Config
from session.process.heartbeat import Beat, State
from surreal_like.coordinator.stop_rule import Evaluation, Verdict, public

# Reason as long as the run goes on, and for what is killed at its end.
_NOT_YET = "the run had not come to its end"


def why_none(verdict: Verdict, session: Config) -> str:
    """Returns why a run ends without an evaluation of its last parameters; empty: it gets one.

    Args:
        verdict: outcome of the run.
        session: section ``session_config``.
    """
    if not session.evaluator.num:
        return "the run has no evaluators"
    if not session.evaluator.final_seconds:
        return "session_config.evaluator.final_seconds is 0"
    if verdict.status == "failed":
        return "the run failed"
    return "the run goes on later" if verdict.goes_on else ""


class FinalEvaluation:
    """The evaluation of the last parameters of a run, as far as it is known.

    Args:
        episodes: number of its episodes; those that were played by the deadline count.

    Attributes:
        evaluation: the one with the most episodes; None before the first.
    """

    def __init__(self, episodes: int) -> None:
        self.evaluation: Evaluation | None = None
        self._episodes, self._why = episodes, _NOT_YET
        self._version: tuple[int, int] | None = None
        self._digests: Mapping[str, str] = {}
        self._until = -math.inf

    def skip(self, why: str, evaluation: Evaluation | None = None) -> None:
        """Ends the wait.

        Args:
            why: reason for which there is none.
            evaluation: the one that has judged the same parameters before.
        """
        self._why, self._until = why, -math.inf
        self.evaluation = self.evaluation or evaluation

    def begin(
        self, version: tuple[int, int], digests: Mapping[str, str], *, until: float, seconds: float
    ) -> None:
        """Begins the wait.

        Args:
            version: order of the last publication.
            digests: policy -> SHA-256 of its last parameters.
            until: end of the wait [s].
            seconds: time that evaluators have.
        """
        self._version, self._digests, self._until = version, digests, until
        limit = f"{seconds:g} s (session_config.evaluator.final_seconds)"
        self._why = f"no episode was over within {limit}"

    def add(self, evaluation: Evaluation) -> bool:
        """Adds an evaluation; returns True if it is of the last parameters."""
        if (evaluation["incarnation"], evaluation["version"]) != self._version:
            return False
        known = 0 if self.evaluation is None else self.evaluation["episodes"]
        if evaluation["episodes"] > known:
            first, *others = self._digests.values()
            more = {"hashes": dict(self._digests)} if others else {}
            self.evaluation = {**evaluation, "hash": first, **more}
        return True

    def on_beats(self, beats: Iterable[Beat]) -> None:
        """Ends a wait if all evaluators have ended: at its limit, or before."""
        evaluators = [beat for beat in beats if beat.name.startswith("eval-")]
        ended = evaluators and all(beat.state is State.done for beat in evaluators)
        if ended and self._until > -math.inf:
            self.skip(f"{self._why}, and no evaluator is left")

    def over(self, now: float) -> bool:
        """Returns True once nothing has to be waited for."""
        known = 0 if self.evaluation is None else self.evaluation["episodes"]
        return known >= self._episodes or now >= self._until

    def result(self) -> dict[str, Any]:
        """Returns ``final_eval`` of ``result.json``; without one, its reason, too."""
        if self.evaluation is None:
            return {"final_eval": None, "final_eval_reason": self._why}
        names = ("version", "hash", "hashes")
        own = {name: self.evaluation[name] for name in names if name in self.evaluation}
        return {"final_eval": {**public(self.evaluation), **own}}
