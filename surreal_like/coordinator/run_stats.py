"""Statistics of a run, and the lines and the result derived from them."""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from session.checkpoint import read_sealed, set_aside, write_sealed
from session.config import Config
from session.config.session_defaults import BUDGETS
from session.process.clock import Clock, Moment
from session.process.context import run_fingerprint, run_generation, run_part
from session.process.periodic import Rate
from session.show.progress import TRAINING_RETURN
from surreal_like.coordinator.lag import Lag
from surreal_like.coordinator.learners import add_numbers
from surreal_like.coordinator.policy_stats import PolicyStats
from surreal_like.coordinator.stop_rule import StopRule, Verdict
from surreal_like.data.policy_names import named_policies
from surreal_like.data.sender import Sender
from surreal_like.data.task import TASK, tasks_of
from surreal_like.experience.chunk_sender import MAX_UNACKED_BYTES
from surreal_like.experience.row_accounts import RowAccounts, steps_per_row

_RECENT_EPISODES = 100
# Counters whose rates a line of progress contains.
_COUNTED = ("env_steps", "updates")
# Key in a line of progress -> key in the counts of a shard.
_REPLAY = {
    "size": "size",
    "sampleable": "sampleable",
    "size_bytes": "bytes",
    "evicted": "evicted",
}


class RunStats:
    """All contents of ``progress.jsonl`` and ``result.json``, over all restarts.

    One class, because a line, the result and the state for a restart are views of the same counts.

    Args:
        config: the resolved experiment.
        clock: clock for durations; ``config.run`` has the start time of the command.

    Attributes:
        episodes: summaries of the newest training episodes of the run's own agents.
        guest_episodes: the same of machines that have joined; they are shown, and decide nothing.
        task: ``number`` and ``settings`` of the newest task, the ``version`` of
            the parameters at its choice, and the number of its ``episodes`` so far.
        task_episodes: summaries of the newest training episodes that were begun with that task.
        bad_at: iteration at which bad updates have ended a learner since the newest checkpoint, in
            this part of the run; None: none have.
        rolls_back: True until all shards have removed the rows that came after its checkpoint.
        learned: environment steps that the parameters have learned from, see
            :meth:`Learners.save_learned`.
        ended_seconds: wall time at which the end of the run began; None: it goes on. Rates of the
            whole run are those until then.
    """

    def __init__(self, config: Config, clock: Clock) -> None:
        session = config.session_config
        run = config.get("run") or {}
        # Without a launcher, and on Kubernetes, no command has recorded the start time.
        self._by_hand = "started" not in run
        self.accounts = _make_accounts(config, clock)
        self.judge = StopRule(session.stop, session.evaluator.mode)
        self.lag = Lag()
        self.iterations = 0
        self.repeated_iterations = 0
        # Part of the run in which the restored state was written; 0: nothing was restored.
        self.restored_part = 0
        # Newest version published before the restart, and the number of updates lost in it.
        self.restored_version = 0
        self.lost_iterations = 0
        # Counts of the present learner's plan, as `LearnerWorker.plan_counts` gives them.
        self.plan: Mapping[str, Any] = {}
        self._plan_before: Mapping[str, Any] = {}
        self.policies = {
            name: PolicyStats(self.lag, lambda: self._rated_seconds)
            for name in named_policies(config)
        }
        # Generation, and what is added to own counts to have the time of the weights.
        self.generation = run_generation(config)
        self._is_trial = bool(run.get("trial"))
        self._offsets: dict[str, float] = {}
        # Real time in which it waited for its tuning, and that of the clock in this part.
        self.held_seconds = self._held = 0.0
        # Own episodes before the newest load.
        self._episodes_before = 0
        self._config = config
        self._clock = clock
        started: float = run.get("started", clock.time())
        # Seconds of this part of the run before this process; from then on its clock counts.
        self._age = max(0.0, clock.time() - started)
        if "boot" in run:
            self._age = Moment.of_run(run).seconds_since()
        self._since = clock.now()
        self._before: float = run.get("seconds_before", 0.0)
        began = run.get("first_started", started)
        whole = f"{run_fingerprint(config)}/{session.seed}/{began}"
        self.run_id = hashlib.sha256(whole.encode()).hexdigest()[:12]
        self._has_tasks = tasks_of(config.env_config) is not None
        self.task: dict[str, Any] = {"number": 0, "settings": {}, "version": 0, "episodes": 0}
        self.episodes: deque[Mapping[str, Any]] = deque(maxlen=_RECENT_EPISODES)
        self.guest_episodes: deque[Mapping[str, Any]] = deque(maxlen=_RECENT_EPISODES)
        self.task_episodes: deque[Mapping[str, Any]] = deque(maxlen=_RECENT_EPISODES)
        self.bad_at: int | None = None
        self.rolls_back = False
        self.learned: Mapping[str, Any] = {}
        self.ended_seconds: float | None = None
        self._new_episodes = 0
        # Rows that ended with a shard, in words; the coordinator reports and removes them.
        self.losses: list[str] = []
        self._rates = {name: Rate(clock=lambda: self.wall_seconds) for name in _COUNTED}
        self._row_bytes = 1.0

    @property
    def wall_seconds(self) -> float:
        """Wall time since the start of the run's command, including earlier parts [seconds].

        Without the time in which a trial waited for its tuning.
        """
        here = self._clock.now() - self._since
        return max(0.0, self._age + here - self._held) + self._before

    @property
    def _rated_seconds(self) -> float:
        return max(1e-9, self.ended_seconds or self.wall_seconds)

    def add_held(self, seconds: float, *, real_seconds: float) -> None:
        """Adds time in which a trial waited for its tuning [s].

        Args:
            seconds: seconds of the run's clock.
            real_seconds: real seconds of the wall clock.
        """
        self._held += seconds
        self.held_seconds += real_seconds

    def add_episodes(
        self, finished: Iterable[Mapping[str, Any]], own: Mapping[str, float] | None = None
    ) -> None:
        """Adds summaries of finished training episodes.

        Args:
            finished: ``return``, ``length`` and the environment's and agent's own ``metrics``;
                ``guest`` marks those of joined machines, and of clients that decide nothing.
            own: the learner's own metrics at their end.
        """
        for episode in finished:
            self._new_episodes += 1
            if episode.get("guest"):
                self.guest_episodes.append(episode)
                continue
            metrics = {**(own or {}), **(episode.get("metrics") or {})}
            self.episodes.append({**episode, "metrics": metrics})
            if metrics.get(TASK) == self.task["number"]:
                self.task_episodes.append(self.episodes[-1])
                self.task["episodes"] += 1

    def begin_task(self, number: int, settings: Mapping[str, Any], version: int) -> None:
        """Sets the newest task, which has no episodes yet."""
        self.task = {"number": number, "settings": settings, "version": version, "episodes": 0}
        self.task_episodes.clear()

    def add_counts(self, counts: Mapping[str, Mapping[str, Any]]) -> None:
        """Adds the newest counts of every shard."""
        for key, shard in sorted(counts.items()):
            if lost := self.accounts.add_shard(key, shard):
                self.losses.append(f"{Sender.parse(key).name} ended, and with it {lost:,} rows")
            if shard["size"]:
                self._row_bytes = shard["bytes"] / shard["size"]

    def verdict(self) -> Verdict | None:
        """Returns the verdict of the stop rule if the run has to end now, else None."""
        return self.judge.verdict(self.find_used(), self.goal_metrics())

    def goal_metrics(self) -> dict[str, float]:
        """Returns the present value of each metric that may be a goal."""
        metrics = self.user_metrics()
        mean = self.train()["mean_return_100"]
        if mean is not None and len(self.episodes) == self.episodes.maxlen:
            metrics[TRAINING_RETURN] = mean
        return metrics

    def find_used(self) -> dict[str, float]:
        """Returns name of a budget -> how much of it the run has used."""
        counted = {"wall_seconds": self.wall_seconds, **self._counters(0)}
        return {name: counted[counter] for name, counter in BUDGETS.items()}

    def times(self) -> dict[str, float]:
        """Returns how far the weights are, by the names of budgets.

        These are the run's own counts, until it loads the checkpoint of another run.
        """
        return {name: used + self._offsets.get(name, 0) for name, used in self.find_used().items()}

    def load(self, times: Mapping[str, float], generation: int, version: int = 0) -> None:
        """Begins a generation: sets the time to that of a checkpoint; own counts go on.

        Args:
            times: times of the checkpoint, as :meth:`times`.
            generation: generation of the run from now on.
            version: evaluations of older ones are no scores from now on.
        """
        self.generation, self._offsets = generation, {}
        # A checkpoint of an earlier release has not all of them.
        known = ((name, own) for name, own in self.times().items() if name in times)
        self._offsets = {name: times[name] - own for name, own in known}
        # The plan of another learner counts from 0.
        self._plan_before, self.plan = add_numbers(self._plan_before, self.plan), {}
        self.episodes.clear()
        self.guest_episodes.clear()
        self._episodes_before = self.accounts.episodes
        self.judge.begin(version)

    def train(self) -> dict[str, float | None]:
        """Returns numbers of the last 100 training episodes, None before the first."""
        return _summarize(self.episodes)

    def _of_guests(self) -> dict[str, Any]:
        """Returns the same of joined machines under ``guests``; empty without any."""
        return {"guests": _summarize(self.guest_episodes)} if self.guest_episodes else {}

    def user_metrics(self) -> dict[str, float]:
        """Returns means of the users' own metrics over the last 100 episodes, without NaN."""
        means = {name: _finite(row, _mean) for name, row in self._own_numbers().items()}
        return {name: mean for name, mean in means.items() if mean is not None}

    def _own_numbers(self) -> dict[str, list[float]]:
        values: dict[str, list[float]] = {}
        for episode in self.episodes:
            for name, value in episode["metrics"].items():
                values.setdefault(name, []).append(float(value))
        return dict(sorted(values.items()))

    def judge_training(self) -> None:
        """Passes the training episodes to the stop rule."""
        mean = self.train()["mean_return_100"]
        self.judge.on_training(mean, len(self.episodes), self.find_used())

    def line(
        self, iteration: int, version: int, counts: Iterable[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Returns one line of ``progress.jsonl``; its lag is that since the previous line."""
        self._rates["env_steps"].reach(self.accounts.env_steps)
        self._rates["updates"].reach(self.iterations)
        new_episodes, self._new_episodes = self._new_episodes, 0
        shards = list(counts)
        results = self.judge.results()
        return {
            "run_id": self.run_id,
            "wall_seconds": self.wall_seconds,
            **self._counters(iteration),
            **(self._of_trial() if self._is_trial else {}),
            "version": version,
            "episodes_this_iter": new_episodes,
            "train": self.train(),
            **self._of_guests(),
            "eval": results["eval"],
            "best_eval": results["best_eval"],
            **self.judge.shown(),
            "rates": {
                **{f"{name}_per_second": kept.per_second() for name, kept in self._rates.items()},
                "samples_per_insert": self._samples_per_insert(),
            },
            "lag": self.lag.pop_recent(),
            "latency": self.lag.latency(),
            "experience": self.experience(),
            "plan": self._plan_counts(),
            "replay": {name: sum(shard[key] for shard in shards) for name, key in _REPLAY.items()},
            "metrics": self._metric_summaries(),
            **self._of_task(),
            **self._of_policies(PolicyStats.line),
        }

    def lag_of(self, policy: str) -> Lag:
        """Returns the lag of a policy; that of the run, if there is one policy."""
        return self.policies.get(policy, self).lag

    def _of_policies(
        self, numbers: Callable[[PolicyStats, int], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Returns the numbers of each policy under ``policies``; empty without names."""
        if not self.policies:
            return {}
        own, judged = self.user_metrics(), (self.judge.last or {}).get("policies", {})
        return {
            "policies": {
                name: {
                    **numbers(stats, self.accounts.agent_steps(name)),
                    "experience": self.accounts.of_policy(name),
                    "train": {"mean_return_100": own.get(f"policy/{name}")},
                    "eval": {"mean_return": judged.get(name)},
                }
                for name, stats in self.policies.items()
            }
        }

    def _of_task(self) -> dict[str, Any]:
        """Returns number and settings of the newest task under ``task``; empty without any."""
        task = self.task
        shown = {name: task[name] for name in ("number", "settings")}
        return {"task": shown} if self._has_tasks else {}

    def _of_trial(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "time": self.times(),
            "episodes_since_load": self.accounts.episodes - self._episodes_before,
            "held_seconds": self.held_seconds,
        }

    def result(self, verdict: Verdict, iteration: int) -> dict[str, Any]:
        """Returns the content of ``result.json`` without its ``components``."""
        seconds = self._rated_seconds
        config, clients = self._config, self.accounts.clients()
        restarts = self.accounts.env_restarts
        return {
            "status": verdict.status,
            "goal_met": verdict.goal_met,
            "reason": verdict.reason,
            "run_id": self.run_id,
            "algorithm": config.algorithm,
            "env_name": config.env_config.env_name,
            "seed": config.session_config.seed,
            "wall_seconds": self.wall_seconds,
            **self._counters(iteration),
            **self.judge.results(),
            "train": self.train(),
            **self._of_guests(),
            "rates": {
                "env_steps_per_second": self.accounts.env_steps / seconds,
                "updates_per_second": self.iterations / seconds,
                "samples_per_insert": self._samples_per_insert(),
            },
            "lag": self.lag.summary(),
            "experience": self.experience(),
            "senders": self.accounts.by_name(),
            **self._of_task(),
            **({"env_restarts": restarts} if restarts else {}),
            **({"gateway": clients} if clients else {}),
            **self._of_policies(PolicyStats.result),
        }

    def experience(self) -> dict[str, int]:
        """Returns row counts by fate."""
        accounts = self.accounts
        unknown = accounts.killed * self._unacked_rows()
        plans = (self._plan_before, self.plan)
        return {
            **accounts.rows()._asdict(),
            "unknown_at_most": unknown,
            "sampled": accounts.sampled,
            "replayed": accounts.replayed,
            "left_out": sum(plan.get("rows_left_out", 0) for plan in plans),
            "learned": sum(plan.get("rows_taken", 0) for plan in plans),
            "lost": accounts.lost(),
            "rolled_back": accounts.rolled_back,
            **accounts.count_unlearned(),
        }

    def _plan_counts(self) -> dict[str, Any]:
        """Returns the counts of the plan, with the mean duration of a call of each operator."""
        counts = add_numbers(self._plan_before, self.plan)
        for operator in counts.get("operators", {}).values():
            timed, seconds = operator.pop("timed"), operator.pop("seconds")
            operator["call_seconds"] = seconds / timed if timed else None
        return counts

    def _unacked_rows(self) -> int:
        """Returns the upper bound of rows that one sender may hold unreported."""
        sender = self._config.session_config.sender
        chunk = sender.flush_iteration * self._config.env_config.num_envs
        if self._config.learner_config.gradient_columns:
            chunk = 1
        by_bytes = int(MAX_UNACKED_BYTES / max(1.0, self._row_bytes))
        return min(by_bytes, int(sender.max_unacked_chunks * chunk))

    def _counters(self, iteration: int) -> dict[str, int]:
        env_steps = self.accounts.env_steps
        return {
            "env_steps": env_steps,
            "frames": env_steps * int(self._config.env_config.action_repeat),
            "episodes": self.accounts.episodes,
            "iterations": self.iterations,
            "iteration": iteration,
            "repeated_iterations": self.repeated_iterations,
        }

    def _samples_per_insert(self) -> float | None:
        inserted = self.accounts.rows().inserted
        return self.accounts.sampled / inserted if inserted else None

    def _metric_summaries(self) -> dict[str, dict[str, float | None]]:
        reduce = {"mean": _mean, "min": np.min, "max": np.max}
        return {
            name: {key: _finite(row, function) for key, function in reduce.items()}
            for name, row in self._own_numbers().items()
        }

    def state(self, iteration: int, version: int) -> dict[str, Any]:
        """Returns the state that a restarted learner needs, as plain data.

        Args:
            iteration: iteration of the current weights.
            version: version of the newest published parameters.
        """
        lags = {name: each.lag.state() for name, each in self.policies.items()}
        return {
            "run_id": self.run_id,
            "part": run_part(self._config),
            "accounts": self.accounts.state(),
            "judge": self.judge.state(),
            "lag": self.lag.state(),
            **({"lags": lags} if lags else {}),
            "task": dict(self.task),
            "task_episodes": list(self.task_episodes),
            "plan": add_numbers(self._plan_before, self.plan),
            "learned": dict(self.learned),
            "episodes": list(self.episodes),
            "guest_episodes": list(self.guest_episodes),
            "wall_seconds": self.wall_seconds,
            "iterations": self.iterations,
            "iteration": iteration,
            "version": version,
            "repeated_iterations": self.repeated_iterations,
            "generation": self.generation,
            "offsets": dict(self._offsets),
            "episodes_before": self._episodes_before,
            "held": [self._held, self.held_seconds],
            "bad_at": self.bad_at,
            "rolls_back": self.rolls_back,
            "times": self.times(),
        }

    def save(self, path: Path, iteration: int, version: int) -> None:
        """Writes :meth:`state` to a file, for the time between two checkpoints."""
        write_sealed(path, self.state(iteration, version))

    def restore(
        self, path: Path, iteration: int | None, saved: Mapping[str, Any] | None = None
    ) -> str | None:
        """Restores a file of :meth:`save`; does nothing if it does not exist.

        Args:
            path: the file; a damaged one is set aside.
            iteration: iteration of the restored weights; None: they are those of another run.
            saved: the state in the checkpoint, used if the file is damaged or missing.

        Returns:
            A description of the error, None without one.
        """
        complaint: str | None = None
        if path.exists():
            try:
                self._take(read_sealed(path), iteration)
            except Exception as error:  # noqa: BLE001 - damage shows as any error
                complaint = f"{path}: {' '.join(str(error).split())}; {set_aside(path)}"
            else:
                return None
        if saved is not None:
            try:
                self._take(saved, iteration)
            except Exception as error:  # noqa: BLE001 - as above
                return f"{complaint or ''} the checkpoint holds no counters: {error!r}".strip()
        return complaint

    def reach(self, line: Mapping[str, Any], iteration: int | None) -> None:
        """Raises the counters to those of the newest line of progress, as they never fall.

        The restored record may be older: a damaged one was replaced by that of a checkpoint, or a
        full disk had no room for a new one.

        Args:
            line: line of ``progress.jsonl``; empty: there is none.
            iteration: iteration of the restored weights; None: they are those of another run.
        """
        if not line:
            return
        self.accounts.reach(line, gone=line["wall_seconds"] <= self._before)
        ahead = 0 if iteration is None else iteration - (line.get("iteration") or 0)
        iterations = line["iterations"] + max(0, ahead)
        if iterations > self.iterations:
            self.iterations, self.lost_iterations = iterations, max(0, -ahead)
            repeated = (line.get("repeated_iterations") or 0) + max(0, -ahead)
            self.repeated_iterations = max(repeated, self.repeated_iterations)
        self.restored_version = max(self.restored_version, line.get("version") or 0)
        self._rates["env_steps"].begin(self.accounts.env_steps)
        self._rates["updates"].begin(self.iterations)

    def _take(self, state: Mapping[str, Any], iteration: int | None) -> None:
        """Takes over a state; if it is incomplete, raises an error and changes nothing."""
        session = self._config.session_config
        accounts = _make_accounts(self._config, self._clock)
        judge = StopRule(session.stop, session.evaluator.mode)
        accounts.restore(state["accounts"])
        judge.restore(state["judge"])
        lags = [(self.lag, state["lag"])]
        lags += [(each.lag, state["lags"][name]) for name, each in self.policies.items()]
        for _, kept in lags:
            Lag().restore(kept)
        episodes = list(state["episodes"])
        # The weights may be older than this state, or some updates newer.
        ahead = 0 if iteration is None else iteration - state["iteration"]
        iterations = state["iterations"] + max(0, ahead)
        repeated = state["repeated_iterations"] + max(0, -ahead)
        part, version = int(state["part"]), int(state["version"])
        before = float(state["wall_seconds"])
        self.accounts, self.judge = accounts, judge
        for lag, kept in lags:
            lag.restore(kept)
        self.episodes.extend(episodes)
        self.guest_episodes.extend(state.get("guest_episodes", []))
        self._offsets = dict(state.get("offsets", {}))
        self._episodes_before = int(state.get("episodes_before", 0))
        held, self.held_seconds = map(float, state.get("held", (0, 0)))
        # That of an earlier part is not in the time of this one.
        if part == run_part(self._config):
            self._held = held
            self.bad_at, self.rolls_back = state.get("bad_at"), state.get("rolls_back", False)
        # An older record has no episodes of a task.
        self.task |= state.get("task", {})
        self.task_episodes.extend(state.get("task_episodes", []))
        # A run that began before plans were counted has none.
        self._plan_before = state.get("plan", {})
        self.learned = state.get("learned", {})
        self.iterations, self.repeated_iterations = iterations, repeated
        self.restored_part, self.restored_version = part, version
        self.lost_iterations = max(0, -ahead)
        if self._by_hand:
            self.run_id, self._before = state["run_id"], before
        # The clock of another machine may be slow.
        self._age += max(0.0, before - self.wall_seconds)
        self._rates["env_steps"].begin(self.accounts.env_steps)
        self._rates["updates"].begin(self.iterations)


def _summarize(episodes: Collection[Mapping[str, Any]]) -> dict[str, float | None]:
    returns = [float(episode["return"]) for episode in episodes]
    return {
        "mean_return_100": _finite(returns, _mean),
        "min_return_100": min(returns, default=None),
        "max_return_100": max(returns, default=None),
        "episode_length_100": _finite([episode["length"] for episode in episodes], _mean),
    }


def _mean(values: npt.NDArray[np.float64]) -> float:
    """Returns the mean, which is finite as the values are: their sum may not be."""
    with np.errstate(over="ignore"):
        mean = float(np.mean(values))
    return mean if math.isfinite(mean) else float(np.sum(values / len(values)))


def _finite(values: list[float], function: Any) -> float | None:
    array: npt.NDArray[np.float64] = np.asarray(values)
    finite = array[np.isfinite(array)]
    return float(function(finite)) if finite.size else None


def _make_accounts(config: Config, clock: Clock) -> RowAccounts:
    return RowAccounts(
        steps_per_row=steps_per_row(config),
        now=clock.now,
        quiet_seconds=config.session_config.heartbeat.timeout,
    )
