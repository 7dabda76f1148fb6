"""Finds the update at which another checkout of the code learns something else."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from session.errors import UsageError
from session.folder import RunFolder
from session.json_file import OBJECT, MapOf, read_object
from session.nest import Array
from surreal_like.addons.recording.flight import hash_of, mark_of, tensors_of
from surreal_like.addons.recording.rerun import Repeater, Rerun

_TRACE, _TENSORS = "trace.json", "tensors.npz"
# Updates before the first other mark whose hashes are compared: another tensor may differ earlier.
_WINDOW = 64


@dataclass(slots=True)
class Difference:
    """A tensor of a learner that two codes leave with other numbers.

    Args:
        name: name of the tensor.
        largest: largest absolute difference of its numbers; None: it is not finite, or the shapes
            differ.
        size: largest absolute number of it, by this code; None: it is not finite.
    """

    name: str
    largest: float | None
    size: float | None

    @property
    def share(self) -> float:
        """The largest difference as a share of the largest number."""
        return math.inf if self.largest is None or not self.size else self.largest / self.size


@dataclass(slots=True)
class Comparison:
    """Two reruns, each by other code.

    Args:
        here, there: rerun by this code, and by the other; each is compared with the run, too.
        update: the first update at which they learn something else; None: there is none.
        tensors: number of tensors of the learner.
        differences: tensors that differ after it, the largest share first.
    """

    here: Rerun
    there: Rerun
    update: int | None = None
    tensors: int = 0
    differences: list[Difference] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """True if both have repeated all updates, and have learned the same."""
        return self.update is None and not (self.here.problems or self.there.problems)


@dataclass(slots=True)
class _Trace:
    """Outcome of a rerun, and checksums of the parameters on its way.

    Args:
        outcome: compared with the run.
        marks: update -> mark after it; of those that hashes are asked for, also a hash.
    """

    outcome: Rerun
    marks: Mapping[str, Any] = field(default_factory=dict)


def trace(
    run: RunFolder,
    folder: Path,
    *,
    policy: str | None,
    after: int,
    begin: int | None,
    until: int | None,
) -> None:
    """Repeats updates; writes what each one has learned, and the tensors after the last one.

    Args:
        run: the run folder.
        folder: gets both files.
        policy: name of the policy.
        after: hashes are taken of later updates, and of the last one; marks of all.
        begin, until: see :meth:`Repeater.run`.
    """
    repeater = Repeater(run, policy)
    learner, marks = repeater.learner, dict[int, Any]()

    def note() -> None:
        at = learner.iteration
        marks[at] = [mark_of(learner), hash_of(learner) if at > after else ""]

    repeater.on_update = note
    outcome = repeater.run(begin, until, goes_on=True)
    if outcome.last in marks:
        marks[outcome.last][1] = hash_of(learner)
    content = {"outcome": asdict(outcome), "marks": marks}
    (folder / _TRACE).write_text(json.dumps(content), encoding="utf-8")
    tensors: dict[str, Any] = dict(tensors_of(learner))
    np.savez(folder / _TENSORS, **tensors)


class Comparer:
    """Repeats a run by this code and by another, in turn.

    Args:
        run: the run folder.
        code: folder of the other checkout.
        policy: name of the policy.
        import_path: folders with modules of the user, for the other checkout.

    Raises:
        UsageError: it is no checkout.
    """

    def __init__(
        self,
        run: RunFolder,
        code: Path,
        policy: str | None = None,
        import_path: Sequence[str] = (),
    ) -> None:
        if not (code / "surreal_like").is_dir():
            raise UsageError(f"{code} is no checkout: it has no folder surreal_like")
        self._run, self._code, self._policy = run, code, policy
        # The other process works in another folder.
        self._import_path = [os.path.abspath(each) for each in import_path]

    def compare(self, begin: int | None = None, until: int | None = None) -> Comparison:
        """Returns the first update at which the codes learn something else.

        Args:
            begin, until: see :meth:`Repeater.run`.

        Raises:
            UsageError: one of them cannot repeat the run.
        """
        with tempfile.TemporaryDirectory(prefix="sl-rerun-") as scratch:
            place = Path(scratch)
            here, there = self._trace_both(place, sys.maxsize, begin, until)
            found = Comparison(here.outcome, there.outcome)
            differs = _first_difference(here, there)
            if differs is None:
                return found
            # Marks are of some tensors only.
            after = max(differs - _WINDOW, 0) if _has_marks(here) else 0
            while True:
                hashed = self._trace_both(place, after, begin, differs)
                first = _first_difference(*hashed) or differs
                if first > after + 1 or not after:
                    break
                after = 0
            if first < differs:
                self._trace_both(place, sys.maxsize, begin, first)
            found.update = first
            _measure(found, place)
            return found

    def _trace_both(
        self, scratch: Path, after: int, begin: int | None, until: int | None
    ) -> tuple[_Trace, _Trace]:
        here, there = scratch / "here", scratch / "there"
        for folder in (here, there):
            folder.mkdir(exist_ok=True)
        numbers = ["--trace", str(there), str(after)]
        for name, given in (("--from", begin), ("--until", until)):
            numbers += [name, str(given)] if given is not None else []
        trace(self._run, here, policy=self._policy, after=after, begin=begin, until=until)
        (there / _TRACE).unlink(missing_ok=True)
        self._run_there(*numbers)
        if not (there / _TRACE).exists():
            raise UsageError(f"the code in {self._code} is too old: its rerun leaves no trace")
        return _read_trace(here), _read_trace(there)

    def _run_there(self, *more: str) -> None:
        """Runs `rerun` of the other checkout."""
        named = ["--policy", self._policy] if self._policy else []
        for folder in self._import_path:
            named += ["--import-path", folder]
        words = (sys.executable, "-P", "-m", "main.cli", "rerun", str(self._run.path.absolute()))
        done = subprocess.run(
            [*words, *named, *more],
            cwd=self._code,
            env={**os.environ, "PYTHONPATH": str(self._code.absolute())},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            why = done.stderr.strip()
            raise UsageError(f"the code in {self._code} cannot repeat {self._run}: {why}")


def _read_trace(folder: Path) -> _Trace:
    found = read_object(folder / _TRACE, MapOf(OBJECT))
    # Other code may have more of them.
    known = {each.name for each in fields(Rerun)}
    outcome = Rerun(**{name: each for name, each in found["outcome"].items() if name in known})
    # Of JSON it is a list.
    outcome.differs = outcome.differs and (outcome.differs[0], outcome.differs[1])
    return _Trace(outcome, found["marks"])


def _has_marks(found: _Trace) -> bool:
    return any(mark for mark, _ in found.marks.values())


def _first_difference(here: _Trace, there: _Trace) -> int | None:
    """Returns the first update after which marks or hashes differ; None: all are equal."""
    for update in sorted({*here.marks, *there.marks}, key=int):
        if here.marks.get(update) != there.marks.get(update):
            return int(update)
    return None


def _measure(found: Comparison, place: Path) -> None:
    """Compares the tensors that both traces have left."""
    ours, theirs = (np.load(place / each / _TENSORS) for each in ("here", "there"))
    found.tensors = len(ours.files)
    for name in ours.files:
        one, other = ours[name], theirs[name] if name in theirs else np.zeros(0)
        if np.array_equal(one, other, equal_nan=True):
            continue
        largest = _largest(one - other) if one.shape == other.shape else None
        found.differences.append(Difference(name, largest, _largest(one)))
    found.differences.sort(key=lambda each: each.share, reverse=True)


def _largest(numbers: Array) -> float | None:
    """Returns the largest absolute number; None: it is not finite."""
    found = float(np.abs(numbers).max(initial=0.0))
    return found if math.isfinite(found) else None
