"""Curves of a run by name: a number of ``progress.jsonl``, or a TensorBoard tag."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from session.did_you_mean import did_you_mean
from session.errors import UsageError
from session.folder import RunFolder
from session.show.progress import AXES, Curve, Progress
from session.tensorplex.groups import counts_rows, place_of_title


class EventCurves:
    """The scalars of a run's event files, by their tag and component.

    Args:
        root: ``tensorboard/`` of a run.
    """

    def __init__(self, root: Path) -> None:
        self._reader = _read(root)
        titles = self._reader.Tags()["scalars"] if self._reader else []
        self._titles = {title: place_of_title(title) for title in titles}

    def tags(self) -> dict[str, list[str]]:
        """Returns tag -> components that report it."""
        found: dict[str, list[str]] = {}
        for place in self._titles.values():
            found.setdefault(place.tag, []).append(place.component)
        return dict(sorted(found.items()))

    def curves(self, tag: str) -> dict[str, Curve]:
        """Returns component -> points of one tag over the step, including those of all restarts.

        Args:
            tag: such as ``agent/return``; with a component, as in ``agent/return:agent-0``, only
                its curve.
        """
        found = {}
        for title, place in self._titles.items():
            if tag in (title, place.tag):
                # The later of two points at one step replaces the earlier.
                points = {point.step: point.value for point in self._reader.Scalars(title)}
                steps = sorted(points)
                found[place.component] = Curve(
                    [float(step) for step in steps], [float(points[step]) for step in steps]
                )
        return found


def _read(root: Path) -> Any:
    """Returns TensorBoard's reader of a folder, None without event files."""
    if not any(root.glob("events.out.tfevents.*")):
        return None
    # Imported here because it is slow.
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    keep = {"scalars": 0, "tensors": 1, "images": 1, "histograms": 1}
    return EventAccumulator(str(root), size_guidance=keep).Reload()


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
        """Returns tags of the scalars in the event files -> the components that report them."""
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
        if any(map(counts_rows, found)) and axis != "env_steps":
            raise UsageError(
                f"{metric} is drawn over the rows of a replay shard: leave --x {axis} away"
            )
        return self._on(axis, _mean(list(found.values())))

    def counts_rows(self, metric: str) -> bool:
        """Returns True for a tag whose steps are rows of a replay shard."""
        return metric not in self._progress.names() and any(
            map(counts_rows, self.tags().get(metric, ()))
        )

    def _on(self, axis: str, curve: Curve) -> Curve:
        """Converts a curve over environment steps to another axis."""
        if axis == "env_steps" or not curve.x:
            return curve
        known = self._progress.curve(AXES[axis], "env_steps")
        if not known.x:
            return Curve([], [])
        return Curve(np.interp(curve.x, known.x, known.y).tolist(), curve.y)


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
