"""Numbers of a run that the rules look at, from its folder."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property

from session.config import Config
from session.errors import SurrealError
from session.folder import EVENT
from session.process.clock import boot_number
from session.process.heartbeat import ALIVE
from session.show.components import CORE
from session.show.run_view import RunView
from session.tail import Tail
from surreal_like.data.policy_names import DEFAULT_POLICY, PolicyId, policies_of

# Curves that a RunView must keep so that the whole run is judged, not its newest lines only.
CURVES = ("waiting_share", "experience.dropped")
# A component that lives for a shorter time is not compared with others [s].
_COMPARED_SECONDS = 3.0
# V-trace corrects for a lag; no algorithm on queues of unrolls was tried with a larger one.
_BORNE_VERSIONS = 20
_DISK_EVENTS = ("not_written", "checkpoint_failed")


class Facts:
    """Numbers of a run; None, 0 or empty where they are unknown.

    Args:
        view: the run; call :meth:`RunView.refresh` before.

    Attributes:
        line: the newest line of ``progress.jsonl``.
        replay: ``learner_config.replay``.
        session: ``session_config``.
        latency: mean seconds of each stage of traced experience.
        updates: number of updates.
    """

    def __init__(self, view: RunView) -> None:
        self._view, self.line = view, view.line
        self.replay = view.config.learner_config.replay
        self.session = view.config.session_config
        # Counted seconds are not those of a user.
        self.latency: Mapping[str, float] = {} if view.counted else self.line.get("latency") or {}
        self.updates = int(self.line.get("iterations") or 0)

    def stage(self, name: str) -> float | None:
        """Returns the mean duration of a stage of traced experience [s]."""
        return self.latency.get(f"{name}_seconds")

    def rows(self, fate: str) -> int:
        """Returns the number of rows with a fate, such as ``dropped``."""
        return int((self.line.get("experience") or {}).get(fate) or 0)

    @property
    def dropped_rows(self) -> int:
        """Number of rows that replay has refused, but for the end, at which a queue may be full."""
        counts = self._view.progress.curve("experience.dropped", "seconds").y
        if self._view.state == "running" or len(counts) < 2:
            return self.rows("dropped")
        return int(counts[-2])

    def rate(self, what: str) -> float:
        """Returns the present rate of ``updates`` or ``env_steps`` [1/s]."""
        return float((self.line.get("rates") or {}).get(f"{what}_per_second") or 0.0)

    @cached_property
    def waiting_share(self) -> float | None:
        """Share of its time in which the learner had no batch, after the first update."""
        if not self.updates or self._view.counted:
            return None
        waiting = self._view.progress.curve("waiting_share", "seconds")
        first = self._first("iterations")
        shares = [y for x, y in zip(waiting.x, waiting.y, strict=True) if x >= (first or 0.0)]
        return statistics.fmean(shares) if shares else self.line.get("waiting_share")

    @property
    def learn_seconds(self) -> float | None:
        """Approximate duration of an update [s]."""
        rate, waiting = self.rate("updates"), self.waiting_share
        return None if waiting is None or not rate else (1.0 - waiting) / rate

    @cached_property
    def filling_share(self) -> float:
        """Share of the time since the first environment step in which there was no update."""
        end = self.line.get("wall_seconds") or 0.0
        acting, learning = self._first("env_steps"), self._first("iterations")
        if acting is None or end <= acting or self._view.counted:
            return 0.0
        return ((end if learning is None else learning) - acting) / (end - acting)

    def _first(self, curve: str) -> float | None:
        """Returns when a counter was first above 0 [s]."""
        found = self._view.progress.curve(curve, "seconds")
        return next((x for x, y in zip(found.x, found.y, strict=True) if y), None)

    def _shares(self, kind: str, counter: str) -> Mapping[str, float]:
        """Returns component -> share of its life in a state whose seconds it counts."""
        if self._view.counted:
            return {}
        found = {}
        for name, beat in self._view.beats.items():
            life = beat.life_seconds
            if name.startswith(f"{kind}-") and life > _COMPARED_SECONDS and counter in beat.status:
                found[name] = beat.status[counter] / life
        return found

    @cached_property
    def busy_share(self) -> float | None:
        """Share of its time in which the busiest replay shard works."""
        idle = self._shares("replay", "idle_seconds").values()
        return 1.0 - min(idle) if idle else None

    @cached_property
    def lacking_share(self) -> float:
        """Share of the time of replay in which requests for batches wait for rows."""
        return max(self._shares("replay", "waiting_sample_seconds").values(), default=0.0)

    @cached_property
    def held_share(self) -> float:
        """Share of the time of replay in which agents may send nothing."""
        return max(self._shares("replay", "waiting_insert_seconds").values(), default=0.0)

    @cached_property
    def agent_rates(self) -> Mapping[str, float]:
        """Agent -> environment steps per second in which it may act: it is not made to wait."""
        idle = self._shares("agent", "idle_seconds")
        rates = self._shares("agent", "env_steps")
        return {name: rate / max(1e-3, 1.0 - idle.get(name, 0.0)) for name, rate in rates.items()}

    @property
    def step_share(self) -> float | None:
        """Share of the time of an agent for a chunk that its environments take."""
        step, act = self.stage("step"), self.stage("act")
        return None if step is None or act is None or not step + act else step / (step + act)

    @property
    def way_seconds(self) -> float | None:
        """Time of a request for batches, and its answer, on their way; None without a network."""
        addresses = self._view.folder.addresses
        if not addresses.is_file() or b"tcp://" not in addresses.read_bytes():
            return None
        request, answer = self.stage("request"), self.stage("answer")
        return None if request is None or answer is None else max(0.0, request - answer)

    @property
    def batches_ahead(self) -> int:
        """Largest number of batches that are requested ahead."""
        learner = self.session.learner
        at_once = 1 if self.consumes else learner.batches_per_request
        return int(learner.prefetch_requests * at_once)

    @cached_property
    def consumes(self) -> bool:
        """True for a replay that gives each row only once."""
        return _consumes(self._view.config.learner_config)

    def lags(self) -> Iterator[tuple[str, float, int]]:
        """Yields policy, mean lag and borne lag [versions] where rows are not replayed."""
        lines = self.line.get("policies") or {DEFAULT_POLICY: self.line}
        for name, each in policies_of(self._view.config).items():
            own = each.get("learner_config", self._view.config.learner_config)
            lag = (lines.get(name, {}).get("lag") or {}).get("mean_versions")
            if lag is not None and _consumes(own):
                limit = own.replay.evict_rule.max_version_lag or _BORNE_VERSIONS
                yield PolicyId(name).add(" of policy {}"), lag, limit

    @property
    def scored(self) -> int:
        """Number of updates of the parameters of the newest evaluation."""
        return int((self.line.get("eval") or {}).get("iteration") or 0)

    @property
    def score_age_seconds(self) -> float:
        """Time since the parameters of the newest evaluation were replaced."""
        updates = self._view.progress.curve("iterations", "seconds")
        replaced = (x for x, y in zip(updates.x, updates.y, strict=True) if y > self.scored)
        now = float(self.line.get("wall_seconds") or 0.0)
        return now - next(replaced, now)

    @cached_property
    def restarts(self) -> Mapping[str, int]:
        """Component -> number of its restarts."""
        ends = (self._view.folder.read_result() or {}).get("components") or {}
        found = {name: row.restarts for name, row in self._view.components.items()}
        found |= {name: end.get("restarts") or 0 for name, end in ends.items()}
        return {name: times for name, times in found.items() if times}

    @cached_property
    def agents(self) -> int:
        """Number of agents that are known, alive or not."""
        return sum(name.startswith("agent-") for name in self._view.components)

    @cached_property
    def missing(self) -> Mapping[str, str]:
        """Components of a running run that do not work, with the reasons."""
        return self._view.away()

    @cached_property
    def missing_core(self) -> Mapping[str, str]:
        """Those of :attr:`missing` without which nothing is learned."""
        return self._view.away(CORE)

    @cached_property
    def disk_errors(self) -> Sequence[str]:
        """Events of this part of the run about files that could not be written."""
        began = (self._view.config.get("run") or {}).get("started", 0.0)
        events = Tail(self._view.folder.events, shape=EVENT).objects()
        return [
            f"{each.get('component')}: {' '.join(str(each.get('detail')).split())}"
            for each in events
            if each["event"] in _DISK_EVENTS
            and (each.get("time") or 0.0) >= began
            # A tracker that is away is no full disk.
            and "sink" not in each
        ]

    @cached_property
    def free_bytes(self) -> int | None:
        """Free space of the disk of a running run."""
        if self._view.state == "running":
            with suppress(OSError):
                return shutil.disk_usage(self._view.folder.path).free
        return None

    @cached_property
    def clocks(self) -> Mapping[str, float]:
        """Component -> seconds by which its clock is ahead of that of the disk of the folder.

        Components of this machine have its clock; a busy one only writes them late.
        """
        found, alive = {}, self._view.folder.alive
        for name, beat in self._view.beats.items():
            here = beat.boot == boot_number()
            if beat.state in ALIVE and self._view.state == "running" and not here:
                with suppress(OSError):
                    found[name] = beat.time - (alive / name).stat().st_mtime
        return found


def _consumes(learner_config: Config) -> bool:
    # Imported late: it imports numpy, which must not delay the end of a command.
    from surreal_like.replay.replay import load_replay_class

    with suppress(SurrealError):
        return load_replay_class(learner_config).consumes
    return False
