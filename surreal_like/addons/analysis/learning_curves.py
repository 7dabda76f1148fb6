"""Draws learning curves of experiments: thin lines of seeds, mean and band, goals."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from session.addons.analysis.charts import COLOURS, FAINT, INK, begin_at_zero, label, legend, title
from session.config.session_defaults import EVALUATION_MODES
from session.folder import RunFolder
from session.show.progress import Curve, mode_name
from surreal_like.addons.analysis.run_curves import RunCurves
from surreal_like.addons.analysis.run_groups import Experiment, band, check_seeds
from surreal_like.addons.analysis.statistics import ENOUGH_RUNS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BANDS = {False: "band: lowest to highest run", True: "band: 95 % interval of the mean"}
_MIDDLE = {False: "mean", True: "interquartile mean"}
_KEPT = "mean: solved runs keep their last value"
# Of a line of a legend below the axes.
_LEGEND_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of line.

    Args:
        metric: name of the drawn metric.
        name: name for the legend.
        dashes: lengths of dash and gap in line widths; empty: solid.
        width: points.
        dots: mark the data points, because the line between them is interpolated.
        lasting: hold the last value of runs that ended because they reached their goal.
    """

    metric: str
    name: str
    dashes: tuple[float, ...] = ()
    width: float = 2.0
    dots: bool = False
    lasting: bool = False

    @property
    def style(self) -> Any:
        """The line style in the format of matplotlib."""
        return (0, self.dashes) if self.dashes else "-"


GREEDY, TRAINING = "eval.mean_return", "train.mean_return_100"
RETURNS = (
    Kind(GREEDY, "greedy evaluation", width=2.4, dots=True, lasting=True),
    Kind(TRAINING, "training, last 100 episodes", dashes=(3.0, 1.2), width=1.7, lasting=True),
)
# Evaluations in modes that do not decide about the goal, for runs that have them.
SHOWN = tuple(
    Kind(f"{mode}.mean_return", f"{mode_name(mode)} evaluation", dots=True, lasting=True)
    for mode in EVALUATION_MODES
)
# Other names of the returns. Rates, losses and the like are not held after the end of a run.
LASTING = (
    *(kind.metric for kind in (*RETURNS, *SHOWN)),
    *("best_eval.mean_return", "return/greedy", "return/train"),
)


class Picture:
    """Curves in one pair of axes.

    Args:
        axes: empty axes.
        kinds: line types drawn for each experiment.
        x: quantity of the x axis, one of AXES.
        interval: bands are intervals around interquartile means, not the range of the runs.
    """

    def __init__(
        self, axes: Axes, kinds: Sequence[Kind], x: str, *, interval: bool = False
    ) -> None:
        self._axes = axes
        self._interval = interval
        self._kinds = kinds
        self._x = x
        self._handles: list[Any] = []
        # Label of an experiment -> colour of its lines, None if each kind has its own.
        self._colours: dict[str, str | None] = {}
        self._kept = False
        self._banded = False

    @property
    def empty(self) -> bool:
        """True until a line has been drawn."""
        return not self._axes.lines

    def add(
        self, experiment: Experiment, curves: Mapping[RunFolder, RunCurves], colour: str | None
    ) -> None:
        """Draws the runs of one experiment.

        Args:
            experiment: owner of the runs.
            curves: curves of each run.
            colour: colour of all its lines; None: each kind has its own.
        """
        self._colours[experiment.label] = colour
        most, middle = 0, _MIDDLE[self._interval]
        for index, kind in enumerate(self._kinds):
            found = [curves[run].curve(kind.metric, self._x) for run in experiment.runs]
            number = sum(bool(curve.x) for curve in found)
            if self._interval and number:
                check_seeds(experiment.label, number, "an interval", ENOUGH_RUNS)
            most = max(most, number)
            if number:
                held = [kind.lasting and _find_reached(run) for run in experiment.runs]
                self._draw(kind, found, held, colour or COLOURS[index])
                if colour is None:
                    words = f"{kind.name}: {middle} of {number} runs" if number > 1 else kind.name
                    self._handles.append(_line(words, kind, COLOURS[index]))
        if colour is not None and most:
            words = experiment.label + (f", {middle} of {most} runs" if most > 1 else "")
            self._handles.append(_line(words, Kind("", ""), colour))

    def _draw(self, kind: Kind, found: list[Curve], held: list[bool], colour: str) -> None:
        curves = [(curve, stays) for curve, stays in zip(found, held, strict=True) if curve.x]
        if len(curves) == 1:
            self._plot(curves[0][0], kind, colour)
            return
        for curve, _ in curves:
            self._axes.plot(
                curve.x,
                curve.y,
                color=colour,
                linewidth=0.8,
                alpha=0.35,
                linestyle=kind.style,
                marker=_marker(curve),
                markersize=4,
            )
        ends = [curve.x[-1] for curve, _ in curves]
        common = band(
            [curve for curve, _ in curves],
            [stays for _, stays in curves],
            interval=self._interval,
        )
        if common is None:
            return
        self._kept |= any(stays for _, stays in curves) and min(ends) < common.x[-1]
        self._banded = True
        self._axes.fill_between(
            common.x, common.low, common.high, color=colour, alpha=0.16, linewidth=0
        )
        self._axes.plot(
            common.x, common.middle, color=colour, linewidth=kind.width, linestyle=kind.style
        )

    def _plot(self, curve: Curve, kind: Kind, colour: str) -> None:
        self._axes.plot(
            curve.x,
            curve.y,
            color=colour,
            linewidth=kind.width,
            linestyle=kind.style,
            marker="o" if kind.dots else _marker(curve),
            markersize=4,
        )

    def finish(self, experiments: Sequence[Experiment], names: tuple[str, str]) -> None:
        """Adds goals, titles and the legend.

        Args:
            experiments: the drawn experiments.
            names: names of the axes, x and y.
        """
        shown = [kind.metric for kind in self._kinds]
        owners: dict[float, list[str]] = {}
        for each in experiments:
            if (goal := _goal(each)) and goal[0] in shown:
                owners.setdefault(goal[1], []).append(each.label)
        for wanted, labels in sorted(owners.items()):
            # A goal of some of the experiments only has their names.
            shared = len(labels) == len(experiments)
            words = f"goal {wanted:g}" + ("" if shared else f" of {', '.join(labels)}")
            own = self._colours.get(labels[0]) if len(labels) == 1 and not shared else None
            style: Any = (0, (1, 2))
            self._axes.axhline(wanted, color=own or INK, linewidth=1, linestyle=style, zorder=1)
            self._write(words, ("axes fraction", "data"), (1, wanted), (-2, 3))
        if self._axes.get_xlim()[0] > 0:
            begin_at_zero(self._axes)
        label(self._axes, *names)
        title(self._axes, *_titles(experiments))
        if self._kept:
            self._write(_KEPT, "axes fraction", (1, 0), (0, -28))
        self._legend(several=len(experiments) > 1)

    def _write(self, text: str, where: Any, place: tuple[float, float], off: Any) -> None:
        """Writes a small remark; its right end is at an offset in points from a position."""
        self._axes.annotate(
            text,
            place,
            off,
            xycoords=where,
            textcoords="offset points",
            ha="right",
            fontsize=8,
            color=FAINT,
        )

    def _legend(self, *, several: bool) -> None:
        """Adds the legend of lines and bands; below the axes if there are several experiments."""
        if several and len(self._kinds) > 1:
            self._handles += [_line(kind.name, kind, FAINT) for kind in self._kinds]
        if self._banded:
            from matplotlib.patches import Patch

            self._handles.append(
                Patch(color=FAINT, alpha=0.25, linewidth=0, label=_BANDS[self._interval])
            )
        if several:
            for handle in self._handles:
                # A legend that is wider than the picture leaves its axes no width.
                handle.set_label(textwrap.fill(handle.get_label(), _LEGEND_CHARACTERS))
            legend(self._axes, handles=self._handles, loc="upper left", bbox_to_anchor=(0, -0.16))
        else:
            legend(self._axes, handles=self._handles, loc="best")


def _marker(curve: Curve) -> str | None:
    """Returns a dot for a curve of one point, which has no line."""
    return "o" if len(curve.x) == 1 else None


def _line(words: str, kind: Kind, colour: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], color=colour, linestyle=kind.style, linewidth=max(kind.width, 1.6), label=words
    )


def _find_reached(run: RunFolder) -> bool:
    return bool((run.read_result() or {}).get("goal_met"))


def _goal(experiment: Experiment) -> tuple[str, float] | None:
    """Returns the metric of the goal, and its target value."""
    stop = experiment.config.session_config.stop
    if stop.eval_return is not None:
        return GREEDY, float(stop.eval_return)
    if stop.metric is not None and stop.above is not None:
        return f"metrics.{stop.metric}.mean", float(stop.above)
    return None


def _titles(experiments: Sequence[Experiment]) -> tuple[str, str]:
    """Returns the title, and the line below it."""
    algorithms: dict[str, dict[str, None]] = {}
    for each in experiments:
        beside = algorithms.setdefault(each.config.env_config.env_name, {})
        beside[each.config.algorithm] = None
    what = "; ".join(f"{', '.join(names)} on {env}" for env, names in algorithms.items())
    if len(experiments) > 1:
        return f"{len(experiments)} experiments", what
    [only] = experiments
    seeds = ", ".join(map(str, only.seeds))
    return only.label, f"{what} · seed{'s' if len(only.seeds) > 1 else ''} {seeds}"
