"""The table of a tuning: one line for each trial, in as many columns as fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from session.show.text import bar, columns, count, decimal
from surreal_like.tuning.space import setting_text, short_names

Row = Mapping[str, Any]

_GAP = "  "
# Columns that a narrow terminal does without, the first one first; then settings, the last first.
_LEFT_OUT = ("doing", "best", "of budget")
_WIDE, _LONG_BAR, _SHORT_BAR = 100, 12, 6
_SETTINGS, _LEAST_HEAD, _MOST_CELL = 4, 6, 16
_LEAST_DOING = 12
_RIGHT = ("score", "best", "time", "failures")


def trial_table(
    rows: Sequence[Row],
    *,
    width: int = 0,
    height: int = 0,
    budget: float | None = None,
    mode: str = "max",
) -> list[str]:
    """Lays out trials as lines; the best ones by score if not all fit.

    Args:
        rows: of each trial ``name``, ``doing`` and the fields of its entry in ``tuning.json``.
        width: characters of the terminal; 0: no limit.
        height: maximum number of lines; 0: no limit.
        budget: of a trial, in the unit of its time; None: no bar.
        mode: ``max`` or ``min`` of the score is best.
    """
    shown = list(rows)
    if 0 < height <= len(rows):
        shown = best_first(rows, mode)[: max(1, height - 2)]
    found = _columns(shown, width, budget)
    spare = [*_LEFT_OUT, *reversed([name for name in found if name.startswith("\0")])]
    for name in spare:
        if not width or _width(found) <= width:
            break
        room = width - _width({k: v for k, v in found.items() if k != name}) - len(_GAP)
        if name == "doing" and room >= _LEAST_DOING:
            found[name] = [_cut(cell, room) for cell in found[name]]
        else:
            found.pop(name, None)
    head = [cells[0] for cells in found.values()]
    table = list(zip(*(cells[1:] for cells in found.values()), strict=True))
    right = [index for index, name in enumerate(found) if name in _RIGHT]
    lines = columns(head, table, right=right, gap=_GAP).splitlines()
    more = len(rows) - len(shown)
    return lines + ([f"{more} more"] if more else [])


def best_first(rows: Sequence[Row], mode: str) -> list[Row]:
    """Sorts trials by score; those without one last, equal ones in the given order."""
    sign = -1.0 if mode == "max" else 1.0

    def rank(row: Row) -> tuple[bool, float]:
        return row["score"] is None, 0.0 if row["score"] is None else sign * row["score"]

    return sorted(rows, key=rank)


def _columns(rows: Sequence[Row], width: int, budget: float | None) -> dict[str, list[str]]:
    """Returns name of the column -> head and cells; names of settings begin with a zero byte."""
    narrow = 0 < width < _WIDE
    found = {
        "trial": [row["name"] for row in rows],
        "state": [str(row["state"]) for row in rows],
        "score": [decimal(row["score"]) for row in rows],
        "best": [decimal(row["best_score"]) for row in rows],
        "time": [count(row["time"]) for row in rows],
    }
    if budget:
        long = _SHORT_BAR if narrow else _LONG_BAR
        found["of budget"] = [bar(row["time"] / budget, long) for row in rows]
    if any(row["generation"] for row in rows):
        found["loaded"] = [_loaded(row, narrow=narrow) for row in rows]
    keys = sorted({key for row in rows for key in row["settings"]})
    for key, name in list(short_names(keys).items())[:_SETTINGS]:
        cells = [_cut(setting_text(row["settings"].get(key)), _MOST_CELL) for row in rows]
        most = max(_LEAST_HEAD, *map(len, cells)) if narrow else len(name)
        found[f"\0{key}"] = [_cut(name, most), *cells]
    if any(row["failures"] for row in rows):
        found["failures"] = [str(row["failures"]) for row in rows]
    if any(row["doing"] for row in rows):
        found["doing"] = [row["doing"] for row in rows]
    return {
        name: cells if name.startswith("\0") else ["" if name == "doing" else name, *cells]
        for name, cells in found.items()
    }


def _loaded(row: Row, *, narrow: bool) -> str:
    if not row["generation"]:
        return "-"
    parent = row["parent"].removeprefix("trial-") if narrow else row["parent"]
    return f"{row['generation']} <- {parent}"


def _width(found: Mapping[str, Sequence[str]]) -> int:
    return sum(max(map(len, cells)) for cells in found.values()) + len(_GAP) * (len(found) - 1)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"
