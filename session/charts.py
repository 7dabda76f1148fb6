"""Shared parts of all figures of a run; matplotlib is imported only when one is drawn."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from session.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Distinguishable in print and by most people with colour blindness.
COLOURS = ("#1864ab", "#e8590c", "#2b8a3e", "#9c36b5", "#c92a2a", "#0b7285", "#7f5539", "#495057")
INK = "#343a40"
FAINT = "#868e96"
_GRID = "#e9ecef"


def make_figure(
    width: float, height: float, columns: int = 1, *, dots: int = 120, fitted: bool = True
) -> tuple[Figure, list[Axes]]:
    """Makes an empty figure with axes side by side, independent of any window or notebook.

    Args:
        width, height: inches.
        columns: number of axes.
        dots: dots per inch.
        fitted: fit the margins to the labels; drawing then takes twice as long.

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
    axes = [figure.add_subplot(1, columns, column + 1) for column in range(columns)]
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
    """A title at the left, with a fainter line below it."""
    axes.set_title(text, loc="left", color=INK, fontsize=12, fontweight="bold", pad=22)
    axes.text(
        0, 1.015, below, transform=axes.transAxes, color=FAINT, fontsize=9, va="bottom", ha="left"
    )


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
