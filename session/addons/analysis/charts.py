"""The figure of one run, and parts of all figures; matplotlib is imported when one is drawn."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from session.config.session_defaults import EVALUATION_MODES
from session.errors import MissingExtra
from session.show.progress import Progress, mode_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Distinguishable in print and by most people with colour blindness.
COLOURS = ("#1864ab", "#e8590c", "#2b8a3e", "#9c36b5", "#c92a2a", "#0b7285", "#7f5539", "#495057")
INK = "#343a40"
FAINT = "#868e96"
_GRID = "#e9ecef"
# Letters below a title that a figure has room for.
_LINE = 90
_GREEDY, _TRAINING = "eval.mean_return", "train.mean_return_100"
_WORST, _BEST = "train.min_return_100", "train.max_return_100"
_STEPS, _UPDATES = "rates.env_steps_per_second", "rates.updates_per_second"
_LAG = "lag.mean_versions"
# Evaluations of further modes, which do not affect the stop rule.
_SHOWN = {f"{mode}.mean_return": mode_name(mode) for mode in EVALUATION_MODES}
# Numbers that the figure needs.
CURVES = (_GREEDY, _TRAINING, _WORST, _BEST, *_SHOWN, _STEPS, _UPDATES, _LAG)


def make_figure(
    width: float,
    height: float,
    columns: int = 1,
    *,
    dots: int = 120,
    fitted: bool = True,
    rows: Sequence[float] = (1.0,),
) -> tuple[Figure, list[Axes]]:
    """Makes an empty figure with axes side by side, independent of any window or notebook.

    Args:
        width, height: inches.
        columns: number of axes.
        dots: dots per inch.
        fitted: fit the margins to the labels; drawing then takes twice as long.
        rows: relative heights of rows of axes.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtra.named("a picture", "plot") from error
    figure = Figure(figsize=(width, height), dpi=dots, layout="constrained" if fitted else None)
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(len(rows), columns, height_ratios=rows)
    places = [(row, column) for row in range(len(rows)) for column in range(columns)]
    axes = [figure.add_subplot(grid[place]) for place in places]
    for each in axes:
        tidy(each)
    return figure, axes


def tidy(axes: Axes) -> None:
    """Removes decoration that is not data, and shortens large numbers."""
    from matplotlib.ticker import EngFormatter

    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.grid(visible=True, color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=9, length=3)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def label(axes: Axes, x: str, y: str) -> None:
    """Names both axes."""
    axes.set_xlabel(x, color=INK, fontsize=10)
    axes.set_ylabel(y, color=INK, fontsize=10)


def title(axes: Axes, text: str, below: str = "") -> None:
    """A title at the left, with a fainter line below it, which ends in ``...`` where it is long."""
    if len(below) > _LINE:
        below = f"{below[: _LINE - 4]} ..."
    axes.set_title(text, loc="left", color=INK, fontsize=12, fontweight="bold", pad=22)
    axes.text(
        0, 1.015, below, transform=axes.transAxes, color=FAINT, fontsize=9, va="bottom", ha="left"
    )


def begin_at_zero(axes: Axes) -> None:
    """Lets the x axis begin at 0, with the usual margin behind the last point."""
    axes.set_xlim(0.0, axes.dataLim.x1 * (1.0 + axes.get_xmargin()))


def legend(axes: Axes, **options: Any) -> None:
    """Adds a legend if the axes have labelled lines."""
    if axes.get_legend_handles_labels()[0] or "handles" in options:
        # A ground without an edge, so that lines behind the text do not strike it out.
        look: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "framealpha": 0.85}
        axes.legend(fontsize=9, labelcolor=INK, **look, **options)


def png(figure: Figure) -> bytes:
    """Returns the figure as a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def run_figure(progress: Progress, goal: float | None = None) -> Figure:
    """Draws the reported numbers of a run.

    Args:
        progress: contains at least CURVES.
        goal: the return to reach.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure, [returns, throughput, lag] = make_figure(12.0, 3.0, 3, dots=100, fitted=False)
    from matplotlib.ticker import EngFormatter  # make_figure raises if it is missing

    figure.subplots_adjust(left=0.04, right=0.99, top=0.9, bottom=0.17, wspace=0.22)
    _line(returns, progress, _GREEDY, "greedy", colour=0, marker="o", markersize=3)
    _line(returns, progress, _TRAINING, "training", colour=1, linestyle=(0, (3, 1.2)))
    worst, best = (progress.curve(name, "seconds") for name in (_WORST, _BEST))
    if worst.x == best.x:
        returns.fill_between(worst.x, worst.y, best.y, color=COLOURS[1], alpha=0.12, linewidth=0)
    shown = [name for name in _SHOWN if name in progress.names()]
    for name in shown:
        _line(returns, progress, name, _SHOWN[name], colour=3, marker="o", markersize=3)
    if goal is not None:
        # The legend beside the title has room for three labels.
        words = "_goal" if shown else "goal"
        returns.axhline(goal, color=FAINT, linewidth=1, linestyle=(0, (1, 2)), label=words)
    beside = throughput.twinx()
    beside.spines[["top", "left", "bottom"]].set_visible(False)
    beside.spines["right"].set_color(FAINT)
    for axes, name, words, colour in (
        (throughput, _STEPS, "steps/s", 0),
        (beside, _UPDATES, "updates/s (right)", 1),
    ):
        _line(axes, progress, name, words, colour=colour)
        axes.tick_params(axis="y", colors=COLOURS[colour], labelsize=9, length=3)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    _line(lag, progress, _LAG, "versions behind, mean", colour=2)
    for axes, text in ((returns, "return"), (throughput, "throughput"), (lag, "policy lag")):
        label(axes, "seconds", "")
        axes.set_title(text, loc="left", color=INK, fontsize=11, fontweight="bold")
    _legend(returns)
    _legend(throughput, handles=[*throughput.lines, *beside.lines])
    _legend(lag)
    return figure


def _legend(axes: Any, **options: Any) -> None:
    """Adds a legend in one row above the axes, beside the title, where it covers no line."""
    legend(
        axes,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=3,
        borderaxespad=0.3,
        columnspacing=0.8,
        handlelength=1.1,
        handletextpad=0.5,
        **options,
    )


def _line(
    axes: Any, progress: Progress, name: str, words: str, *, colour: int, **options: Any
) -> None:
    curve = progress.curve(name, "seconds")
    axes.plot(curve.x, curve.y, color=COLOURS[colour], linewidth=1.8, label=words, **options)
