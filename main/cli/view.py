"""State of a run from its files, read incrementally while it goes on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from session.component import Topology
from session.component_table import last_death
from session.config import Config
from session.folder import RunFolder
from session.format import duration
from session.heartbeat import Beat, read_beats
from session.state import State
from session.tail import Tail
from session.tensorplex.pages import PAGES
from surreal_like.topology import make_topology

if TYPE_CHECKING:
    from session.launchers.launcher import ComponentStatus, RunControl

# Events to show at the terminal; the others are only in events.jsonl. The launcher reports its own
# events separately.
TOLD_EVENTS = (
    "evaluation",
    "refused",
    "restored",
    "begins_anew",
    "bad_update",
    "standstill",
    "slow",
    "checkpoint_bad",
    "checkpoint_failed",
    "ending",
    *PAGES,
)
# Number of times that the same event is shown; further ones are only in the file.
_REPEATS = 3
# Number of episodes without a metric after which it is reported as missing.
_ENOUGH_EPISODES = 100
# Hysteresis: the first budget stays first until another one needs less than this share of its time.
_STAYS = 0.7
# A component with a younger heartbeat is not blocked by a long operation.
_BUSY_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Budget:
    """State of one budget.

    Args:
        name: ``env_steps``, ``iterations`` or ``seconds``.
        used, limit: in its unit.
        left_seconds: until it is used up at the present rate, None if unknown.
    """

    name: str
    used: float
    limit: float
    left_seconds: float | None

    @property
    def share(self) -> float:
        """The used share of the budget."""
        return self.used / self.limit if self.limit > 0 else 1.0


class View:
    """State of one run from its folder.

    Args:
        folder: the run folder, with ``config.yaml``.
        config: content of ``config.yaml``, if the caller has read it.
    """

    def __init__(self, folder: RunFolder, config: Config | None = None) -> None:
        self.folder = folder
        self.config = config if config is not None else folder.read_config()
        self.topology: Topology = make_topology(self.config)
        self.line: Mapping[str, Any] = {}
        self.beats: dict[str, Beat] = {}
        self.restarts: dict[str, int] = {}
        self.rows: dict[str, ComponentStatus] = {}
        self._progress = Tail(folder.progress)
        self._events = Tail(folder.events)
        self._told: dict[tuple[str, str, str], int] = {}
        self._best = -math.inf
        self._missing_shown = False
        self._first = ""

    def look(self, components: Mapping[str, Mapping[str, Any]] | None = None) -> bool:
        """Reads new data; returns True if there is a new line of progress.

        Args:
            components: name -> ``restarts`` and more, from the launcher.
        """
        if components is not None:
            self.restarts = {name: each["restarts"] for name, each in components.items()}
        lines = self._progress.objects()
        if lines:
            self.line = lines[-1]
        self.beats = read_beats(self.folder.alive)
        return bool(lines)

    def show(self, run: RunControl) -> None:
        """Reads new data, from the run's control if that knows more than the files."""
        self.rows = {row.name: row for row in run.status()}
        self.look()
        self.restarts = {name: row.restarts for name, row in self.rows.items()}
        self.line = self.line or run.progress()

    def pass_over(self) -> None:
        """Skips the events and best scores of earlier parts of the run."""
        self.look()
        self.pop_new_best()
        self._events.lines()

    def new_events(self) -> list[dict[str, Any]]:
        """Returns the events since the last call that are worth showing."""
        return [event for event in self._events.objects() if self._is_news(event)]

    def _is_news(self, event: Mapping[str, Any]) -> bool:
        kind = event.get("event")
        if kind not in TOLD_EVENTS:
            return False
        if kind == "evaluation":
            return str(event.get("detail")).endswith("(again)") or self._is_best(event)
        key = (str(event.get("component")), str(kind), str(event.get("detail")))
        self._told[key] = self._told.get(key, 0) + 1
        return self._told[key] <= _REPEATS

    def _is_best(self, score: Mapping[str, Any]) -> bool:
        """Returns True once for a new best score; untrained parameters do not count."""
        judging = self.config.session_config.evaluator.mode[0]
        if score.get("mode", judging) != judging:
            return False
        if "env_steps" not in score or not score["mean_return"] > self._best:
            return False
        self._best = score["mean_return"]
        return bool(score["env_steps"])

    @property
    def title(self) -> str:
        """Algorithm, environment and seed in one line."""
        config = self.config
        return (
            f"{config.algorithm} on {config.env_config.env_name} · "
            f"seed {config.session_config.seed}"
        )

    @property
    def counted(self) -> bool:
        """True if the clock of the run counts rounds instead of real time."""
        return (self.config.get("run") or {}).get("launcher") == "serial"

    def time(self, seconds: float) -> str:
        """Formats a duration on the clock of the run; marks counted time."""
        return f"{duration(seconds)} counted" if self.counted else duration(seconds)

    def states(self) -> dict[str, State]:
        """Returns component -> state, ``starting`` before its first heartbeat."""
        names = [component.name for component in self.topology]
        found = dict.fromkeys([*names, *self.rows, *self.beats])
        return {name: self._state(name) for name in found}

    def doing(self, name: str) -> str:
        """Returns the activity of a component if it takes long, or its latest death."""
        beat, row = self.beats.get(name), self.rows.get(name)
        if row is not None and (death := last_death(row)):
            return death
        if beat is None:
            return row.doing if row is not None else ""
        # An operation that blocks heartbeats is shown once one is late; others at once.
        beats = beat.busy_seconds == 0 or beat.age_seconds > _BUSY_SECONDS
        occupied = beat.state in (State.starting, State.failed) or beats
        return beat.doing if occupied else ""

    def _state(self, name: str) -> State:
        beat, row = self.beats.get(name), self.rows.get(name)
        if row is not None and row.state not in (State.running, State.gone):
            return row.state
        if beat is None:
            return row.state if row is not None else State.starting
        timeout: float = self.config.session_config.heartbeat.timeout
        alive = beat.state in (State.running, State.draining)
        return State.silent if alive and beat.late(timeout) else beat.state

    def budgets(self) -> list[Budget]:
        """Returns the budgets of the run; the one that will be used up first comes first."""
        stop, found = self.config.session_config.stop, []
        for name, used, per_second in self._uses():
            if stop[name] is not None:
                left = max(0.0, stop[name] - used)
                seconds = left / per_second if per_second > 0 else None
                found.append(Budget(name, used, stop[name], seconds))
        found.sort(key=self._wait_for)
        self._first = found[0].name if found else ""
        return found

    def _wait_for(self, budget: Budget) -> float:
        """Sort key of budgets; with hysteresis, so that the first one does not change often."""
        seconds = math.inf if budget.left_seconds is None else budget.left_seconds
        return seconds * (_STAYS if budget.name == self._first else 1.0)

    def _uses(self) -> list[tuple[str, float, float]]:
        """Returns name, used amount and use per second of each budget."""
        line, rates = self.line, self.rates
        return [
            ("env_steps", line.get("env_steps", 0), rates.get("env_steps_per_second") or 0.0),
            ("iterations", line.get("iterations", 0), rates.get("updates_per_second") or 0.0),
            ("seconds", line.get("wall_seconds", 0.0), 1.0),
        ]

    @property
    def rates(self) -> Mapping[str, Any]:
        """Present rates of the run; after its end the rates of the whole run."""
        result = self.folder.read_result() if self.folder.over else None
        found: Mapping[str, Any] = (result or self.line).get("rates") or {}
        return found

    def goal(self) -> tuple[str, float, float | None] | None:
        """Returns name, wanted value and present value of the goal; None without a goal."""
        stop = self.config.session_config.stop
        if stop.eval_return is not None:
            best = self.line.get("best_eval") or {}
            return "greedy return", float(stop.eval_return), best.get("mean_return")
        if stop.metric is not None and stop.above is not None:
            metric = (self.line.get("metrics") or {}).get(stop.metric) or {}
            return str(stop.metric), float(stop.above), metric.get("mean")
        return None

    def missing_metric(self) -> str:
        """Warns if no episode has reported the metric of the goal, once enough have ended."""
        wanted = self.config.session_config.stop.metric
        known = self.line.get("metrics") or {}
        if wanted is None or wanted in known or self.line.get("episodes", 0) < _ENOUGH_EPISODES:
            return ""
        there = ", ".join(known) or "none"
        return (
            f"the goal cannot be met: no episode has reported the metric {wanted} "
            f"(session_config.stop.metric); reported are: {there}"
        )

    def pop_missing_metric(self) -> str:
        """Returns :meth:`missing_metric` once, then an empty text."""
        text = "" if self._missing_shown else self.missing_metric()
        self._missing_shown |= bool(text)
        return text

    def pop_new_best(self) -> Mapping[str, Any] | None:
        """Returns a new best evaluation once, unless an event has reported it already."""
        best: Mapping[str, Any] = self.line.get("best_eval") or {}
        return best if self._is_best(best) else None

    @property
    def replay_fill(self) -> float | None:
        """The filled share of replay."""
        replay = self.line.get("replay") or {}
        if "size" not in replay:
            return None
        return float(replay["size"]) / float(self.config.learner_config.replay.capacity)
