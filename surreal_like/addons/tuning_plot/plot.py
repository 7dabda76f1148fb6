"""Pictures of a tuning: the score of each trial, and the descent of a population."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from session.addons.analysis.charts import (
    COLOURS,
    FAINT,
    INK,
    begin_at_zero,
    label,
    legend,
    make_figure,
    title,
)
from session.errors import UsageError
from session.folder import RunFolder
from session.show.progress import Curve, Progress
from session.show.text import decimal
from surreal_like.addons.analysis.plot import save
from surreal_like.addons.analysis.run_curves import RunCurves, check_metric
from surreal_like.addons.tuning.exploit_files import (
    Arrow,
    Part,
    check_number,
    lineage,
    read_exploits,
)
from surreal_like.addons.tuning.result import number_name, score_of
from surreal_like.addons.tuning.space_and_mutation import (
    LISTS,
    setting_text,
    settings_text,
    short_names,
)
from surreal_like.addons.tuning.state import Trial, best_of, restore_trials
from surreal_like.addons.tuning.trial import TUNE_FILE, read_tuning
from surreal_like.addons.tuning.tune_file import TuneFile, read_tune_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_UNITS = {"env_steps": "environment steps", "seconds": "seconds", "iterations": "updates"}
# More trials are one grey, beside the best one.
_MOST_COLOURS = len(COLOURS)
# Height of the lines of one element of a list, of the distance of two elements.
_SPREAD = 0.3
# Bend of each further arrow from the same checkpoint.
_BEND = 0.12
_ROW_INCHES, _PANEL_INCHES, _LEAST_INCHES, _MOST_TICKS = 0.24, 1.5, 1.8, 24


@dataclass(frozen=True, slots=True)
class TuningData:
    """A tuning as its folder has it.

    Args:
        path: the folder.
        file: the tune file.
        trials: trials with state, settings and score, in the order of their numbers.
        best: the trial with the best newest score; None without a score.
    """

    path: Path
    file: TuneFile
    trials: Sequence[Trial]
    best: Trial | None

    @classmethod
    def read(cls, path: str | Path) -> TuningData:
        """Reads the folder of a tuning.

        Raises:
            ConfigError: its state or its tune file is damaged.
        """
        path = Path(path)
        file = read_tune_file(path / TUNE_FILE)
        trials = restore_trials(read_tuning(path))
        best = best_of(trials, str(file.tune.mode))
        return cls(path, file, trials, best)


def plot_tuning(
    folder: str | Path,
    *,
    metric: str | None = None,
    x: str | None = None,
    out: str | Path | None = None,
    lineage: bool = False,
) -> Path:
    """Draws a tuning into a file: the score of each trial over time.

    Args:
        folder: folder of the tuning.
        metric: name of a number of ``progress.jsonl``, with dots, or a TensorBoard tag; None: the
            metric of the tuning.
        x: ``env_steps``, ``seconds`` or ``iterations``; None: the unit of the tuning.
        out: ``.png``, ``.svg`` or ``.pdf``; None: ``<tuning>-<metric>.png`` in the current folder.
        lineage: draw which trial has loaded which, and the values of each mutated setting.

    Returns:
        Path of the file.

    Raises:
        UsageError: the metric does not exist, or the file type is unknown.
        ConfigError: the folder is damaged.
        MissingExtra: matplotlib is not installed.
    """
    tuning = TuningData.read(folder)
    words = "lineage" if lineage else metric or "score"
    name = re.sub(r"[^\w.-]+", "_", f"{tuning.path.resolve().name}-{words}")
    path = Path(out) if out is not None else Path(f"{name}.png")
    return save(path, lambda: draw_lineage(tuning) if lineage else draw_scores(tuning, metric, x))


def draw_scores(tuning: TuningData, metric: str | None = None, x: str | None = None) -> Figure:
    """Draws the score of each trial; the best one stands out, and each ends where it was stopped.

    Args:
        tuning: the tuning.
        metric: name of a number of ``progress.jsonl``, or a TensorBoard tag; None: the score.
        x: ``env_steps``, ``seconds`` or ``iterations``; None: ``tune.time``.

    Raises:
        UsageError: no trial has the metric.
        MissingExtra: matplotlib is not installed.
    """
    tune = tuning.file.tune
    wanted, axis = metric or number_name(str(tune.metric)), x or str(tune.time)
    runs = {each.name: RunCurves(RunFolder(tuning.path / each.name)) for each in tuning.trials}
    check_metric(wanted, runs.values())
    figure, [axes] = make_figure(8.0, 4.6)
    several = len(tuning.trials) <= _MOST_COLOURS
    for number, trial in enumerate(tuning.trials):
        run = runs[trial.name]
        curve = run.curve(wanted, axis) if metric else _scores(run.folder, tune, wanted, axis)
        if not curve.x:
            continue
        best = trial is tuning.best
        colour = COLOURS[number % _MOST_COLOURS] if several else COLOURS[0] if best else FAINT
        axes.plot(
            curve.x,
            curve.y,
            color=colour,
            linewidth=2.6 if best else 1.2,
            alpha=1.0 if best or several else 0.55,
            zorder=3 if best else 2,
            label=_name(trial, best=best) if several or best else None,
        )
        # Where the trial has ended: a stopped one is told apart from one that is covered.
        axes.plot(curve.x[-1], curve.y[-1], "o", color=colour, markersize=4, zorder=3)
    if axes.lines:
        begin_at_zero(axes)
    label(axes, _UNITS[axis], wanted)
    title(axes, tuning.path.resolve().name, _below(tuning))
    legend(axes, loc="upper left", bbox_to_anchor=(0, -0.16))
    return figure


def _scores(run: RunFolder, tune: Mapping[str, Any], name: str, axis: str) -> Curve:
    """Returns the scores of a trial: lines of progress with enough episodes since an exploit."""
    scores = Progress(run.progress, [name])
    for line in run.progress_tail().objects():
        if score_of(line, tune) is not None:
            scores.add(line)
    return scores.curve(name, axis)


def draw_lineage(tuning: TuningData) -> Figure:
    """Draws the descent of a population: a row for each trial, and a panel for each mutated key.

    Raises:
        UsageError: there was no exploit.
        MissingExtra: matplotlib is not installed.
    """
    names = [each.name for each in tuning.trials]
    exploits = read_exploits(tuning.path, names, tuning.file.space.mutable)
    if not exploits:
        raise UsageError(f"{tuning.path} has no exploit to draw: no trial has loaded another one")
    drawn = tuning.file.settings()
    check_number(tuning.path, len(tuning.trials), len(drawn))
    first = {
        each.name: drawn[number] if each.generation else each.settings
        for number, each in enumerate(tuning.trials)
    }
    ends = {each.name: each.time for each in tuning.trials}
    parts, arrows = lineage(first, exploits, ends)
    keys = tuning.file.space.mutable
    rows = max(_LEAST_INCHES, _ROW_INCHES * len(tuning.trials) + 0.6)
    figure, all_axes = make_figure(
        8.0, rows + _PANEL_INCHES * len(keys), rows=[rows, *[_PANEL_INCHES] * len(keys)]
    )
    colours = _colours([each.name for each in tuning.trials])
    _rows(all_axes[0], tuning, parts, arrows, colours)
    short = short_names(keys)
    for axes, key in zip(all_axes[1:], keys, strict=True):
        _panel(axes, tuning, key, parts, colours)
        label(axes, "", short[key])
        axes.set_xlim(all_axes[0].get_xlim())
    label(all_axes[-1], f"{_UNITS[tuning.file.tune.time]} of the trial", short.get(keys[-1], ""))
    return figure


def _rows(
    axes: Axes,
    tuning: TuningData,
    parts: Mapping[str, Sequence[Part]],
    arrows: Sequence[Arrow],
    colours: Mapping[str, Any],
) -> None:
    rows = {each.name: number for number, each in enumerate(tuning.trials)}
    for name, own in parts.items():
        for part in own:
            axes.plot(
                [part.begin, part.end],
                [rows[name]] * 2,
                color=colours[part.root],
                linewidth=3.0,
                solid_capstyle="butt",
            )
    begun = Counter[tuple[str, float]]()
    for arrow in arrows:
        bend = _BEND * begun[arrow.donor, arrow.donor_at]
        begun[arrow.donor, arrow.donor_at] += 1
        axes.annotate(
            "",
            (arrow.recipient_at, rows[arrow.recipient]),
            (arrow.donor_at, rows[arrow.donor]),
            arrowprops={
                "arrowstyle": "-|>",
                "color": INK,
                "linewidth": 0.7,
                "mutation_scale": 7,
                "connectionstyle": f"arc3,rad={bend}",
            },
            zorder=3,
        )
    for trial in tuning.trials:
        best = trial is tuning.best
        axes.annotate(
            decimal(trial.score),
            (1, rows[trial.name]),
            (6, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=INK if best else FAINT,
            fontweight="bold" if best else "normal",
        )
    axes.set_yticks(range(len(rows)), list(rows), fontsize=8 if len(rows) <= _MOST_TICKS else 6)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.grid(visible=False, axis="y")
    title(axes, tuning.path.resolve().name, f"{_below(tuning)} · colour: first ancestor")


def _panel(
    axes: Axes,
    tuning: TuningData,
    key: str,
    parts: Mapping[str, Sequence[Part]],
    colours: Mapping[str, Any],
) -> None:
    """Draws the values of one key; those of lists one above the other."""
    dimension = tuning.file.space.dimensions[key]
    shown: dict[str, int] = {}
    if dimension.kind in LISTS:
        values = getattr(dimension, "values")  # noqa: B009 - kinds of LISTS have it
        shown = {setting_text(value): place for place, value in enumerate(values)}
        axes.set_yticks(range(len(shown)), list(shown), fontsize=8)
    elif dimension.kind.startswith("log"):
        _log_axis(axes, getattr(dimension, "low"), getattr(dimension, "high"))  # noqa: B009 - as above
    for number, own in enumerate(parts.values()):
        # Trials with the same element of a list lie beside each other.
        beside = _SPREAD * (number / max(1, len(parts) - 1) - 0.5)
        for part in own:
            value = part.settings[key]
            place = shown.get(setting_text(value), 0) - beside if shown else value
            axes.plot([part.begin, part.end], [place] * 2, color=colours[part.root], linewidth=1.4)


def _log_axis(axes: Axes, low: float, high: float) -> None:
    """Draws a logarithmic y axis; below two decades its ticks are not at powers of 10 only."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axes.set_yscale("log")
    axes.minorticks_off()
    if high < 100 * low:
        digits = (1, 2, 5) if high > 5 * low else (1, 1.5, 2, 3, 4, 5, 6, 8)
        axes.yaxis.set_major_locator(LogLocator(subs=digits))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _colours(names: Sequence[str]) -> dict[str, Any]:
    if len(names) <= _MOST_COLOURS:
        return dict(zip(names, COLOURS, strict=False))
    from matplotlib import colormaps

    every = colormaps["turbo"]
    return {name: every(place / (len(names) - 1)) for place, name in enumerate(names)}


def _name(trial: Trial, *, best: bool) -> str:
    words = f"{trial.name}@{settings_text(trial.settings)}" if trial.settings else trial.name
    return f"{words}, best: {decimal(trial.score)}" if best else words


def _below(tuning: TuningData) -> str:
    tune = tuning.file.tune
    scheduler = f"{len(tuning.trials)} trials, {tune.scheduler}"
    if tuning.best is None:
        return scheduler
    return f"{scheduler} · best: {tuning.best.name}, {decimal(tuning.best.score)}"
