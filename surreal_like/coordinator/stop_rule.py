"""Stop conditions of a run, judgement of scores by them, and its end; no sockets, no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import inf
from types import MappingProxyType
from typing import Any

from session.config import Config
from session.config.session_defaults import BUDGETS
from session.errors import NOTICE
from session.process.context import run_part
from surreal_like.coordinator.best_evaluation import is_best_of_run
from surreal_like.data.sender import Sender

Evaluation = Mapping[str, Any]

_CANDIDATES = 1000
_NO_METRICS: Mapping[str, float] = MappingProxyType({})
_PUBLIC = (
    "mean_return",
    "std_return",
    "min_return",
    "max_return",
    "episodes",
    "iteration",
    "env_steps",
    "wall_seconds",
)

# Reason of a run that its tuning has asked to end, to be continued later.
LEFT = "saved, to be continued by its tuning"
# Reason of a run whose learner has lost its launcher, or was asked to end without one.
ASKED = "the learner was asked to stop"
# What a trial does until it has an answer.
WAITS = "waits for the tuner"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a run and its reason.

    Args:
        status: ``stopped``, ``failed`` or ``interrupted``.
        goal_met: None if the run has no goal.
        reason: text for users.
    """

    status: str
    goal_met: bool | None
    reason: str

    @property
    def resumable(self) -> bool:
        """True if no user ended the run: machines that have joined wait until it goes on."""
        return self.status == "interrupted" and self.reason in (NOTICE, ASKED)

    @property
    def goes_on(self) -> bool:
        """True if this is the end of a part of the run: it, or the trial that it is, goes on."""
        return self.resumable or (self.status == "interrupted" and self.reason == LEFT)

    @classmethod
    def of_result(cls, result: Mapping[str, Any] | None) -> Verdict:
        """Returns the outcome in a ``result.json``; None: it cannot be read."""
        found = result or {}
        return cls(str(found.get("status")), None, str(found.get("reason")))


class StopRule:
    """Decides if a run ends.

    Args:
        stop: ``session_config.stop``: ``eval_return`` or ``metric`` with ``above`` is a goal, the
            names in ``BUDGETS`` are budgets.
        modes: ``session_config.evaluator.mode``: evaluations in the first one decide.

    Attributes:
        others: mode that does not decide -> its newest evaluation, None before the first.
    """

    def __init__(self, stop: Mapping[str, Any], modes: Sequence[str]) -> None:
        self._stop = stop
        # A run that began earlier has none.
        self._eval_returns: Mapping[str, float] = stop.get("eval_returns") or {}
        self._mode = modes[0]
        self.others: dict[str, Evaluation | None] = {
            mode: None for mode in modes if not self.judges(mode)
        }
        self.last: Evaluation | None = None
        self.best: Evaluation | None = None
        self.confirmed: tuple[float, float] | None = None
        # Evaluation that has confirmed the goal.
        self.met_by: Evaluation | None = None
        self.greedy: tuple[float, int] | None = None
        self.rolling: tuple[float, int] | None = None
        self._candidates: dict[tuple[int, int], Evaluation] = {}
        # What was reached, for the verdict.
        self._reached = ""
        # Versions before it were those of other settings.
        self._since = 0

    def begin(self, version: int) -> None:
        """Forgets the newest evaluations; those of versions before this one are ignored."""
        self.last, self._candidates = None, {}
        self.others = dict.fromkeys(self.others)
        self._since = version

    @property
    def has_goal(self) -> bool:
        """True if the run has a goal."""
        return self._is_evaluated or self._stop["metric"] is not None

    @property
    def _is_evaluated(self) -> bool:
        """True if evaluations decide about a goal."""
        return self._stop["eval_return"] is not None or bool(self._eval_returns)

    def _is_met(self, evaluation: Evaluation) -> bool:
        goal, means = self._stop["eval_return"], evaluation.get("policies", {})
        return (goal is None or evaluation["mean_return"] >= goal) and all(
            means.get(policy, -inf) >= least for policy, least in self._eval_returns.items()
        )

    def _describe(self, evaluation: Evaluation) -> str:
        means = evaluation.get("policies", {})
        each = [
            f"{policy} {_beside(means[policy], least)}"
            for policy, least in self._eval_returns.items()
            if policy in means
        ]
        return ", ".join(each) or _beside(evaluation["mean_return"], self._stop["eval_return"])

    def judges(self, mode: str) -> bool:
        """Returns True for the mode whose evaluations decide; other modes are only shown."""
        return mode == self._mode

    def on_evaluation(self, evaluation: Evaluation) -> bool:
        """Adds a finished evaluation; returns True if its version must be evaluated again.

        Args:
            evaluation: ``mode``, ``mean_return`` and its spread, ``episodes``, ``incarnation``,
                ``version``, ``iteration``, ``env_steps``, ``wall_seconds``, ``confirm``; with
                several policies ``policies``, the mean return of the agents of each.
        """
        if evaluation["version"] < self._since:
            return False
        if not self.judges(evaluation["mode"]):
            self.others[evaluation["mode"]] = evaluation
            return False
        order = _order(evaluation)
        mean = float(evaluation["mean_return"])
        if evaluation["confirm"]:
            first = self._candidates.pop(order, None)
            if first is not None and self._is_met(evaluation) and self.confirmed is None:
                self.confirmed, self.met_by = (float(first["mean_return"]), mean), evaluation
                self._reached = f"{self._describe(first)}, again {self._describe(evaluation)}"
                self.greedy = (evaluation["wall_seconds"], evaluation["env_steps"])
            return False
        # Of several evaluators one may report an older version later.
        if self.last is None or order >= _order(self.last):
            self.last = evaluation
        if is_best_of_run(evaluation, self.best, self._eval_returns):
            self.best = evaluation
        if not self._is_evaluated or not self._is_met(evaluation) or self.confirmed is not None:
            return False
        self._candidates[order] = evaluation
        if len(self._candidates) > _CANDIDATES:
            # The confirmation of a killed evaluator never arrives.
            del self._candidates[next(iter(self._candidates))]
        return True

    def on_training(
        self, mean_return: float | None, episodes: int, used: Mapping[str, float]
    ) -> None:
        """Records when the mean of the last 100 training episodes first reaches the goal."""
        goal = self._stop["eval_return"]
        if goal is None or mean_return is None or self.rolling is not None or episodes < 100:
            return
        if mean_return >= goal:
            self.rolling = (used["seconds"], int(used["env_steps"]))

    def verdict(
        self, used: Mapping[str, float], metrics: Mapping[str, float] = _NO_METRICS
    ) -> Verdict | None:
        """Returns the verdict if the run has to end now, else None.

        A budget of experience is looked at from the first update on, which may need more of it. A
        budget of time that was used without an update is a failure: nothing was learned.

        Args:
            used: name of a budget -> how much of it the run has used.
            metrics: present value of each metric that may be a goal.
        """
        stop = self._stop
        if self.confirmed is not None:
            goal, goals = stop["eval_return"], self._eval_returns
            named = [] if goal is None else [f"eval_return {goal:g}"]
            each = ", ".join(f"{policy} {least:g}" for policy, least in goals.items())
            named += [f"eval_returns {each}"] if each else []
            reason = f"{' and '.join(named)} reached: {self._reached}"
            return Verdict("stopped", True, reason)
        metric, above = stop["metric"], stop["above"]
        if metric is not None:
            value = metrics.get(metric)
            if value is not None and value >= above:
                return Verdict("stopped", True, f"{metric} {above:g} reached: {value:.4g}")
        for name in BUDGETS:
            # A run that began earlier has not all of them.
            limit = stop.get(name)
            if limit is None or used[name] < limit:
                continue
            if name != "seconds" and not used["iterations"]:
                continue
            goal_met = False if self.has_goal else None
            reason = f"budget of {limit:g} {name} used"
            if not used["iterations"]:
                return Verdict("failed", goal_met, f"{reason} before the first update")
            return Verdict("stopped", goal_met, reason)
        return None

    def results(self) -> dict[str, Any]:
        """Returns ``eval``, ``best_eval`` and ``solved`` of ``result.json``."""
        last = None if self.last is None else public(self.last)
        if last is not None:
            last["confirmed"] = list(self.confirmed) if self.confirmed else None
        greedy, rolling = self.greedy or (None, None), self.rolling or (None, None)
        return {
            "eval": last,
            "best_eval": None if self.best is None else public(self.best),
            "solved": {
                "greedy_seconds": greedy[0],
                "greedy_env_steps": greedy[1],
                "rolling_seconds": rolling[0],
                "rolling_env_steps": rolling[1],
            },
        }

    def shown(self) -> dict[str, Any]:
        """Returns mode that does not decide -> its newest evaluation, for a line of progress."""
        others = self.others.items()
        return {mode: None if each is None else public(each) for mode, each in others}

    def state(self) -> dict[str, Any]:
        """Returns plain data for a checkpoint."""
        return {
            "others": self.others,
            "last": self.last,
            "best": self.best,
            "greedy": self.greedy,
            "rolling": self.rolling,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a result of :meth:`state`; an old confirmation does not end the run again."""
        self.last, self.best = state["last"], state["best"]
        self.greedy = tuple(state["greedy"]) if state["greedy"] else None
        self.rolling = tuple(state["rolling"]) if state["rolling"] else None
        # The modes may have changed since; states of older releases have none.
        others = state.get("others", {})
        self.others = {mode: others.get(mode) for mode in self.others}


def _beside(value: float, goal: float) -> str:
    """Formats a mean return with one decimal more than its goal has."""
    exponent = Decimal(str(goal)).normalize().as_tuple().exponent
    return f"{value:.{max(0, -int(exponent)) + 1}f}"


def _order(evaluation: Evaluation) -> tuple[int, int]:
    return evaluation["incarnation"], evaluation["version"]


def public(evaluation: Evaluation) -> dict[str, Any]:
    """Returns what ``result.json`` and ``progress.jsonl`` contain of an evaluation."""
    return {name: evaluation[name] for name in (*_PUBLIC, "policies") if name in evaluation}


def end_before(
    config: Config, result: Mapping[str, Any] | None, written_in_part: int
) -> Verdict | None:
    """Returns the verdict if this part of the run ended before this start of the learner, else
    None.

    If components idle at the end, the result is not read before the learner is restarted; agents
    that still act must get the end announced again. A run that was only interrupted continues.

    Args:
        config: config of the run.
        result: the content of ``result.json``.
        written_in_part: part of the run in which the learner's statistics were written.
    """
    status = (result or {}).get("status")
    if config.session_config.at_end != "idle" or written_in_part != run_part(config):
        return None
    if result is None or status not in ("stopped", "failed"):
        return None
    return Verdict(status, result.get("goal_met"), str(result.get("reason", "")))


def still_here(counts: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Returns senders, as ``name/incarnation``, whose goodbye a shard still waits for.

    A sender replaced by a later incarnation can send no goodbye any more; one that changed its
    shard sends it only to the last shard.

    Args:
        counts: shard -> its newest counts.
    """
    newest: dict[str, int] = {}
    waiting: dict[str, Sender] = {}
    gone = set()
    for shard in counts.values():
        for key, rows in shard["senders"].items():
            sender = Sender.parse(key)
            newest[sender.account] = max(newest.get(sender.account, 0), sender.incarnation)
            if rows["goodbye"]:
                gone.add(key)
            elif not rows["closed"]:
                waiting[key] = sender
    return {
        key
        for key, sender in waiting.items()
        if key not in gone and sender.incarnation == newest[sender.account]
    }


class Shutdown:
    """The end of a run as a state machine: drain, wait for goodbyes, or for the deadline.

    Args:
        now: start of the shutdown [s].
        timeout_seconds: limit of its duration.
        shards: number of replay shards.
    """

    def __init__(self, now: float, *, timeout_seconds: float, shards: int) -> None:
        self._deadline = now + timeout_seconds
        self._shards = shards

    def over(
        self,
        now: float,
        counts: Mapping[str, Mapping[str, Any]],
        is_final: Callable[[str], bool],
    ) -> bool:
        """Returns True once no sender has to be waited for, or at the deadline.

        Args:
            now: seconds.
            counts: shard -> newest counts.
            is_final: returns True for a sender once its leave message has arrived.
        """
        if now >= self._deadline:
            return True
        draining = [shard for shard in counts.values() if shard["draining"]]
        if len(draining) < self._shards or still_here(counts):
            return False
        goodbyes = {
            key
            for shard in counts.values()
            for key, sender in shard["senders"].items()
            if sender["goodbye"] and not sender["closed"]
        }
        return all(map(is_final, goodbyes))
