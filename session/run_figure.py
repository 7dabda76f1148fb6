"""Figure of one run: returns, throughput and policy lag over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from session.charts import COLOURS, FAINT, INK, label, legend, make_figure
from session.progress import MODES, Progress, mode_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GREEDY, _TRAINING = "eval.mean_return", "train.mean_return_100"
_STEPS, _UPDATES = "rates.env_steps_per_second", "rates.updates_per_second"
_LAG = "lag.mean_versions"
# Evaluations of further modes, which do not affect the stop rule.
_SHOWN = {f"{mode}.mean_return": mode_name(mode) for mode in MODES}
# Numbers that the figure needs.
CURVES = (_GREEDY, _TRAINING, *_SHOWN, _STEPS, _UPDATES, _LAG)


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
