"""Reports the progress of a run: lines of ``progress.jsonl``, and curves."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from session.loggerplex.append_file import AppendFile
from session.process.context import Context
from session.process.periodic import Every
from session.show.progress import mode_name
from session.show.wanted_agents import SENDERS_SECONDS, Advice, Load, want_agents
from surreal_like.coordinator.run_stats import RunStats
from surreal_like.data.policy_names import DEFAULT_POLICY
from surreal_like.learner.metrics import recent_means

_RECENT_UPDATES = 100
_RECENT_LOOKS = 1000
# Name of a quantile of the batches that wait -> share of the looks that found at most so many.
_QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}
_SECTIONS = ("return", "steps_per_second", "lag", "replay", "performance", "learn", "metrics")


class ProgressLog:
    """Appends lines to ``progress.jsonl``, and reports the same numbers as curves.

    Args:
        context: context of the learner's process.
        record: statistics of the run.
        path: path of the file.

    Attributes:
        due: True when called if the next line is due.
        line: the newest line.
    """

    def __init__(self, context: Context, record: RunStats, path: Path) -> None:
        seconds = context.config.session_config.learner.report_seconds
        self.due = Every(seconds=seconds, clock=context.clock.now)
        self.line: dict[str, Any] = {}
        self._record = record
        self._clock = context.clock
        self._file = AppendFile(path, lines=True)
        self._curves = {name: context.metrics(f"learner/{name}") for name in _SECTIONS}
        # Policy -> its last updates: one that is rarely updated has its share, too.
        self._updates: dict[str, deque[Mapping[str, Any]]] = {}
        self._began = context.clock.now()
        self._waited = 0.0
        # As `copying` of the batches since the last line.
        self._copying: float | None = None
        # Seconds in which the present shards had taken no rows, at the last line.
        self._senders_waited = 0.0
        self._loads: list[Load] = []
        self._advice: Advice | None = None
        # Number of batches that waited, at each of the last looks.
        self._waiting: deque[int] = deque(maxlen=_RECENT_LOOKS)
        # Time since which there is no batch; None while there is one.
        self._empty_since: float | None = self._began

    def add_batch(
        self, there: bool, asked: float, waiting: int = 0, copying: float | None = None
    ) -> None:
        """Records if a batch was available when the learner needed one.

        Args:
            there: True if it was; it may have been learned from meanwhile.
            asked: when it was needed, by the clock [s].
            waiting: number of batches that waited then.
            copying: seconds for which the learner waited for copies to its device; None: it has no
                copies made ahead.
        """
        if copying is not None:
            self._copying = (self._copying or 0.0) + copying
        self._waiting.append(waiting)
        if self._empty_since is not None:
            self._waited += asked - self._empty_since
        self._empty_since = None if there else asked

    def add_update(self, metrics: Mapping[str, Any], policy: str = DEFAULT_POLICY) -> None:
        """Adds the result of one ``learn`` of a policy."""
        if policy not in self._updates:
            self._updates[policy] = deque(maxlen=_RECENT_UPDATES)
        self._updates[policy].append(metrics)

    def clear_updates(self) -> None:
        """Removes all results of updates: the next line shows those of other weights only."""
        self._updates.clear()

    def add_evaluation(self, score: Mapping[str, Any], *, judges: bool) -> None:
        """Reports the return of one evaluation as a curve; other modes by their names."""
        judged = "confirmed" if score["confirm"] else "greedy"
        name = judged if judges else mode_name(score["mode"])
        self._curves["return"].add_scalar(name, score["mean_return"], score["env_steps"])

    def write(
        self,
        iteration: int,
        version: int,
        counts: Sequence[Mapping[str, Any]],
        *,
        agents: int | None = None,
        standstill: str | None = None,
        report: int | None = None,
    ) -> None:
        """Writes a line with the state of the run.

        Args:
            iteration: number of updates of the current weights.
            version: newest publication.
            counts: counts of all replay shards.
            agents: number of agents; None: their number is of no account now.
            standstill: the component that waits, and for what, if the run stands still.
            report: number of the report to the tuning of which this run is a trial.
        """
        line = self._record.line(iteration, version, counts)
        now = self._clock.now()
        seconds, self._began = max(1e-9, now - self._began), now
        line["waiting_share"] = min(1.0, self._waited / seconds)
        if self._copying is not None:
            line["feed_share"], self._copying = min(1.0, self._copying / seconds), 0.0
        line["senders_waiting_share"] = self._find_senders_share(counts, seconds)
        line["wanted"] = self._advise(line, agents)
        self._waited = 0.0
        line["batches_waiting"] = self._count_waiting()
        line["learn"] = {
            name: mean
            for updates in self._updates.values()
            for name, mean in recent_means(updates).items()
        }
        line["standstill"] = standstill
        if report is not None:
            line["report"] = report
        # While the disk is full, lines wait in memory; the error must not end the run.
        self._file.add((json.dumps(line) + "\n").encode())
        self._file.flush()
        self._draw(line)
        self.line = line

    def _find_senders_share(self, counts: Sequence[Mapping[str, Any]], seconds: float) -> float:
        """Returns the mean share of these seconds in which a shard took no rows."""
        waited = sum(shard["waiting_insert_seconds"] for shard in counts)
        # A shard that was started again counts from 0.
        new, self._senders_waited = max(0.0, waited - self._senders_waited), waited
        return float(min(1.0, new / (seconds * max(1, len(counts)))))

    def _advise(self, line: Mapping[str, Any], agents: int | None) -> dict[str, Any]:
        if agents is None:
            self._loads, self._advice = [], None
            return {"agents": None, "reason": ""}
        now = self._began
        load = Load(now, agents, line["waiting_share"], line["senders_waiting_share"])
        kept = [each for each in self._loads if each.at > now - 2 * SENDERS_SECONDS]
        self._loads = [*kept, load]
        self._advice = want_agents(self._loads, now, self._advice)
        return {"agents": self._advice.number, "reason": self._advice.reason}

    def _count_waiting(self) -> dict[str, float | None]:
        """Returns quantiles of the batches that waited; None before the first look."""
        if not self._waiting:
            return dict.fromkeys(_QUANTILES)
        found = np.quantile(list(self._waiting), list(_QUANTILES.values()))
        return dict(zip(_QUANTILES, map(float, found), strict=True))

    def _draw(self, line: Mapping[str, Any]) -> None:
        rates, best = line["rates"], line["best_eval"]
        train = line["train"]["mean_return_100"]
        guests = line.get("guests", {}).get("mean_return_100")
        own = {
            f"{name}/{key}": value
            for name, summary in line["metrics"].items()
            for key, value in summary.items()
        }
        sections: dict[str, Mapping[str, float | None]] = {
            "return": {"train": train, "guests": guests, "best": best and best["mean_return"]},
            "steps_per_second": {
                "env": rates["env_steps_per_second"],
                "learn": rates["updates_per_second"],
            },
            "lag": line["lag"],
            "replay": {**line["replay"], "samples_per_insert": rates["samples_per_insert"]},
            "performance": {
                "waiting_share": line["waiting_share"],
                "feed_share": line.get("feed_share"),
                **{f"batches_waiting_{key}": n for key, n in line["batches_waiting"].items()},
            },
            "learn": line["learn"],
            "metrics": own,
        }
        for name, values in sections.items():
            known = {tag: value for tag, value in values.items() if value is not None}
            self._curves[name].add_scalars(known, line["env_steps"])

    def close(self) -> None:
        """Writes lines that are still waiting."""
        self._file.flush()
