"""Selects and summarizes the episodes of one evaluation, and delivers scores to the learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.launchers.control_client import NOTED
from session.process.clock import Clock
from session.wire import Message
from session.wire.requests import Call, DealerSocket, refusal
from session.wire.schema import Kinds
from surreal_like.data.episodes import CUT_SHORT, EpisodeSummary, mean_metrics
from surreal_like.data.parameters import Parameters

# Mode of the evaluations by clients that decide nothing: they are only shown.
BY_CLIENTS = "eval_clients"
_ANSWER_SECONDS = 5.0
# Environments of an evaluation, at most.
_STREAMS = 100
_GIVE_UP_SECONDS = 60.0


def num_streams(session: Config, episodes: int) -> int:
    """Returns the number of environments of an evaluation of so many episodes.

    Args:
        session: section ``session_config``.
        episodes: number of episodes, at least one.
    """
    return min(session.evaluator.num_envs or _STREAMS, episodes)


class Evaluation:
    """Counts a fixed quota of episodes from each stream.

    Counting the first episodes that end, from any stream, would favour short ones.

    Args:
        episodes: number of episodes that count, at least one per stream.
        num_envs: N.

    Attributes:
        first_ended: number of episodes of the first stream that have ended.
        env_steps: environment steps so far, including those of episodes that do not count.
        finished: summaries of the episodes that count.
    """

    def __init__(self, episodes: int, num_envs: int) -> None:
        self.first_ended = 0
        self._wanted = np.full(num_envs, episodes // num_envs)
        self._wanted[: episodes % num_envs] += 1
        self._left = episodes
        self.env_steps = 0
        self.finished: list[EpisodeSummary] = []

    @property
    def over(self) -> bool:
        """True once every stream has finished its quota."""
        return self._left == 0

    def count(self, ended: Sequence[tuple[int, EpisodeSummary]], steps: int) -> None:
        """Counts episodes.

        Args:
            ended: number of the environment and summary of each episode that has ended.
            steps: steps of the environments since the last call.
        """
        self.env_steps += steps
        for stream, summary in ended:
            self.add(stream, summary)

    def add(self, stream: int, summary: EpisodeSummary) -> None:
        """Adds an episode of a stream; those beyond its quota, or cut short, do not count."""
        self.first_ended += stream == 0
        if self._wanted[stream] and CUT_SHORT not in summary.get("metrics", ()):
            self._wanted[stream] -= 1
            self._left -= 1
            self.finished.append(summary)

    def summary(self) -> dict[str, Any]:
        """Returns the result of :func:`summarize`."""
        return summarize(self.finished)


def summarize(finished: Sequence[EpisodeSummary]) -> dict[str, Any]:
    """Returns ``mean_return``, ``std_return``, ``min_return``, ``max_return``, ``mean_length`` and
    ``episodes``, of raw rewards; with several policies also ``policies``, the mean return of the
    agents of each.

    Args:
        finished: summaries of at least one episode.
    """
    returns = np.array([each["return"] for each in finished])
    lengths = np.array([each["length"] for each in finished])
    prefix = "policy/"
    # Clients of a gateway give no metrics.
    by_policy = {
        name.removeprefix(prefix): mean
        for name, mean in mean_metrics([each for each in finished if "metrics" in each]).items()
        if name.startswith(prefix)
    }
    return {
        "mean_return": float(returns.mean()),
        "std_return": float(returns.std()),
        "min_return": float(returns.min()),
        "max_return": float(returns.max()),
        "mean_length": float(lengths.mean()),
        "episodes": len(returns),
        **({"policies": by_policy} if by_policy else {}),
    }


def score_of(
    finished: Sequence[EpisodeSummary],
    parameters: Parameters,
    others: Mapping[str, Parameters] = MappingProxyType({}),
    *,
    env_steps: int,
    confirm: bool,
    mode: str,
    seconds: float,
) -> dict[str, Any]:
    """Returns the score of an evaluation: the fields of ``evaluated``.

    Args:
        finished: summaries of the episodes that count, at least one.
        parameters: the version that played them.
        others: policy -> the version of another policy that played them, too.
        env_steps: environment steps of the run.
        confirm: True if the version was evaluated again.
        mode: mode of the agent.
        seconds: duration of the evaluation.
    """
    versions = {policy: [each.version, each.iteration] for policy, each in others.items()}
    return {
        **summarize(finished),
        "version": parameters.version,
        "incarnation": parameters.incarnation,
        "iteration": parameters.iteration,
        "env_steps": env_steps,
        "confirm": confirm,
        "mode": mode,
        "seconds": seconds,
        **({"versions": versions} if versions else {}),
    }


ANSWERS: Kinds = {"noted": NOTED}


class EvaluationReporter:
    """Reports one evaluation at a time, until the learner has acknowledged it.

    Args:
        socket: a dealer of ``learner.control`` for :data:`ANSWERS`.
        clock: clock for resending and for giving up.

    Attributes:
        best: mean return of the best evaluation known to the learner; None if it reported none.
    """

    def __init__(self, socket: DealerSocket, clock: Clock) -> None:
        self.socket = socket
        self.best: float | None = None
        self._clock = clock
        self._call: Call | None = None
        self._losses = 0

    @property
    def busy(self) -> bool:
        """True while a score has not been acknowledged."""
        return self._call is not None

    def report(self, score: Mapping[str, Any], flats: Mapping[str, npt.NDArray[np.uint8]]) -> None:
        """Starts to report a score.

        Args:
            score: the fields of ``evaluated``.
            flats: the evaluated parameters, sent if they are the best so far; empty: they cannot
                become the best.
        """

        def make() -> Message:
            losses, self._losses = self._losses, self.socket.losses()
            if self._losses != losses:
                # A restarted learner may know less than the one that reported its best score.
                self.best = None
            better = self.best is None or score["mean_return"] > self.best
            return Message("evaluated", dict(score), flats if better else {})

        give_up_at = self._clock.now() + _GIVE_UP_SECONDS
        self._call = Call(make, again_seconds=_ANSWER_SECONDS, give_up_at=give_up_at, forget=True)

    def tick(self) -> bool | None:
        """Sends, resends and receives without blocking.

        Returns:
            None until the score is acknowledged. Then True if the same version must be evaluated
            again, else False. False also if the learner has been unreachable for too long.

        Raises:
            RefusedError: the learner does not accept the score.
        """
        if self._call is None:
            return None
        now = self._clock.now()
        answer = self.socket.ask(self._call, now)
        if answer is None and not self._call.given_up(now):
            return None
        self._call = None
        if answer is None:
            return False
        if answer.kind == "refused":
            raise refusal(answer)
        self.best = answer.fields.get("best", self.best)
        return bool(answer.fields.get("confirm", False))
