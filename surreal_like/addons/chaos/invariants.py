"""Invariants of a run with faults, checked in the files of its folder."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from session.folder import EVENT, RunFolder
from session.launchers.status import process_lives
from session.process.heartbeat import ALIVE, read_beats
from session.tail import Tail
from surreal_like.addons.chaos.faults import DISK, Fault

_COUNTERS = ("env_steps", "episodes", "iterations", "frames", "wall_seconds", "version")
_FATES = ("inserted", "dropped", "holes", "unacked")
# Samples per insert may be above the setting by this share: a limiter has a tolerance.
_SLACK = 0.2


class RunFiles:
    """Files of a run that had faults, and these faults.

    Args:
        folder: the run folder.
        faults: faults that have hit it.
    """

    def __init__(self, folder: RunFolder, faults: Sequence[Fault]) -> None:
        self.folder, self.faults = folder, faults
        self.config = folder.read_config()
        self.result: Mapping[str, Any] = folder.read_result() or {}
        self.progress = folder.progress_tail().objects()
        self.events = Tail(folder.events, catch_up_bytes=None, shape=EVENT).objects()

    @property
    def hit(self) -> Counter[str]:
        """Number of hits by component that have ended its process."""
        ended = (each for each in self.faults if each.plan.what != DISK and not each.survived)
        return Counter(each.name for each in ended)

    @property
    def rows(self) -> Mapping[str, int]:
        """Account of rows; of a run that goes on that of its newest line of progress."""
        newest = self.progress[-1] if self.progress else {}
        source = self.result if self.folder.over else newest
        rows: Mapping[str, int] = source.get("experience") or {}
        return rows


def _status(run: RunFiles) -> Iterator[str]:
    status = run.result.get("status")
    if status not in ("stopped", "interrupted"):
        yield f"it ended as {status}: {run.result.get('reason')}"


def _back(run: RunFiles) -> Iterator[str]:
    for each in run.faults:
        if each.recovered_seconds is None and not each.cut_off:
            yield f"{each.name} was not back after {each.plan.what}"


def _rows(run: RunFiles) -> Iterator[str]:
    rows = run.rows
    if rows and rows["pushed"] != sum(rows[fate] for fate in _FATES):
        known = " + ".join(f"{rows[fate]} {fate}" for fate in _FATES)
        yield f"{rows['pushed']} rows were sent, but {known} are known"


def _lost(run: RunFiles) -> Iterator[str]:
    not_kept = any(each["event"] == "memory_not_kept" for each in run.events)
    queue = run.config.learner_config.replay.type in ("FIFOReplay", "GradientReplay")
    kept = run.config.session_config.replay.keep != "none" and not not_kept and not queue
    if kept and run.rows.get("lost"):
        yield f"{run.rows['lost']} acknowledged rows were lost with a replay shard"


def _counters(run: RunFiles) -> Iterator[str]:
    for name in _COUNTERS:
        values = [line[name] for line in run.progress if line.get(name) is not None]
        for before, after in itertools.pairwise(values):
            if after < before:
                yield f"{name} fell from {before} to {after}"
                break


def _samples(run: RunFiles) -> Iterator[str]:
    replay, session = run.config.learner_config.replay, run.config.session_config
    wanted, rows = replay.samples_per_insert, run.rows
    if not wanted or not rows:
        return
    # A limiter bears twice what one chunk and one request ask for.
    chunk = session.sender.flush_iteration * run.config.env_config.num_envs
    request = replay.batch_size * session.learner.batches_per_request
    most = wanted * rows["inserted"] * (1 + _SLACK) + 2 * (wanted * chunk + request)
    if rows["sampled"] > most:
        yield f"{rows['sampled']} samples of {rows['inserted']} rows, not {wanted:g} of each"


def _memory(run: RunFiles) -> Iterator[str]:
    for event in run.events:
        if event["event"] == "memory":
            yield f"memory: {event.get('detail')}"


def _left(run: RunFiles) -> Iterator[str]:
    for name, beat in read_beats(run.folder.alive).items():
        if beat.state in ALIVE and process_lives(beat):
            yield f"{name} is left behind: process {beat.pid}"
    if run.folder.sockets.exists() and any(run.folder.sockets.iterdir()):
        yield f"sockets are left in {run.folder.sockets}"


def _reported(run: RunFiles) -> Iterator[str]:
    lost = [str(each.get("detail")) for each in run.events if each["event"] == "lost"]
    reported = Counter(each.partition(":")[0] for each in lost)
    for name, times in run.hit.items():
        # An event on its way to the log server dies with it.
        least = 0 if name == "loggerplex" else max(0, times - run.hit["loggerplex"])
        if not least <= reported[name] <= times:
            yield f"{name} was hit {times} times, and its end was reported {reported[name]} times"


# Invariant -> what breaks it, as sentences.
INVARIANTS: Mapping[str, Callable[[RunFiles], Iterator[str]]] = {
    "the run ends in order": _status,
    "every component comes back": _back,
    "every row is accounted for": _rows,
    "no acknowledged row is lost": _lost,
    "no counter falls": _counters,
    "samples per insert stay in their band": _samples,
    "memory stays under its cap": _memory,
    "nothing is left behind": _left,
    "each fault is reported once": _reported,
}


# These can only be said of a run that is over.
AT_THE_END = ("the run ends in order", "every row is accounted for", "nothing is left behind")


def check(run: RunFiles) -> dict[str, list[str]]:
    """Returns what has broken each invariant, none where it holds; of a run that goes on fewer."""
    names = [name for name in INVARIANTS if run.folder.over or name not in AT_THE_END]
    return {name: list(INVARIANTS[name](run)) for name in names}
