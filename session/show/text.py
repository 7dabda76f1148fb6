"""Formats numbers and tables as text."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from session.loggerplex.terminal import printable

_UNITS = ("B", "kB", "MB", "GB", "TB")
MISSING = "-"
# Between two columns of a table.
GAP = "   "


def count(value: float | None) -> str:
    """Formats a count: 12,345."""
    return MISSING if value is None else f"{value:,.0f}"


def plural(number: int, word: str) -> str:
    """Formats a number of things: 1 slot, 1,200 slots."""
    return f"{count(number)} {word}{'' if number == 1 else 's'}"


def steps_or_updates(env_steps: int | None, updates: int) -> str:
    """Formats how far a run has come: in updates where no agent has played."""
    return f"{count(env_steps)} env steps" if env_steps else plural(updates, "update")


def rate(value: float | None) -> str:
    """Formats a rate per second: 1,234/s, and rates below 10/s with one decimal."""
    if value is None:
        return MISSING
    return f"{value:,.1f}/s" if abs(value) < 10 else f"{value:,.0f}/s"


def decimal(value: float | None) -> str:
    """Formats a return or another measured number: 123.4, 0.0123, 12,346."""
    if value is None or not math.isfinite(value):
        return MISSING if value is None else str(value)
    if value == 0 or 1 <= abs(value) < 10_000:
        return f"{value:.1f}"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.3g}"


def percent(share: float | None) -> str:
    """Formats a share between 0 and 1: 12 %."""
    return MISSING if share is None else f"{100 * share:.0f} %"


def duration(seconds: float | None) -> str:
    """Formats a duration in whole seconds: 01:15, 2:01:15, 3d 02:01:15."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    minutes, second = divmod(max(0, math.floor(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour:02}:{minute:02}:{second:02}"
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute:02}:{second:02}"


def tenths(seconds: float) -> str:
    """Formats seconds, rounded down to tenths as a clock does: 11.8 s."""
    # The offset absorbs binary rounding: 0.3 s must not be shown as 0.2 s.
    return f"{math.floor(10 * seconds + 1e-6) / 10:.1f} s"


def short_time(seconds: float) -> str:
    """Formats a short duration with its unit: 3 ms, 1.2 s, 02:10."""
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms" if seconds >= 0.00095 else f"{1000 * seconds:.1g} ms"
    return f"{seconds:.1f} s" if seconds < 100 else duration(seconds)


def size(size_bytes: float) -> str:
    """Formats bytes with a unit, powers of 1000: 2.8 GB."""
    power = 0
    while abs(size_bytes) >= 999.5 and power < len(_UNITS) - 1:
        size_bytes /= 1000
        power += 1
    digits = 0 if power == 0 or abs(size_bytes) >= 99.95 else 1
    return f"{size_bytes:.{digits}f} {_UNITS[power]}"


def bar(share: float, width: int) -> str:
    """Draws a progress bar of `width` characters, filled up to `share`."""
    filled = round(min(1.0, max(0.0, share)) * width)
    return "━" * filled + "─" * (width - filled)


def ago(seconds: float | None) -> str:
    """Formats the age of a heartbeat or of an event: 250 ms ago."""
    return MISSING if seconds is None else f"{short_time(seconds)} ago"


def columns(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    gap: str = GAP,
) -> str:
    """Formats a table as lines; a cell may hold any text, and stays in its line.

    Args:
        head: titles; empty for a table without them.
        rows: lists of texts, one text per column.
        right: indices of the right-aligned columns.
        gap: gap between two columns.
    """
    every = [list(map(printable, row)) for row in ([head, *rows] if head else rows)]
    widths = [max(len(row[i]) for row in every) for i in range(len(every[0]))] if every else []
    lines = []
    for row in every:
        cells = [
            text.rjust(width) if i in right else text.ljust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(gap.join(cells).rstrip())
    return "\n".join(lines)


# Name of a column -> its title, then its cells.
Table = Mapping[str, Sequence[str]]


def width_of(table: Table, gap: str = GAP) -> int:
    """Returns the width of a table, in characters."""
    return sum(max(map(len, cells)) for cells in table.values()) + len(gap) * (len(table) - 1)


def fit_table(
    table: Table, width: int, *, spare: Iterable[str], right: Collection[str], gap: str = GAP
) -> str:
    """Formats a table as lines, without the columns for which the terminal is too narrow.

    Args:
        table: the columns.
        width: width of the terminal, in characters; 0: lines may have any length.
        spare: names of columns that a narrow terminal does without, the first one first.
        right: names of the right-aligned columns.
        gap: gap between two columns.
    """
    for name in spare:
        if width and width_of(table, gap) > width:
            table = {other: cells for other, cells in table.items() if other != name}
    places = [place for place, name in enumerate(table) if name in right]
    return columns([], list(zip(*table.values(), strict=True)), right=places, gap=gap)
