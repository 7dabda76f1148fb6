"""The rule by which an evaluation becomes ``checkpoints/best``, and ``best_eval`` of the result.

Evaluations of the first mode are compared, without those that confirm a goal. The best one of the
run is that of all policies together; each policy keeps its own best parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any


def is_better(value: float, best: float | None, *, newest: bool) -> bool:
    """Returns True for a higher return than the best one so far, and for the first.

    Args:
        value: return of the evaluation.
        best: the highest return so far; None without any.
        newest: True if of equal ones the newest is the best: with several agents, because in a game
            of a policy against itself all returns are 0.
    """
    return best is None or value > best or (newest and value == best)


def is_best_of_run(
    evaluation: Mapping[str, Any], best: Mapping[str, Any] | None, goals: Mapping[str, float]
) -> bool:
    """Returns True if an evaluation is better than the best one of the run so far.

    Args:
        evaluation: see :meth:`StopRule.on_evaluation`.
        best: the same, of the best one; None without any.
        goals: policy -> its goal. With goals the sum of the returns of these policies is compared,
            because a joint return may be 0 in each episode.
    """
    known = None if best is None else _return_of_run(best, goals)
    return is_better(_return_of_run(evaluation, goals), known, newest="policies" in evaluation)


def _return_of_run(evaluation: Mapping[str, Any], goals: Mapping[str, float]) -> float:
    if not goals:
        return float(evaluation["mean_return"])
    means = evaluation.get("policies", {})
    return float(sum(means.get(policy, -inf) for policy in goals))


def score_of_policy(evaluation: Mapping[str, Any], policy: str) -> dict[str, Any]:
    """Returns an evaluation with the mean return, version and iteration of one policy.

    Args:
        evaluation: ``policies`` has the mean return of the agents of each policy, ``versions``
            version and iteration of each; what they lack is that of the whole evaluation.
        policy: name of the policy.
    """
    mean = evaluation.get("policies", {}).get(policy, evaluation["mean_return"])
    whole = evaluation["version"], evaluation["iteration"]
    version, iteration = evaluation.get("versions", {}).get(policy, whole)
    return {**evaluation, "mean_return": mean, "version": version, "iteration": iteration}
