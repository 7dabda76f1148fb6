"""Plots learning curves of several runs and seeds in one figure."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from session.addons.analysis.charts import COLOURS, make_figure
from session.errors import UsageError
from session.show.progress import AXES
from surreal_like.addons.analysis.learning_curves import LASTING, RETURNS, SHOWN, Kind, Picture
from surreal_like.addons.analysis.run_curves import RunCurves, check_metric
from surreal_like.addons.analysis.run_groups import Experiment, Runs, group, run_folders

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ACROSS = {"env_steps": "environment steps", "seconds": "seconds", "iterations": "updates"}
FORMATS = (".png", ".svg", ".pdf")
BANDS = ("range", "interval")


def plot(
    runs: Runs,
    *,
    metric: str | None = None,
    x: str = "env_steps",
    out: str | Path | None = None,
    band: str = "range",
) -> Path:
    """Draws runs into a file; runs whose configs differ only in the seed become mean and band.

    Args:
        runs: a run folder, or several.
        metric: name of a number of ``progress.jsonl``, with dots, or a TensorBoard tag; None: the
            returns of greedy evaluations and of training.
        x: ``env_steps``, ``seconds`` or ``iterations``.
        out: ``.png``, ``.svg`` or ``.pdf``; None: ``<experiment>-<metric>.png`` in the current
            folder.
        band: ``range``: mean, and the lowest and highest run; ``interval``: interquartile mean and
            its 95 % interval, of 5 runs or more.

    Returns:
        Path of the file.

    Raises:
        UsageError: the run or the metric does not exist, or the file type is unknown.
        MissingExtra: matplotlib is not installed.
    """
    experiments = group(run_folders(runs))
    path = Path(out) if out is not None else _default_path(experiments, metric)
    return save(path, lambda: draw(experiments, metric, x, band))


def save(path: Path, drawn: Callable[[], Figure]) -> Path:
    """Draws a figure into a file; returns its path.

    Raises:
        UsageError: the file type is unknown, or the file cannot be written.
    """
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"cannot draw into {path}: its name must end in {', '.join(FORMATS)}")
    if not os.path.isdir(path.parent):
        raise UsageError(f"cannot draw into {path}: there is no folder {path.parent}")
    figure = drawn()
    try:
        figure.savefig(path)
    except OSError as error:
        raise UsageError(f"cannot draw into {path}: {error.strerror}") from None
    return path


def draw(
    experiments: Sequence[Experiment],
    metric: str | None = None,
    x: str = "env_steps",
    band: str = "range",
) -> Figure:
    """Draws a matplotlib Figure; arguments and errors as in :func:`plot`."""
    if x not in AXES:
        raise UsageError(f"no axis '{x}': there are {', '.join(AXES)}")
    if band not in BANDS:
        raise UsageError(f"no band '{band}': there are {', '.join(BANDS)}")
    curves = {run: RunCurves(run) for each in experiments for run in each.runs}
    if metric is not None:
        check_metric(metric, list(curves.values()))
    figure, [axes] = make_figure(8.0, 4.6)
    if metric is None:
        known = {name for each in curves.values() for name in each.numbers()}
        kinds = (*RETURNS, *(kind for kind in SHOWN if kind.metric in known))
    else:
        kinds = (Kind(metric, metric, lasting=metric in LASTING),)
    picture = Picture(axes, kinds, x, interval=band == "interval")
    for number, experiment in enumerate(experiments):
        colour = COLOURS[number % len(COLOURS)] if len(experiments) > 1 else None
        picture.add(experiment, curves, colour)
    if picture.empty:
        names = ", ".join(str(run) for run in curves)
        raise UsageError(f"nothing to plot yet: no {metric or 'return'} was reported in {names}")
    rows = metric is not None and any(each.counts_rows(metric) for each in curves.values())
    across = "rows of the shard" if rows else _ACROSS[x]
    picture.finish(experiments, (across, metric or "return of an episode"))
    return figure


def metrics(runs: Runs) -> tuple[list[str], list[str]]:
    """Returns the metrics that can be drawn: numbers of ``progress.jsonl``, and TensorBoard tags.

    Raises:
        UsageError: no run is given.
    """
    curves = [RunCurves(folder) for folder in run_folders(runs)]
    names = {name for each in curves for name in each.numbers()}
    return sorted(names), sorted({tag for each in curves for tag in each.tags()})


def _default_path(experiments: Sequence[Experiment], metric: str | None) -> Path:
    name = experiments[0].label if len(experiments) == 1 else f"{len(experiments)}-experiments"
    words = re.sub(r"[^\w.-]+", "_", f"{name}-{metric or 'return'}")
    return Path(words.strip("_.-") + ".png")
