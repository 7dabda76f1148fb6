"""Rules that find the bottleneck of a run, and what is odd in it, as tables.

``docs/troubleshooting.md`` states the same rules; a test compares them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from session.show.run_view import RunView
from session.show.text import count, decimal, percent, short_time, size
from surreal_like.addons.doctor.facts import Facts
from surreal_like.experience.row_accounts import REMEDY, TOO_OLD, describe_too_old

_GB = 1_000_000_000
# The learner waits for this share of its time and more: some other part limits the run.
WAITS = 0.25
# Replay lacks rows that the learner has requested, for this share of its time and more.
LACKS = 0.25


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that applies to a run.

    Args:
        name: name of the rule.
        meaning: meaning of the rule.
        numbers: the numbers behind it, in words.
        setting: what to change.
    """

    name: str
    meaning: str
    numbers: str
    setting: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of one table.

    Args:
        name: the part of the run, or what is odd.
        looked_at: the number that the rule compares.
        limit: that number from which on it applies, or below which.
        meaning: what that means.
        setting: what to change.
        see: returns the numbers in words where the rule applies, else an empty text; its
            arguments are the facts and ``limit``.
    """

    name: str
    looked_at: str
    limit: float
    meaning: str
    setting: str
    see: Callable[[Facts, float], str]

    def apply(self, facts: Facts) -> Finding | None:
        """Returns a finding if the rule applies."""
        numbers = self.see(facts, self.limit)
        return Finding(self.name, self.meaning, numbers, self.setting) if numbers else None


def _see_core(facts: Facts, limit: float) -> str:
    found = facts.missing_core
    return _list_missing(found) if len(found) >= limit else ""


def _list_missing(found: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({reason})" for name, reason in found.items())


def _see_no_agent(facts: Facts, limit: float) -> str:
    found = [name for name in facts.missing if name.startswith("agent-")]
    return f"missing: {', '.join(found)}" if found and facts.agents - len(found) < limit else ""


def _see_first_rows(facts: Facts, limit: float) -> str:
    share = facts.filling_share
    if share < limit:
        return ""
    return f"no update in {percent(share)} of the time; min_size is {count(facts.replay.min_size)}"


def _see_learner(facts: Facts, limit: float) -> str:
    waits = facts.waiting_share
    if waits is None or waits >= limit:
        return ""
    text = f"learner waits {percent(waits)} of its time"
    if facts.session.agent.num or facts.agents:
        text += f", agents wait {percent(facts.held_share)}"
    return text


def _waits(facts: Facts, words: str, *, lacks: bool | None = None) -> str:
    """Returns these words behind the share in which the learner waits, empty if it does not.

    Args:
        facts: the facts.
        words: more words.
        lacks: whether replay must lack rows; None: either.
    """
    waits = facts.waiting_share
    if waits is None or waits < WAITS:
        return ""
    if lacks is not None and lacks != (facts.lacking_share >= LACKS):
        return ""
    return f"learner waits {percent(waits)}; {words}"


def _see_replay(facts: Facts, limit: float) -> str:
    share = facts.busy_share
    if share is None or share < limit:
        return ""
    return _waits(facts, f"a shard is busy {percent(share)} of its time")


def _see_ratio(facts: Facts, limit: float) -> str:
    ratio = facts.replay.samples_per_insert
    if facts.consumes or not 0 < ratio <= limit:
        return ""
    return _waits(facts, f"each row may be sampled {decimal(ratio)} times", lacks=True)


def _see_environments(facts: Facts, limit: float) -> str:
    share = facts.step_share
    if share is None or share < limit:
        return ""
    return _waits(facts, f"environments take {percent(share)} of the time of agents", lacks=True)


def _see_agents(facts: Facts, limit: float) -> str:
    if facts.lacking_share < limit:
        return ""
    steps = count(facts.rate("env_steps"))
    lacks = f"{percent(facts.lacking_share)} of the time rows are lacking"
    return _waits(facts, f"{lacks}, agents make {steps} steps/s", lacks=True)


def _see_network(facts: Facts, limit: float) -> str:
    way = facts.way_seconds
    if way is None or way < limit:
        return ""
    inside = short_time(facts.stage("answer") or 0.0)
    words = f"request and answer are on their way for {short_time(way)}, in replay for {inside}"
    return _waits(facts, words, lacks=False)


def _see_prefetch(facts: Facts, limit: float) -> str:
    if facts.batches_ahead >= limit:
        return ""
    return _waits(facts, f"at most {facts.batches_ahead} are requested ahead", lacks=False)


def _see_machine(facts: Facts, limit: float) -> str:
    waits = facts.waiting_share
    if waits is None or waits < limit:
        return ""
    return _waits(facts, "replay has rows and time", lacks=False)


# The first one that applies is the bottleneck.
BOTTLENECKS = (
    Rule(
        "missing part",
        "number of learner, replay shards and parameter server that do not work",
        1.0,
        "nothing new is learned without it",
        "surreal-like logs RUN --component NAME has the reason; "
        "what the launcher does not start again: surreal-like restart RUN NAME",
        _see_core,
    ),
    Rule(
        "no agent",
        "number of agents that live, below this",
        1.0,
        "no agent makes rows",
        "surreal-like logs RUN --component agent-N has the reason; start it again",
        _see_no_agent,
    ),
    Rule(
        "first rows",
        "share of the time since the first step in which there was no update",
        0.5,
        "the learner waits until replay has its first rows",
        "learner_config.replay.min_size down",
        _see_first_rows,
    ),
    Rule(
        "learner",
        "share of its time in which the learner waits, below this",
        WAITS,
        "learning sets the pace",
        "learner_config.device (a GPU), session_config.learner.threads, "
        "a larger learner_config.replay.batch_size, fewer agents",
        _see_learner,
    ),
    Rule(
        "replay",
        "share of its time in which a shard works",
        0.8,
        "replay is too slow",
        "learner_config.replay.replay_shards up; UniformReplay in place of PrioritizedReplay",
        _see_replay,
    ),
    Rule(
        "too few rows",
        "learner_config.replay.samples_per_insert, up to this, while rows are lacking",
        1.0,
        "the learner may use each row too rarely",
        "learner_config.replay.samples_per_insert up; 0: no limit",
        _see_ratio,
    ),
    Rule(
        "environments",
        "share of the time of agents in their environments, while rows are lacking",
        0.5,
        "environments are too slow",
        "session_config.agent.num or env_config.num_envs up, env_config.vector=process",
        _see_environments,
    ),
    Rule(
        "agents",
        "share of the time of replay in which rows are lacking",
        LACKS,
        "acting is too slow",
        "session_config.agent.num or env_config.num_envs up; "
        "learner_config.replay.samples_per_insert up, where each row may be used more often",
        _see_agents,
    ),
    Rule(
        "network",
        "seconds of a request for batches and its answer on their way, over TCP",
        0.005,
        "the way between replay and learner is too slow",
        "session_config.learner.prefetch_requests and batches_per_request up; "
        "replay and learner on one machine",
        _see_network,
    ),
    Rule(
        "prefetch",
        "batches requested ahead, below this",
        4,
        "too few batches are requested ahead",
        "session_config.learner.prefetch_requests and batches_per_request up",
        _see_prefetch,
    ),
    Rule(
        "machine",
        "share of its time in which the learner waits, for none of these reasons",
        WAITS,
        "batches come late though no part is slow",
        "fewer agents, or other machines, if all cores are busy; "
        "else session_config.learner.prefetch_requests up",
        _see_machine,
    ),
)


def _see_full(facts: Facts, limit: float) -> str:
    rows = (facts.line.get("replay") or {}).get("size") or 0
    if facts.consumes or rows < limit * facts.replay.capacity:
        return ""
    return _waits(facts, f"replay has {count(rows)} rows")


def _see_lag(facts: Facts, limit: float) -> str:
    return ", ".join(
        f"{decimal(lag)} versions{of} on average, the limit is {borne}"
        for of, lag, borne in facts.lags()
        if lag > limit * borne
    )


def _see_slow_agent(facts: Facts, limit: float) -> str:
    found = []
    for name, own in facts.agent_rates.items():
        others = [each for other, each in facts.agent_rates.items() if other != name]
        if others and own < limit * statistics.median(others):
            typical = count(statistics.median(others))
            found.append(f"{name} makes {count(own)} steps/s, others {typical}")
    return ", ".join(found)


def _see_old_score(facts: Facts, limit: float) -> str:
    pause, age = facts.session.evaluator.interval_seconds, facts.score_age_seconds
    behind = facts.updates - facts.scored
    late = age >= limit + pause and 2 * behind >= facts.updates > 0
    if not facts.session.evaluator.num or not late:
        return ""
    scored = f"newest score is of update {count(facts.scored)} of {count(facts.updates)}"
    return f"{scored}, {short_time(age)} ago"


def _see_disk(facts: Facts, limit: float) -> str:
    found = list(dict.fromkeys(facts.disk_errors))[-2:]
    if facts.free_bytes is not None and facts.free_bytes < limit * _GB:
        found.append(f"{size(facts.free_bytes)} are free")
    return "; ".join(found)


def _see_dropped(facts: Facts, limit: float) -> str:
    rows, pushed = facts.dropped_rows, facts.rows("pushed")
    return f"{count(rows)} of {count(pushed)} rows" if rows and rows >= limit * pushed else ""


def _see_lost(facts: Facts, limit: float) -> str:
    rows = {name: facts.rows(name) for name in ("lost", "holes", "unacked")}
    found = [f"{count(number)} {name}" for name, number in rows.items() if number >= limit]
    return f"rows: {', '.join(found)}" if found else ""


def _see_too_old(facts: Facts, limit: float) -> str:
    return describe_too_old(facts.line, limit)


def _see_restarts(facts: Facts, limit: float) -> str:
    return ", ".join(f"{name} {n}x" for name, n in facts.restarts.items() if n >= limit)


def _see_missing(facts: Facts, limit: float) -> str:
    return _list_missing(facts.missing) if len(facts.missing) >= limit else ""


def _see_clock(facts: Facts, limit: float) -> str:
    off = {name: by for name, by in facts.clocks.items() if abs(by) >= limit}
    return ", ".join(f"{name} by {by:+.1f} s" for name, by in off.items())


ODDITIES = (
    Rule(
        "full replay",
        "share of its capacity that replay has filled, while the learner waits",
        0.95,
        "the learner waits though replay is full",
        "learner_config.replay.samples_per_insert up; else as for the bottleneck",
        _see_full,
    ),
    Rule(
        "lag",
        "mean lag of each policy, as multiple of learner_config.replay.evict_rule.max_version_lag "
        "(of 20 versions without), of queues of unrolls",
        1.0,
        "rows are older than the algorithm bears",
        "session_config.sender.max_unacked_chunks and flush_iteration down, "
        "session_config.agent.fetch_parameter_mode=step:N, N as session_config.sender."
        "flush_iteration, learner_config.replay.capacity down",
        _see_lag,
    ),
    Rule(
        "old rows",
        "share of the rows of a queue that were older than "
        "learner_config.replay.evict_rule.max_version_lag allows",
        TOO_OLD,
        "rows are too old to be learned from",
        REMEDY,
        _see_too_old,
    ),
    Rule(
        "slow agent",
        "steps per second in which an agent may act, as multiple of the median of the others, "
        "below this",
        0.5,
        "an agent is slower than its peers",
        "look at its machine and its environments: surreal-like logs RUN --component agent-N",
        _see_slow_agent,
    ),
    Rule(
        "evaluation",
        "time since the parameters of the newest score were replaced, beyond the pause between "
        "two [s], if half of all updates came since",
        10.0,
        "evaluation is slower than training",
        "session_config.stop.eval_episodes down; a core for the evaluator",
        _see_old_score,
    ),
    Rule(
        "disk",
        "free GB, below this; or an event not_written or checkpoint_failed",
        1.0,
        "the disk is full, or refuses to write",
        "free some space; session_config.tensorplex.update_schedule up",
        _see_disk,
    ),
    Rule(
        "dropped rows",
        "share of the rows that replay has refused",
        0.01,
        "replay has refused rows",
        "surreal-like logs RUN --level warning has the reason",
        _see_dropped,
    ),
    Rule(
        "lost rows",
        "rows lost with a process",
        1.0,
        "rows were lost with a process",
        "docs/resume_and_recovery.md; session_config.replay.keep=auto against lost ones",
        _see_lost,
    ),
    Rule(
        "restarts",
        "restarts of a component",
        1.0,
        "components have died",
        "surreal-like logs RUN --level error, logs/COMPONENT.err",
        _see_restarts,
    ),
    Rule(
        "missing components",
        "components that have ended, start again or hang (no heartbeat for 10 s) while the run "
        "goes on",
        1.0,
        "a part of the run is missing",
        "surreal-like logs RUN --component NAME has the reason; start it again",
        _see_missing,
    ),
    Rule(
        "clock",
        "seconds between the clock of a component and that of the disk of the run folder",
        2.0,
        "a clock is off: durations between machines are wrong",
        "set the clocks of all machines by NTP",
        _see_clock,
    ),
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Result of all rules for one run.

    Args:
        facts: the facts of the run.
        bottleneck: what limits it; None: no part does, or none is known.
        odd: everything that is unusual.
    """

    facts: Facts
    bottleneck: Finding | None
    odd: Sequence[Finding]

    @property
    def limits(self) -> str:
        """The bottleneck in words."""
        found = self.bottleneck
        return "no part limits the others" if found is None else f"{found.name}: {found.meaning}"


def diagnose(view: RunView) -> Diagnosis:
    """Applies all rules to a run; call :meth:`RunView.refresh` before."""
    facts = Facts(view)
    limits, odd = ([rule.apply(facts) for rule in rules] for rules in (BOTTLENECKS, ODDITIES))
    return Diagnosis(
        facts,
        next(filter(None, limits), None),
        [found for found in odd if found is not None],
    )


def in_one_line(view: RunView) -> str:
    """Describes bottleneck and oddities in one line; empty before the first report."""
    if not view.line:
        return ""
    found = diagnose(view)
    odd = ", ".join(f"{each.name} ({each.numbers})" for each in found.odd) or "nothing"
    numbers = "" if found.bottleneck is None else f" ({found.bottleneck.numbers})"
    limits = [] if view.counted else [found.limits + numbers]
    return "; ".join([*limits, f"odd: {odd}"])
