"""Curves of a run by name: a number of ``progress.jsonl``, or a TensorBoard tag."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from session.errors import UsageError, did_you_mean
from session.folder import RunFolder
from session.show.progress import AXES, Curve, Progress
from session.tensorplex.groups import INDEXED_GROUPS

# Their horizontal axis counts rows of a shard, not steps of the run.
_ROWS = "replay/"

_BIN = re.compile(r"/\d+(-\d+)?$")


class EventCurves:
    """The scalars below a folder of event files.

    A tag of an indexed group is found with and without the bin at its end, because the bin only
    groups curves into charts.

    Args:
        root: ``tensorboard/`` of a run.
    """

    def __init__(self, root: Path) -> None:
        self._readers = dict(_readers(root))

    def tags(self) -> dict[str, list[str]]:
        """Returns tag without its bin -> folders below the root that contain it."""
        found: dict[str, list[str]] = {}
        for folder, reader in self._readers.items():
            for tag in reader.Tags()["scalars"]:
                found.setdefault(_bare(folder, tag), []).append(folder)
        return dict(sorted(found.items()))

    def curves(self, tag: str) -> dict[str, Curve]:
        """Returns folder -> points of one tag over the step, including those of all restarts."""
        found = {}
        for folder, reader in self._readers.items():
            for each in reader.Tags()["scalars"]:
                if tag in (each, _bare(folder, each)):
                    # The later of two points at one step replaces the earlier.
                    points = {point.step: point.value for point in reader.Scalars(each)}
                    steps = sorted(points)
                    found[folder] = Curve(
                        [float(step) for step in steps], [float(points[step]) for step in steps]
                    )
        return found


def _readers(root: Path) -> Iterator[tuple[str, Any]]:
    # Imported here because it is slow.
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folders = sorted({path.parent for path in root.rglob("events.out.tfevents.*")})
    keep = {"scalars": 0, "tensors": 1, "images": 1, "histograms": 1}
    for folder in folders:
        reader = EventAccumulator(str(folder), size_guidance=keep)
        yield folder.relative_to(root).as_posix(), reader.Reload()


def _bare(folder: str, tag: str) -> str:
    return _BIN.sub("", tag) if folder.partition("/")[0] in INDEXED_GROUPS else tag


class RunCurves:
    """Curves of one run.

    Args:
        folder: the run folder.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._progress = Progress(folder.progress)
        self._progress.read()

    def numbers(self) -> list[str]:
        """Returns the dotted names of the numbers in ``progress.jsonl``."""
        return self._progress.names()

    def tags(self) -> dict[str, list[str]]:
        """Returns tags of the scalars in the event files -> the folders that have them."""
        return self._events.tags()

    @cached_property
    def _events(self) -> EventCurves:
        return EventCurves(self.folder.tensorboard)

    def curve(self, metric: str, axis: str) -> Curve:
        """Returns the points of one metric; empty if the run has none.

        Several agents or evaluators are averaged.

        Args:
            metric: dotted name in ``progress.jsonl``, else a tag.
            axis: one of AXES.

        Raises:
            UsageError: the metric has no such axis.
        """
        if metric in self._progress.names():
            return self._progress.curve(metric, axis)
        found = self._events.curves(metric)
        if counts_rows(found) and axis != "env_steps":
            raise UsageError(
                f"{metric} is drawn over the rows of a replay shard: leave --x {axis} away"
            )
        return self._on(axis, _mean(list(found.values())))

    def counts_rows(self, metric: str) -> bool:
        """Returns True for a tag whose steps are rows of a replay shard."""
        return metric not in self._progress.names() and counts_rows(self.tags().get(metric, ()))

    def _on(self, axis: str, curve: Curve) -> Curve:
        """Converts a curve over environment steps to another axis."""
        if axis == "env_steps" or not curve.x:
            return curve
        known = self._progress.curve(AXES[axis], "env_steps")
        if not known.x:
            return Curve([], [])
        return Curve(np.interp(curve.x, known.x, known.y).tolist(), curve.y)


def counts_rows(folders: Iterable[str]) -> bool:
    """Returns True if one of the folders of a tag belongs to a replay shard."""
    return any(folder.startswith(_ROWS) for folder in folders)


def check_metric(metric: str, runs: Iterable[RunCurves]) -> None:
    """Checks that at least one of the runs has the metric.

    Raises:
        UsageError: no run has it; the message lists similar ones.
    """
    known: dict[str, None] = {}
    for run in runs:
        if metric in run.numbers():
            return
        known |= dict.fromkeys(run.numbers())
    for run in runs:
        if run.curve(metric, "env_steps").x:
            return
        known |= dict.fromkeys(run.tags())
    if not known:
        raise UsageError("no progress was reported yet")
    ends_alike = [name for name in known if metric.rpartition(".")[2] in name][:3]
    otherwise = "surreal-like plot RUN --list shows all"
    if ends_alike:
        otherwise = f"did you mean {' or '.join(ends_alike)}?"
    hint = did_you_mean(metric, known, most=3, cutoff=0.5, otherwise=otherwise)
    raise UsageError(f"no metric '{metric}' in progress.jsonl or TensorBoard; {hint}")


def _mean(curves: list[Curve]) -> Curve:
    """Averages several curves over their common range, interpolated linearly."""
    curves = [curve for curve in curves if curve.x]
    if len(curves) < 2:
        return curves[0] if curves else Curve([], [])
    begin, end = max(curve.x[0] for curve in curves), min(curve.x[-1] for curve in curves)
    xs = sorted({x for curve in curves for x in curve.x if begin <= x <= end})
    rows = [np.interp(xs, curve.x, curve.y) for curve in curves]
    return Curve(xs, np.mean(rows, axis=0).tolist()) if xs else curves[0]
