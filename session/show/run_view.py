"""Model of a run for everything that shows runs; reads its files incrementally."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from session.addons import telemetry_kinds
from session.config import Config
from session.config.session_defaults import BUDGETS
from session.errors import ConfigError
from session.folder import EVENT, RunFolder
from session.launchers.registry import launcher_of
from session.launchers.status import ComponentStatus, status_row
from session.launchers.supervisor_state_machine import SCALABLE
from session.loggerplex.terminal import printable
from session.process.component import Topology
from session.process.heartbeat import ALIVE, Beat, State, read_beats
from session.show.components import ComponentRow, component_row, find_absence
from session.show.progress import TRAINING_RETURN, Progress
from session.show.text import duration
from session.tail import Tail
from session.tensorplex.pages import PAGES, Pages

if TYPE_CHECKING:
    from session.launchers.handle import RunHandle

_SILENT_SECONDS = 10.0
# State of a run that was killed.
CUT_OFF = "cut off"
# State of a run at its mirror that had not ended when it was copied.
_COPIED = "copied before its end"


def state_of(folder: RunFolder, launcher: str | None = None) -> str:
    """Returns the state of a run, in one to three words.

    Args:
        folder: the run folder.
        launcher: name of its launcher, if known.
    """
    result = folder.read_result() or {}
    running = result.get("status", "running") == "running"
    if running and folder.copy_of:
        return _COPIED
    if folder.in_use or (running and is_alive(folder)):
        return "running"
    if running and launcher_of(launcher or "").remote:
        # Its files are on the cluster and are not read here.
        return f"on {launcher}"
    return _without_result(folder) if running else outcome_word(result)


def outcome_word(result: Mapping[str, Any]) -> str:
    """Returns the outcome of a run that is over: that of its goal, if it ended as planned."""
    if result.get("status") != "stopped":
        return str(result.get("status"))
    return {True: "goal met", False: "goal not met", None: "done"}[result.get("goal_met")]


def took(times: Mapping[str, Any], *, counted: bool) -> str:
    """Formats the duration of a run: ``wall_seconds``, and ``real_seconds`` of a counted clock."""
    seconds, real = times.get("wall_seconds"), times.get("real_seconds")
    wall = duration(seconds)
    if not counted or seconds is None:
        return wall
    return f"{wall} counted" if real is None else f"{duration(real)} ({wall} counted)"


def _without_result(folder: RunFolder) -> str:
    """Returns the state of a run without living processes and without a result."""
    if folder.progress.exists():
        return CUT_OFF
    beats = read_beats(folder.alive).values()
    if not beats:
        return "planned"
    # A learner's script reports no progress and writes no result.
    return "ended" if all(beat.state == State.done for beat in beats) else CUT_OFF


def is_alive(folder: RunFolder) -> bool:
    """Returns True if a component is alive; a user may have started components by hand."""
    beats = read_beats(folder.alive).values()
    return any(b.state in ALIVE and not b.late(_SILENT_SECONDS) for b in beats)


# Events to show at the terminal; the others are only in events.jsonl. The launcher reports its own
# events separately.
# Numbers of an evaluation that are shown.
_SCORE = ("mean_return", "episodes", "env_steps")
SHOWN_EVENTS = (
    "evaluation",
    "task",
    "refused",
    "restored",
    "begins_anew",
    "rows_lost",
    "memory_not_kept",
    "bad_update",
    "fenced",
    "rolled_back",
    "large_values",
    "standstill",
    "slow",
    "too_old",
    "checkpoint_bad",
    "checkpoint_failed",
    "not_written",
    "recording_damaged",
    "recording_stopped",
    "renamed",
    "ending",
    *PAGES,
)
# Events that `status` shows for as long as the run goes on.
_LASTING = ("not_written", "fenced")
# Number of times that the same event is shown; further ones are only in the file.
_REPEATS = 3
# Number of episodes without a metric after which it is reported as missing.
_ENOUGH_EPISODES = 100
# Hysteresis: the first budget stays first until another one needs less than this share of its time.
_STAYS = 0.7


class Budget(NamedTuple):
    """State of one budget, in its unit; ``left_seconds`` is None if unknown."""

    name: str
    used: float
    limit: float
    left_seconds: float | None

    @property
    def share(self) -> float:
        """The used share of the budget."""
        return self.used / self.limit if self.limit > 0 else 1.0


class RunView:
    """State of one run; :meth:`refresh` reads what is new.

    Args:
        folder: the run folder, with ``config.yaml``.
        config: content of ``config.yaml``, if the caller has read it.
        curves: dotted names of the numbers whose history :attr:`progress` keeps; None: all.

    Attributes:
        progress: the reported numbers; ``progress.line`` is the newest line.
        launcher: name of the launcher, such as ``local``; empty: unknown.
        running: a process of the run lives.
        components: component -> its row.
        beats: component -> its last heartbeat, if that is on this machine.
        pages: addresses of TensorBoard and Prometheus.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: Config | None = None,
        curves: Collection[str] | None = (),
    ) -> None:
        self.folder = folder
        self.config = config if config is not None else folder.read_config()
        self.progress = Progress(folder.progress, curves)
        self.launcher = folder.launcher
        self.running = True
        self.components: dict[str, ComponentRow] = {}
        self.beats: dict[str, Beat] = {}
        self.pages = Pages(folder)
        self._planned: dict[str, str] = {}
        self._events = Tail(folder.events, shape=EVENT)
        self._warnings = Tail(folder.events, shape=EVENT)
        self._failed: list[str] = []
        self._shown: dict[tuple[str, str, str], int] = {}
        self._best = -math.inf
        self._missing_shown = False
        self._first = ""

    def refresh(
        self,
        run: RunHandle | None = None,
        *,
        components: Mapping[str, Mapping[str, Any]] | None = None,
        telemetry: bool = False,
    ) -> bool:
        """Reads new data; returns True if there is a new line of progress.

        Args:
            run: control of the run; without it there are only the files.
            components: component -> ``restarts``, if this process supervises the run.
            telemetry: ask Tensorplex, too, for rates and memory of the components.
        """
        news = self.progress.read()
        statuses: dict[str, ComponentStatus] = {}
        if run is not None:
            self.running = run.running
            statuses = {status.name: status for status in run.status()}
            if not news and not self.folder.progress.is_file():
                # The run folder is on another machine, which sends only the newest line.
                self.progress.add(run.progress())
        self.beats = read_beats(self.folder.alive)
        # A component without a supervisor may be started much later, by hand or by a cluster.
        unseen = State.waiting if components is None else State.starting
        for name in dict.fromkeys([*self._names(), *(components or {}), *self.beats]):
            if name not in statuses:
                beat = self.beats.get(name)
                restarts = (components or {}).get(name, {}).get("restarts", 0)
                state, pid = (beat.state, beat.pid) if beat else (unseen, 0)
                statuses[name] = status_row(name, beat, state=state, pid=pid, restarts=restarts)
        reported: Mapping[str, Mapping[str, Any]] = {}
        if telemetry and self.running:
            # Imported late: sockets must not delay the start of a command that needs none.
            from session.launchers.control_client import reported_status

            reported = reported_status(self.folder)
        late: float = self.config.session_config.heartbeat.timeout
        self.components = {
            name: component_row(
                status, self.beats.get(name), reported.get(name), timeout_seconds=late
            )
            for name, status in statuses.items()
        }
        return news

    def _names(self) -> Mapping[str, str]:
        """Names and kinds of the components that the run was started with; none once it is over."""
        if self.folder.over:
            return {}
        if not self._planned:
            with suppress(ConfigError):
                topology = Topology.load(self.folder.topology)
                self._planned = {each.name: each.kind for each in topology}
        return self._planned

    def away(self, kinds: Collection[str] = ()) -> dict[str, str]:
        """Returns the components that do not work though the run goes on, with the reasons.

        Args:
            kinds: kinds of components; empty: all.
        """
        found = {}
        for name, row in self.components.items() if self.state == "running" else ():
            kind = self._planned.get(name, name.partition("-")[0])
            if not kinds or kind in kinds:
                # Those that are not planned were scaled up, or watch the run.
                scalable = name not in self._planned or kind in SCALABLE
                found[name] = find_absence(row, self.beats.get(name), scalable=scalable)
        return {name: reason for name, reason in found.items() if reason}

    @property
    def line(self) -> Mapping[str, Any]:
        """The newest line of ``progress.jsonl``, empty before the first."""
        return self.progress.line

    def pass_over(self) -> None:
        """Skips the events and best scores of earlier parts of the run."""
        self.refresh()
        self._is_best(self.line.get("best_eval") or {})
        self._events.lines()

    def new_events(self) -> list[dict[str, Any]]:
        """Returns the events to show that were added since the last call."""
        found = [event for event in self._events.objects() if self._is_new(event)]
        # Also from the report: it is later than the event, but the event may be lost.
        best = self.line.get("best_eval") or {}
        if self._is_best(best):
            found.append({"event": "evaluation", **best})
        if not self._missing_shown and (missing := self.missing_metric()):
            self._missing_shown = True
            found.append({"event": "missing_metric", "detail": missing})
        return found

    def _is_new(self, event: Mapping[str, Any]) -> bool:
        kind = event.get("event")
        if kind not in SHOWN_EVENTS:
            return False
        if kind == "evaluation":
            return str(event.get("detail")).endswith("(again)") or self._is_best(event)
        key = (str(event.get("component")), str(kind), str(event.get("detail")))
        self._shown[key] = self._shown.get(key, 0) + 1
        return self._shown[key] <= _REPEATS

    def _is_best(self, score: Mapping[str, Any]) -> bool:
        """Returns True once for a new best score; untrained parameters do not count."""
        judging = self.config.session_config.evaluator.mode[0]
        if score.get("mode", judging) != judging:
            return False
        mean, episodes, env_steps = (score.get(name) for name in _SCORE)
        if mean is None or episodes is None or env_steps is None or not mean > self._best:
            return False
        self._best = mean
        return bool(env_steps)

    @property
    def title(self) -> str:
        """Algorithm, environment and seed in one line."""
        config = self.config
        policies = (config.get("policies") or {}).values()
        named = dict.fromkeys(str(each["algorithm"]) for each in policies if "algorithm" in each)
        return (
            f"{' and '.join(named) or config.algorithm} on {config.env_config.env_name} · "
            f"seed {config.session_config.seed}"
        )

    @property
    def counted(self) -> bool:
        """True if the clock of the run counts rounds instead of real time."""
        return launcher_of(self.launcher).one_thread

    @property
    def state(self) -> str:
        """``running``, ``waiting`` while its core is in the queue of a cluster, or the outcome."""
        going = self.running and not self.folder.over
        if going and "core" in self.components:
            return str(self.components["core"].state)
        return "running" if going else state_of(self.folder, self.launcher)

    @property
    def reason(self) -> str:
        """Reason of the end, in one line; empty before it."""
        return " ".join(str((self.folder.read_result() or {}).get("reason") or "").split())

    def time(self, seconds: float | None) -> str:
        """Formats a duration on the clock of the run; marks counted time."""
        return took({"wall_seconds": seconds}, counted=self.counted)

    def budgets(self) -> list[Budget]:
        """Returns the budgets of the run; the one that will be used up first comes first."""
        stop, found = self.config.session_config.stop, []
        line, rates = self.line, self.rates
        speeds = {
            "env_steps": rates.get("env_steps_per_second"),
            "iterations": rates.get("updates_per_second"),
            "seconds": 1.0,
        }
        for name, counter in BUDGETS.items():
            # A run that began earlier has not all of them.
            if stop.get(name) is not None:
                used, per_second = line.get(counter, 0), speeds.get(name) or 0.0
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

    @property
    def rates(self) -> Mapping[str, Any]:
        """Present rates of the run; after its end the rates of the whole run."""
        result = self.folder.read_result() if self.folder.over else None
        found: Mapping[str, Any] = (result or self.line).get("rates") or {}
        return found

    def goals(self) -> list[tuple[str, float, float | None]]:
        """Returns name, wanted value and present value of each goal, of policies by their names.

        All have to be reached; empty without a goal.
        """
        stop, found = self.config.session_config.stop, []
        if stop.eval_return is not None:
            best = self.line.get("best_eval") or {}
            found.append(("greedy return", float(stop.eval_return), best.get("mean_return")))
        for policy, wanted in (stop.get("eval_returns") or {}).items():
            last = (self.line.get("policies") or {}).get(policy, {}).get("eval", {})
            found.append((policy, float(wanted), last.get("mean_return")))
        if not found and stop.metric is not None and stop.above is not None:
            found.append((str(stop.metric), float(stop.above), self._mean_of(stop.metric)))
        return found

    def _mean_of(self, metric: str) -> float | None:
        """Returns the mean of a metric over recent episodes; None if it is not known yet."""
        if metric == TRAINING_RETURN:
            mean: float | None = (self.line.get("train") or {}).get("mean_return_100")
            return mean
        return ((self.line.get("metrics") or {}).get(metric) or {}).get("mean")

    def lasting(self) -> list[str]:
        """Returns warnings of this part of the run that hold on, with the causes.

        They are of what could not be written, such as a sink, of metrics, logs and copies whose
        process was killed before it had written the last ones, of points that were lost after the
        last event, and of guests that were fenced.
        """
        began = (self.config.get("run") or {}).get("started", 0.0)
        for event in self._warnings.objects():
            if event["event"] in _LASTING and (event.get("time") or 0.0) >= began:
                detail = printable(" ".join(str(event.get("detail")).split()))
                self._failed.append(f"{event.get('component')}: {event['event']}: {detail}")
        return [*dict.fromkeys(self._failed), *self._list_killed(), *self._list_lost()]

    def _list_killed(self) -> list[str]:
        """Names the processes that failed at their last writes, once the run is over."""
        ends = (self.folder.read_result() or {}).get("components") or {}
        codes = {name: (ends.get(name) or {}).get("exit_code") for name in telemetry_kinds()}
        return [
            f"{name}: ended with exit code {code}: what it had not written by then"
            f"{self._place_of(name)} is lost"
            for name, code in codes.items()
            if code
        ]

    def _list_lost(self) -> list[str]:
        """Names points that a sink lost so late that no event could be written, from heartbeats."""
        if not self.folder.over or any("not_written: sink" in said for said in self._failed):
            return []
        points = {name: beat.status.get("dropped_points") for name, beat in self.beats.items()}
        return [
            f"{name}: not_written: points lost on the way{self._place_of(name)}: {number:,.0f}"
            for name, number in points.items()
            if number
        ]

    def _place_of(self, name: str) -> str:
        """Returns where a telemetry server writes besides the run folder."""
        sinks = ", ".join(self.config.session_config.tensorplex.sinks)
        return f" to {sinks}" if name == "tensorplex" else ""

    def missing_metric(self) -> str:
        """Warns if no episode has reported the metric of the goal, once enough have ended."""
        wanted = self.config.session_config.stop.metric
        known = self.line.get("metrics") or {}
        if wanted in (None, *known) or self.line.get("episodes", 0) < _ENOUGH_EPISODES:
            return ""
        own = (self.line.get("train") or {}).get("mean_return_100") is not None
        if not own and self.line.get("guests"):
            return (
                f"the goal cannot be met: {wanted} is of the episodes of the run's own agents, and "
                "all that have ended are of joined machines or clients; set "
                "session_config.stop.eval_return"
            )
        if wanted == TRAINING_RETURN:
            return ""
        there = ", ".join(known) or "none"
        return (
            f"the goal cannot be met: no episode has reported the metric {wanted} "
            f"(session_config.stop.metric); reported are: {there}"
        )
