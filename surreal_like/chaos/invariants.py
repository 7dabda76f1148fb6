"""What must hold in a run, whatever fault comes; read from the files of its folder."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from session.folder import RunFolder
from session.launchers.status import process_lives
from session.process.heartbeat import read_beats
from surreal_like.chaos.faults import DISK, Fault

_COUNTERS = ("env_steps", "episodes", "iterations", "frames", "wall_seconds", "version")
_FATES = ("inserted", "dropped", "holes", "unacked")
# Samples per insert may be above the setting by this share: a limiter has a tolerance.
_SLACK = 0.2


class Ended:
    """A run that is over, and the faults that it had.

    Args:
        folder: the run folder.
        faults: faults that have hit it.
    """

    def __init__(self, folder: RunFolder, faults: Sequence[Fault]) -> None:
        self.folder, self.faults = folder, faults
        self.config = folder.read_config()
        self.result: Mapping[str, Any] = folder.read_result() or {}
        self.progress = read_lines(folder.progress)
        self.events = read_lines(folder.events)

    @property
    def hit(self) -> Counter[str]:
        """How often each component was hit."""
        return Counter(each.name for each in self.faults if each.plan.what != DISK)

    @property
    def rows(self) -> Mapping[str, int]:
        """Account of rows; empty without a result."""
        rows: Mapping[str, int] = self.result.get("experience") or {}
        return rows


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Returns the whole lines of a file of JSON; the last one may be half written."""
    found = []
    text = path.read_text(errors="replace") if path.is_file() else ""
    for line in text.split("\n")[:-1]:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [line for line in found if isinstance(line, dict)]


def _status(run: Ended) -> Iterator[str]:
    status = run.result.get("status")
    if status not in ("stopped", "interrupted"):
        yield f"it ended as {status}: {run.result.get('reason')}"


def _back(run: Ended) -> Iterator[str]:
    for each in run.faults:
        if each.recovered_seconds is None:
            yield f"{each.name} was not back after {each.plan.what}"


def _rows(run: Ended) -> Iterator[str]:
    rows = run.rows
    if rows and rows["pushed"] != sum(rows[fate] for fate in _FATES):
        known = " + ".join(f"{rows[fate]} {fate}" for fate in _FATES)
        yield f"{rows['pushed']} rows were sent, but {known} are known"


def _lost(run: Ended) -> Iterator[str]:
    not_kept = any(each["event"] == "memory_not_kept" for each in run.events)
    queue = run.config.learner_config.replay.type in ("FIFOReplay", "GradientReplay")
    kept = run.config.session_config.replay.keep != "none" and not not_kept and not queue
    if kept and run.rows.get("lost"):
        yield f"{run.rows['lost']} acknowledged rows were lost with a replay shard"


def _counters(run: Ended) -> Iterator[str]:
    for name in _COUNTERS:
        values = [line[name] for line in run.progress if line.get(name) is not None]
        for before, after in itertools.pairwise(values):
            if after < before:
                yield f"{name} fell from {before} to {after}"
                break


def _samples(run: Ended) -> Iterator[str]:
    wanted = run.config.learner_config.replay.samples_per_insert
    found = (run.result.get("rates") or {}).get("samples_per_insert")
    if wanted and found and found > wanted * (1 + _SLACK):
        yield f"each row was sampled {found:.2f} times, the setting is {wanted:g}"


def _memory(run: Ended) -> Iterator[str]:
    for event in run.events:
        if event["event"] == "memory":
            yield f"memory: {event.get('detail')}"


def _left(run: Ended) -> Iterator[str]:
    for name, beat in read_beats(run.folder.alive).items():
        if process_lives(beat):
            yield f"{name} is left behind: process {beat.pid}"
    if run.folder.sockets.exists() and any(run.folder.sockets.iterdir()):
        yield f"sockets are left in {run.folder.sockets}"


def _told(run: Ended) -> Iterator[str]:
    lost = [str(each.get("detail")) for each in run.events if each["event"] == "lost"]
    told = Counter(each.partition(":")[0] for each in lost)
    for name, times in run.hit.items():
        # An event on its way to the log server dies with it.
        least = 0 if name == "loggerplex" else max(0, times - run.hit["loggerplex"])
        if not least <= told[name] <= times:
            yield f"{name} was hit {times} times, and its end was told {told[name]} times"


# Invariant -> what breaks it, as sentences.
INVARIANTS: Mapping[str, Callable[[Ended], Iterator[str]]] = {
    "the run ends in order": _status,
    "every component comes back": _back,
    "every row is accounted for": _rows,
    "no acknowledged row is lost": _lost,
    "no counter falls": _counters,
    "samples per insert stay in their band": _samples,
    "memory stays under its cap": _memory,
    "nothing is left behind": _left,
    "each fault is told once": _told,
}


def check(run: Ended) -> dict[str, list[str]]:
    """Returns what has broken each invariant, none where it holds."""
    return {name: list(broken(run)) for name, broken in INVARIANTS.items()}
